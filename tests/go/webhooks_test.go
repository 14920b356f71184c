package clients

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// siteWebhook labels sites, and refuses those with many replicas.
type siteWebhook struct{}

func (siteWebhook) Default(_ context.Context, site *Site) error {
	if site.Labels == nil {
		site.Labels = map[string]string{"team": "unknown"}
	}
	return nil
}

func (siteWebhook) ValidateCreate(_ context.Context, site *Site) (admission.Warnings, error) {
	if replicas := site.Spec.Replicas; replicas != nil && *replicas > 100 {
		return admission.Warnings{"that is a lot"}, fmt.Errorf("%d replicas are too many", *replicas)
	}
	return nil, nil
}

func (w siteWebhook) ValidateUpdate(ctx context.Context, _, site *Site) (admission.Warnings, error) {
	return w.ValidateCreate(ctx, site)
}

func (siteWebhook) ValidateDelete(context.Context, *Site) (admission.Warnings, error) {
	return nil, nil
}

// siteRule is for sites of one namespace, so that other tests do not depend on this one.
func siteRule() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{GroupVersion.Group}, APIVersions: []string{"v1"}, Resources: []string{"sites"}},
	}}
}

// A webhook as people write it with controller-runtime is called, with what envtest does to its configuration.
func TestWebhooks(t *testing.T) {
	if existing() {
		t.Skip("the server does not reach this machine")
	}
	namespace := newNamespace(t)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	effects := ptr(admissionv1.SideEffectClassNone)
	service := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace, Name: "webhook", Path: &path}}
	}
	options := envtest.WebhookInstallOptions{
		MutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Webhooks: []admissionv1.MutatingWebhook{{
				Name: "default.sites.example.com", Rules: siteRule(), NamespaceSelector: selector, SideEffects: effects,
				ClientConfig: service("/mutate-demo-example-com-v1-site"), AdmissionReviewVersions: []string{"v1"},
			}},
		}},
		ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "validate.sites.example.com", Rules: siteRule(), NamespaceSelector: selector, SideEffects: effects,
				ClientConfig: service("/validate-demo-example-com-v1-site"), AdmissionReviewVersions: []string{"v1"},
			}},
		}},
	}
	must(t, options.Install(cfg))
	t.Cleanup(func() { must(t, options.Cleanup()) })
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	must(t, err)
	must(t, ctrl.NewWebhookManagedBy(mgr, &Site{}).WithDefaulter(siteWebhook{}).WithValidator(siteWebhook{}).Complete())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})

	site := func(name string, replicas *int32) *Site {
		return &Site{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec:       SiteSpec{Image: "nginx", Replicas: replicas},
		}
	}
	made := site("a", nil)
	// The server refuses until the webhook listens.
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := direct.Create(t.Context(), made)
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "connect: connection refused") || time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
	if made.Labels["team"] != "unknown" {
		t.Errorf("the webhook sets a label, and the site has %v", made.Labels)
	}
	made.Spec.Replicas = ptr(int32(101))
	for _, err := range []error{direct.Create(t.Context(), site("b", ptr(int32(101)))), direct.Update(t.Context(), made)} {
		want := `admission webhook "validate.sites.example.com" denied the request: 101 replicas are too many`
		if !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
