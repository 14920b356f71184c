package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 500 * time.Millisecond
	leaseName     = "turns"
)

// TestTakingTurns lets client-go's elector and an operator of ours compete for one Lease.
func TestTakingTurns(t *testing.T) {
	operator := os.Getenv("KONVERGE_OPERATOR")
	if operator == "" {
		t.Skip("KONVERGE_OPERATOR names no operator")
	}
	namespace := newNamespace(t)
	holder := func() (string, int32) {
		lease, err := typed.CoordinationV1().Leases(namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return "", -1
		}
		return *lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions
	}
	leads := func(is func(string) bool) func() error {
		return func() error {
			if who, _ := holder(); !is(who) {
				return fmt.Errorf("the holder is %q", who)
			}
			return nil
		}
	}
	gopher := func(who string) bool { return who == "gopher" }
	ours := func(who string) bool { return who != "" && who != "gopher" }
	// stays is longer than the Lease lasts: whoever renews it keeps it.
	stays := func(what string, is func(string) bool) {
		t.Helper()
		_, before := holder()
		for end := time.Now().Add(leaseDuration + time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if who, transitions := holder(); !is(who) || transitions != before {
				t.Fatalf("%s: the holder is %q after %d transitions, not %d", what, who, transitions, before)
			}
		}
	}

	resign := campaign(t, namespace, true)
	eventually(t, "client-go leads", leads(gopher))
	process := startProcess(t, operator, namespace)
	stays("client-go keeps the Lease", gopher)
	resign()
	eventually(t, "ours takes what client-go releases", leads(ours))

	resign = campaign(t, namespace, false)
	stays("ours keeps the Lease", ours)
	must(t, process.Signal(syscall.SIGTERM))
	eventually(t, "client-go takes what ours releases", leads(gopher))

	process = startProcess(t, operator, namespace)
	stays("client-go keeps the Lease again", gopher)
	// Without a release: like a crash.
	resign()
	eventually(t, "ours takes over from a dead elector", leads(ours))

	resign = campaign(t, namespace, true)
	stays("ours keeps the Lease again", ours)
	must(t, process.Kill())
	eventually(t, "client-go takes over from a dead operator", leads(gopher))
	resign()
}

// campaign runs client-go's elector until the function that it returns is called.
func campaign(t *testing.T, namespace string, release bool) func() {
	t.Helper()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, leaseName, typed.CoreV1(), typed.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: "gopher"})
	must(t, err)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { <-ctx.Done() },
			OnStoppedLeading: func() {},
		},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		elector.Run(ctx)
		close(ended)
	}()
	stop := func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// startProcess starts our operator as a process of its own.
func startProcess(t *testing.T, operator, namespace string) *os.Process {
	t.Helper()
	kubeconfig := os.Getenv("KUBECONFIG")
	if !existing() {
		kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
		must(t, os.WriteFile(kubeconfig, environment.KubeConfig, 0o600))
	}
	command := exec.Command(operator, "--kubeconfig="+kubeconfig, "--leader-elect", "--leader-election-id="+leaseName,
		"--leader-election-namespace="+namespace, "--leader-elect-lease-duration="+leaseDuration.String(),
		"--leader-elect-renew-deadline="+renewDeadline.String(), "--leader-elect-retry-period="+retryPeriod.String(),
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-bind-address=0")
	if testing.Verbose() {
		command.Stderr = os.Stderr
	}
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_, _ = command.Process.Wait()
	})
	return command.Process
}
