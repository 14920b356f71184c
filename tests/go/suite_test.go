package clients

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// The server that TestMain started, or the one that KUBECONFIG names if USE_EXISTING_CLUSTER is true.
var (
	environment *envtest.Environment
	cfg         *rest.Config
	typed       kubernetes.Interface
	direct      client.Client
)

func TestMain(m *testing.M) {
	flag.Parse()
	logs := io.Discard
	if testing.Verbose() {
		logs = os.Stderr
	}
	klog.SetOutput(logs)
	klog.LogToStderr(false)
	logf.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(logs)))
	os.Exit(run(m))
}

func run(m *testing.M) int {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(AddToScheme(scheme.Scheme))
	environment = &envtest.Environment{CRDDirectoryPaths: []string{"crds"}, ErrorIfCRDPathMissing: true}
	// Namespaces and dependents go, as on a cluster.
	environment.ControlPlane.GetAPIServer().Configure().Set("enable-garbage-collector", "true")
	began := time.Now()
	var err error
	cfg, err = environment.Start()
	check(err)
	fmt.Printf("environment started in %d ms\n", time.Since(began).Milliseconds())
	defer func() {
		began := time.Now()
		check(environment.Stop())
		fmt.Printf("environment stopped in %d ms\n", time.Since(began).Milliseconds())
	}()
	cfg.QPS, cfg.Burst = 1000, 2000
	typed, err = kubernetes.NewForConfig(cfg)
	check(err)
	direct, err = client.New(cfg, client.Options{})
	check(err)
	return m.Run()
}

// existing is whether the suite runs against a server that somebody else started.
func existing() bool { return os.Getenv("USE_EXISTING_CLUSTER") == "true" }

// newNamespace makes a namespace for one test.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace, err := typed.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, typed.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}))
	})
	return namespace.Name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition holds, and fails with what was missing last.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
