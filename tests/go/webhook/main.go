// A webhook server as people write it with controller-runtime, for the benchmark of webhooks: it refuses Pods whose images have no
// tag, or the tag "latest", and labels Pods.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type podWebhook struct{}

// Default labels a Pod.
func (podWebhook) Default(_ context.Context, pod *corev1.Pod) error {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels["example.com/reviewed"] = "true"
	return nil
}

// ValidateCreate refuses images that may change under the same name.
func (podWebhook) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	for _, container := range pod.Spec.Containers {
		name := container.Image[strings.LastIndex(container.Image, "/")+1:]
		if _, tag, found := strings.Cut(name, ":"); !found || tag == "latest" {
			return nil, fmt.Errorf("%s must have a tag other than latest", container.Image)
		}
	}
	return nil, nil
}

// ValidateUpdate is the same for a Pod that changes.
func (w podWebhook) ValidateUpdate(ctx context.Context, _, pod *corev1.Pod) (admission.Warnings, error) {
	return w.ValidateCreate(ctx, pod)
}

// ValidateDelete lets every Pod go.
func (podWebhook) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

func main() {
	port := flag.Int("port", 0, "the port of 127.0.0.1")
	certDir := flag.String("cert-dir", "", "the directory with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(klog.NewKlogr())
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certDir})
	server.Register("/validate--v1-pod", admission.WithValidator[*corev1.Pod](scheme, podWebhook{}))
	server.Register("/mutate--v1-pod", admission.WithDefaulter[*corev1.Pod](scheme, podWebhook{}))
	if err := server.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
