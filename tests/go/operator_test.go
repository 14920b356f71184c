package clients

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// startOperator runs the operator on one namespace until the test ends.
func startOperator(t *testing.T, namespace, identity string) (elected <-chan struct{}, stop func()) {
	t.Helper()
	yes := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                       server.Options{BindAddress: "0"},
		Controller:                    config.Controller{SkipNameValidation: &yes},
		LeaderElection:                true,
		LeaderElectionID:              "sites.demo.example.com",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr(5 * time.Second),
		RenewDeadline:                 ptr(4 * time.Second),
		RetryPeriod:                   ptr(200 * time.Millisecond),
	})
	must(t, err)
	must(t, (&Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(identity)}).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager %s ended with an error: %v", identity, err)
		}
	}
	t.Cleanup(stop)
	return mgr.Elected(), stop
}

func TestOperator(t *testing.T) {
	namespace := newNamespace(t)
	elected, _ := startOperator(t, namespace, "one")
	<-elected
	ctx := t.Context()
	key := types.NamespacedName{Namespace: namespace, Name: "web"}
	site := &Site{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: SiteSpec{Image: "nginx:1"}}
	must(t, direct.Create(ctx, site))
	if site.Spec.Replicas == nil || *site.Spec.Replicas != 1 {
		t.Errorf("the default of the definition is missing: %+v", site.Spec)
	}

	deployment := &appsv1.Deployment{}
	eventually(t, "a deployment and a status", func() error {
		if err := direct.Get(ctx, key, deployment); err != nil {
			return err
		}
		if err := direct.Get(ctx, key, site); err != nil {
			return err
		}
		if !site.Status.Ready || site.Status.ObservedGeneration != site.Generation {
			return fmt.Errorf("status is %+v", site.Status)
		}
		return nil
	})
	owner := metav1.GetControllerOf(deployment)
	if owner == nil || owner.UID != site.UID || owner.Kind != "Site" {
		t.Errorf("the deployment's owner is %+v", owner)
	}
	if !slices.Contains(site.Finalizers, finalizer) {
		t.Errorf("finalizers are %v", site.Finalizers)
	}
	if got := deployment.Spec.Template.Spec.Containers[0]; got.Image != "nginx:1" || got.ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("the container is %+v", got)
	}

	// A change of the spec reaches the deployment, and the status names the generation.
	site.Spec.Image, site.Spec.Replicas = "nginx:2", ptr(int32(3))
	must(t, direct.Update(ctx, site))
	eventually(t, "the new image", func() error {
		if err := direct.Get(ctx, key, deployment); err != nil {
			return err
		}
		if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "nginx:2" || *deployment.Spec.Replicas != 3 {
			return fmt.Errorf("image %s, replicas %d", image, *deployment.Spec.Replicas)
		}
		return nil
	})

	// An owned object that somebody deletes or changes comes back.
	must(t, direct.Delete(ctx, deployment))
	eventually(t, "the deployment again", func() error {
		again := &appsv1.Deployment{}
		if err := direct.Get(ctx, key, again); err != nil {
			return err
		}
		if again.UID == deployment.UID {
			return fmt.Errorf("still the old one")
		}
		return nil
	})
	child := &corev1.ConfigMap{}
	must(t, direct.Get(ctx, key, child))
	child.Data["image"] = "other"
	must(t, direct.Update(ctx, child))
	eventually(t, "the config map as it was", func() error {
		if err := direct.Get(ctx, key, child); err != nil {
			return err
		}
		if child.Data["image"] != "nginx:2" {
			return fmt.Errorf("data is %v", child.Data)
		}
		return nil
	})

	// The event of the first deployment.
	eventually(t, "an event", func() error {
		list := &eventsv1.EventList{}
		if err := direct.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Reason == "Created" && event.Regarding.Name == "web" && event.Regarding.Kind == "Site" {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them is it", len(list.Items))
	})

	// What the schema refuses, and a stale write.
	bad := &Site{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bad"}}
	if err := direct.Create(ctx, bad); !apierrors.IsInvalid(err) {
		t.Errorf("a site without an image: %v", err)
	}
	must(t, direct.Get(ctx, key, site))
	stale := site.DeepCopyObject().(*Site)
	site.Labels = map[string]string{"a": "b"}
	must(t, direct.Update(ctx, site))
	stale.Labels = map[string]string{"a": "c"}
	if err := direct.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("a stale write: %v", err)
	}

	// The finalizer runs before the site goes.
	must(t, direct.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "record-web"}, &corev1.ConfigMap{}))
	must(t, direct.Delete(ctx, site))
	eventually(t, "the site gone", func() error {
		if err := direct.Get(ctx, key, &Site{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %v", err)
		}
		return nil
	})
	if err := direct.Get(ctx, client.ObjectKeyFromObject(record(site)), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("the record is still there: %v", err)
	}
}

func TestLeaderElection(t *testing.T) {
	namespace := newNamespace(t)
	one, stopOne := startOperator(t, namespace, "one")
	<-one
	two, _ := startOperator(t, namespace, "two")
	ctx := t.Context()
	lease, err := typed.CoordinationV1().Leases(namespace).Get(ctx, "sites.demo.example.com", metav1.GetOptions{})
	must(t, err)
	first := *lease.Spec.HolderIdentity
	select {
	case <-two:
		t.Fatal("two leaders")
	case <-time.After(time.Second):
	}
	// The first releases the lease, and the second does its work.
	stopOne()
	<-two
	lease, err = typed.CoordinationV1().Leases(namespace).Get(ctx, "sites.demo.example.com", metav1.GetOptions{})
	must(t, err)
	if second := *lease.Spec.HolderIdentity; second == first || *lease.Spec.LeaseTransitions < 1 {
		t.Errorf("the lease is %+v", lease.Spec)
	}
	must(t, direct.Create(ctx, &Site{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: SiteSpec{Image: "a"}}))
	eventually(t, "a deployment of the second leader", func() error {
		return direct.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "web"}, &appsv1.Deployment{})
	})
	must(t, direct.DeleteAllOf(ctx, &Site{}, client.InNamespace(namespace)))
	eventually(t, "no site", func() error {
		list := &SiteList{}
		if err := direct.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(list.Items) != 0 {
			return fmt.Errorf("%d sites", len(list.Items))
		}
		return nil
	})
}

func ptr[T any](value T) *T { return &value }
