package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

const simulate = "simulate.konverge.dev/"

// runningPod makes a pod that a node runs, as a kubelet would report it: no controller runs beside the server here.
func runningPod(t *testing.T, namespace string, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pods := typed.CoreV1().Pods(namespace)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: annotations},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
			Name: "main", Image: "web:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
		}}},
	}, metav1.CreateOptions{})
	must(t, err)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Image: "web:1", Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	pod, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	must(t, err)
	return pod
}

// executors are the two ways in which Go clients run commands.
func executors(t *testing.T, namespace string, options *corev1.PodExecOptions) map[string]remotecommand.Executor {
	t.Helper()
	request := typed.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("web").SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec)
	old, err := remotecommand.NewSPDYExecutor(cfg, "POST", request.URL())
	must(t, err)
	websocket, err := remotecommand.NewWebSocketExecutor(cfg, "GET", request.URL().String())
	must(t, err)
	return map[string]remotecommand.Executor{"SPDY": old, "WebSocket": websocket}
}

func TestCommandsInSimulatedPods(t *testing.T) {
	if existing() {
		t.Skip("pods of another cluster are not simulated")
	}
	namespace := newNamespace(t)
	runningPod(t, namespace, map[string]string{
		simulate + "exec": `[{"command": "prescribed*", "stdout": "out\n", "stderr": "err\n", "exitCode": 7}]`,
	})
	large := strings.Repeat("0123456789abcdef", 1<<16)
	for _, test := range []struct {
		command        []string
		stdin          string
		stdout, stderr string
		code           int
	}{
		{command: []string{"prescribed", "anything"}, stdout: "out\n", stderr: "err\n", code: 7},
		{command: []string{"cat"}, stdin: "hello", stdout: "hello"},
		{command: []string{"cat"}, stdin: large, stdout: large},
		{command: []string{"sh", "-c", "echo one; exit 3"}, stdout: "one\n", code: 3},
		{command: []string{"ls", "-l"}, stdout: fmt.Sprintf("konverge: pod %s/web is simulated: container main did not run: ls -l\n", namespace)},
	} {
		options := &corev1.PodExecOptions{Command: test.command, Stdin: test.stdin != "", Stdout: true, Stderr: true}
		for name, executor := range executors(t, namespace, options) {
			var stdout, stderr bytes.Buffer
			streams := remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}
			if test.stdin != "" {
				streams.Stdin = strings.NewReader(test.stdin)
			}
			err := executor.StreamWithContext(t.Context(), streams)
			var exit exec.CodeExitError
			code := 0
			if errors.As(err, &exit) {
				code = exit.ExitStatus()
			} else {
				must(t, err)
			}
			if stdout.String() != test.stdout || stderr.String() != test.stderr || code != test.code {
				t.Errorf("%s %.40q: %.80q, %q, %d", name, test.command, stdout.String(), stderr.String(), code)
			}
		}
	}
}

func TestATerminalInASimulatedPod(t *testing.T) {
	if existing() {
		t.Skip("pods of another cluster are not simulated")
	}
	namespace := newNamespace(t)
	runningPod(t, namespace, nil)
	options := &corev1.PodExecOptions{Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true}
	for name, executor := range executors(t, namespace, options) {
		var stdout bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader("echo hi\rexit 5\r"), Stdout: &stdout, Tty: true, TerminalSizeQueue: &oneSize{},
		})
		var exit exec.CodeExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 5 || !strings.Contains(stdout.String(), "echo hi\r\nhi\r\n") {
			t.Errorf("%s: %v, %q", name, err, stdout.String())
		}
	}
}

type oneSize struct{ told bool }

func (size *oneSize) Next() *remotecommand.TerminalSize {
	if size.told {
		return nil
	}
	size.told = true
	return &remotecommand.TerminalSize{Width: 80, Height: 24}
}

func TestACommandEndsWithItsContainer(t *testing.T) {
	if existing() {
		t.Skip("pods of another cluster are not simulated")
	}
	namespace := newNamespace(t)
	runningPod(t, namespace, nil)
	options := &corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}
	for name, executor := range executors(t, namespace, options) {
		if name == "SPDY" {
			continue
		}
		stdin, typing := io.Pipe()
		seen, stdout := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- executor.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
		}()
		go func() { _, _ = typing.Write([]byte("hi")) }()
		_, err := io.ReadFull(seen, make([]byte, 2))
		must(t, err)
		zero := int64(0)
		must(t, typed.CoreV1().Pods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
		var exit exec.CodeExitError
		if err := <-ended; !errors.As(err, &exit) || exit.ExitStatus() != 137 {
			t.Errorf("%s: %v", name, err)
		}
		must(t, typing.Close())
	}
}

func TestForwardedPortsOfSimulatedPods(t *testing.T) {
	if existing() {
		t.Skip("pods of another cluster are not simulated")
	}
	namespace := newNamespace(t)
	runningPod(t, namespace, map[string]string{
		simulate + "http": `[{"path": "/healthz", "status": 503, "body": "down"}]`, simulate + "http-body": "hello",
	})
	url := typed.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("web").SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	must(t, err)
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(url, cfg)
	must(t, err)
	old := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", url)
	for name, dialer := range map[string]httpstream.Dialer{"SPDY": old, "WebSocket": tunnel} {
		stop, ready := make(chan struct{}), make(chan struct{})
		forwarder, err := portforward.New(dialer, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- forwarder.ForwardPorts() }()
		<-ready
		ports, err := forwarder.GetPorts()
		must(t, err)
		for path, expect := range map[string]string{"/": "200 hello", "/healthz": "503 down"} {
			response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", ports[0].Local, path))
			must(t, err)
			body, err := io.ReadAll(response.Body)
			must(t, err)
			must(t, response.Body.Close())
			if got := fmt.Sprintf("%d %s", response.StatusCode, body); got != expect {
				t.Errorf("%s %s: %s", name, path, got)
			}
		}
		close(stop)
		must(t, <-ended)
	}
}

func TestWhatAKubeletRefuses(t *testing.T) {
	if existing() {
		t.Skip("pods of another cluster are not simulated")
	}
	namespace := newNamespace(t)
	pod := runningPod(t, namespace, nil)
	options := &corev1.PodExecOptions{Command: []string{"ls"}, Stdout: true}
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	_, err := typed.CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	must(t, err)
	for name, executor := range executors(t, namespace, options) {
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), `container not found ("main")`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	options.Container = "other"
	for name, executor := range executors(t, namespace, options) {
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if !strings.Contains(fmt.Sprint(err), "container other is not valid for pod web") {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := typed.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("web").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"ls"}, Stdout: true}, scheme.ParameterCodec).Do(t.Context())
	if err := plain.Error(); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "Upgrade request required") {
		t.Errorf("without an upgrade: %v", err)
	}
}
