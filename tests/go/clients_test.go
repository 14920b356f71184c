package clients

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var labels = map[string]string{"app": "a"}

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "a", Image: "a:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		}}},
	}
}

func jobTemplate() corev1.PodTemplateSpec {
	template := podTemplate()
	template.Labels = nil
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return template
}

// kinds is one object of each kind that operators usually write; all of them travel as protobuf.
func kinds(namespace string) []client.Object {
	named := metav1.ObjectMeta{Namespace: namespace, Name: "a"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	port := intstr.FromInt32(80)
	prefix := networkingv1.PathTypePrefix
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0, 255}}},
		&corev1.Secret{ObjectMeta: named, StringData: map[string]string{"a": "b"}, Type: corev1.SecretTypeOpaque},
		&corev1.ServiceAccount{ObjectMeta: named},
		&corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.PersistentVolumeClaim{ObjectMeta: named, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}},
		&corev1.Pod{ObjectMeta: named, Spec: podTemplate().Spec},
		&appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(0)), Selector: selector, Template: podTemplate(),
		}},
		&appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{ServiceName: "a", Selector: selector, Template: podTemplate()}},
		&appsv1.DaemonSet{ObjectMeta: named, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: podTemplate()}},
		&batchv1.Job{ObjectMeta: named, Spec: batchv1.JobSpec{Template: jobTemplate()}},
		&batchv1.CronJob{ObjectMeta: named, Spec: batchv1.CronJobSpec{
			Schedule: "*/5 * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: jobTemplate()}},
		}},
		&rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "a"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a", Namespace: namespace}},
		},
		&policyv1.PodDisruptionBudget{ObjectMeta: named, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &port, Selector: selector}},
		&networkingv1.Ingress{ObjectMeta: named, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: "a.example.com",
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: &prefix,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: "a", Port: networkingv1.ServiceBackendPort{Number: 80},
				}},
			}}}},
		}}}},
		&networkingv1.NetworkPolicy{ObjectMeta: named, Spec: networkingv1.NetworkPolicySpec{PodSelector: *selector}},
	}
}

// TestKinds creates, reads, changes, lists and deletes an object of each kind with controller-runtime's client.
func TestKinds(t *testing.T) {
	namespace := newNamespace(t)
	for _, object := range kinds(namespace) {
		t.Run(strings.TrimPrefix(fmt.Sprintf("%T", object), "*"), func(t *testing.T) {
			ctx := t.Context()
			dry := object.DeepCopyObject().(client.Object)
			dry.SetName("dry")
			must(t, direct.Create(ctx, dry, client.DryRunAll))
			if err := direct.Get(ctx, client.ObjectKeyFromObject(dry), dry); !apierrors.IsNotFound(err) {
				t.Errorf("after a dry run: %v", err)
			}
			again := object.DeepCopyObject().(client.Object)
			// As in kube-apiserver, a dry run does not mind a version.
			versioned := object.DeepCopyObject().(client.Object)
			versioned.SetResourceVersion("1")
			must(t, direct.Create(ctx, versioned, client.DryRunAll))
			must(t, direct.Create(ctx, object))
			if object.GetUID() == "" || object.GetResourceVersion() == "" || object.GetCreationTimestamp().Time.IsZero() {
				t.Errorf("the answer is %+v", object)
			}
			read := object.DeepCopyObject().(client.Object)
			// Where controllers run, they write the object, too.
			must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if err := direct.Get(ctx, client.ObjectKeyFromObject(object), read); err != nil {
					return err
				}
				read.SetAnnotations(map[string]string{"changed": "yes"})
				return direct.Update(ctx, read)
			}))
			before := read.DeepCopyObject().(client.Object)
			read.SetAnnotations(map[string]string{"changed": "again"})
			must(t, direct.Patch(ctx, read, client.StrategicMergeFrom(before)))
			if read.GetAnnotations()["changed"] != "again" {
				t.Errorf("annotations are %v", read.GetAnnotations())
			}
			if err := direct.Create(ctx, again); !apierrors.IsAlreadyExists(err) {
				t.Errorf("a second create: %v", err)
			}
			must(t, direct.Delete(ctx, read, client.PropagationPolicy(metav1.DeletePropagationBackground), client.GracePeriodSeconds(0)))
			eventually(t, "it is gone", func() error {
				err := direct.Get(ctx, client.ObjectKeyFromObject(object), read)
				if apierrors.IsNotFound(err) {
					return nil
				}
				// Under envtest no controller removes the finalizers that admission adds, as to volume claims.
				if finalizers := read.GetFinalizers(); err == nil && len(finalizers) != 0 && !existing() {
					read.SetFinalizers(nil)
					err = direct.Update(ctx, read)
				}
				return fmt.Errorf("it is still there: %v", err)
			})
		})
	}
}

// TestApply uses typed server-side apply with two managers.
func TestApply(t *testing.T) {
	namespace := newNamespace(t)
	ctx := t.Context()
	deployments := typed.AppsV1().Deployments(namespace)
	container := func(image string) *appsapply.DeploymentApplyConfiguration {
		return appsapply.Deployment("a", namespace).WithSpec(appsapply.DeploymentSpec().
			WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(
				coreapply.PodSpec().WithContainers(coreapply.Container().WithName("a").WithImage(image)))))
	}
	_, err := deployments.Apply(ctx, container("a:1"), metav1.ApplyOptions{FieldManager: "one"})
	must(t, err)
	_, err = deployments.Apply(ctx, container("a:2"), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one"`) {
		t.Errorf("a second manager: %v", err)
	}
	forced, err := deployments.Apply(ctx, container("a:2"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	must(t, err)
	extracted, err := appsapply.ExtractDeployment(forced, "two")
	must(t, err)
	if image := extracted.Spec.Template.Spec.Containers[0].Image; image == nil || *image != "a:2" {
		t.Errorf("extracted %+v", extracted.Spec.Template.Spec.Containers)
	}
	status, err := deployments.ApplyStatus(ctx, appsapply.Deployment("a", namespace).WithStatus(
		appsapply.DeploymentStatus().WithObservedGeneration(7)), metav1.ApplyOptions{FieldManager: "status", Force: true})
	must(t, err)
	if status.Status.ObservedGeneration != 7 || status.Generation != forced.Generation {
		t.Errorf("status %+v, generation %d", status.Status, status.Generation)
	}
}

// TestSubresources uses scale, status, eviction and binding with their own types.
func TestSubresources(t *testing.T) {
	namespace := newNamespace(t)
	ctx := t.Context()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(),
	}}
	deployments := typed.AppsV1().Deployments(namespace)
	_, err := deployments.Create(ctx, deployment, metav1.CreateOptions{})
	must(t, err)
	scale, err := deployments.GetScale(ctx, "a", metav1.GetOptions{})
	must(t, err)
	if scale.Status.Selector != "app=a" || scale.Spec.Replicas != 0 {
		t.Errorf("scale is %+v %+v", scale.Spec, scale.Status)
	}
	scale, err = deployments.UpdateScale(ctx, "a", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 2},
	}, metav1.UpdateOptions{})
	must(t, err)
	if scale.Spec.Replicas != 2 {
		t.Errorf("scale is %+v", scale.Spec)
	}
	pods := typed.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Spec: podTemplate().Spec}, metav1.CreateOptions{})
	must(t, err)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if !existing() {
		pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		must(t, err)
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("status is %+v", pod.Status)
		}
	}
	must(t, pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "bare", Namespace: namespace}}))
	if _, err := pods.Patch(ctx, "missing", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a patch of nothing: %v", err)
	}
}

// TestLists reads lists in pages, with selectors, and deletes a collection.
func TestLists(t *testing.T) {
	namespace := newNamespace(t)
	ctx := t.Context()
	// No controller writes secrets.
	secrets := typed.CoreV1().Secrets(namespace)
	for i := range 25 {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("secret-%02d", i), Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)},
		}}
		_, err := secrets.Create(ctx, object, metav1.CreateOptions{})
		must(t, err)
	}
	page, err := secrets.List(ctx, metav1.ListOptions{Limit: 10})
	must(t, err)
	if len(page.Items) != 10 || page.Continue == "" || page.RemainingItemCount == nil || *page.RemainingItemCount != 15 {
		t.Errorf("%d items, continue %q, remaining %v", len(page.Items), page.Continue, page.RemainingItemCount)
	}
	names := []string{}
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (object runtime.Object, err error) {
		return secrets.List(ctx, options)
	}))
	pages.PageSize = 7
	must(t, pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		names = append(names, object.(*corev1.Secret).Name)
		return nil
	}))
	if len(names) != 25 || names[24] != "secret-24" {
		t.Errorf("names are %v", names)
	}
	odd, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: "odd=true"})
	must(t, err)
	one, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=secret-03"})
	must(t, err)
	if len(odd.Items) != 12 || len(one.Items) != 1 {
		t.Errorf("%d odd, %d named", len(odd.Items), len(one.Items))
	}
	must(t, secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=true"}))
	rest, err := secrets.List(ctx, metav1.ListOptions{})
	must(t, err)
	even := 0
	for _, item := range rest.Items {
		if item.Labels["odd"] == "false" {
			even++
		}
		if item.Labels["odd"] == "true" {
			t.Errorf("%s is still there", item.Name)
		}
	}
	if even != 13 {
		t.Errorf("%d even ones are left", even)
	}
}

// TestDiscovery reads what there is, as clients do before they map kinds to resources.
func TestDiscovery(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	must(t, err)
	version, err := client.ServerVersion()
	must(t, err)
	if version.Major != "1" || version.Minor != "36" {
		t.Errorf("version is %+v", version)
	}
	_, lists, err := client.ServerGroupsAndResources()
	must(t, err)
	if len(lists) < 20 {
		t.Errorf("%d lists of resources", len(lists))
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	for kind, expect := range map[string]string{"Site": "sites", "Deployment": "deployments"} {
		group := map[string]string{"Site": "demo.example.com", "Deployment": "apps"}[kind]
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, "v1")
		must(t, err)
		if mapping.Resource.Resource != expect || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			t.Errorf("%s is %+v", kind, mapping)
		}
	}
	paths, err := client.OpenAPIV3().Paths()
	must(t, err)
	if _, ok := paths["apis/demo.example.com/v1"]; !ok {
		t.Errorf("OpenAPI v3 has no document of the custom resource")
	}
	body, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
	must(t, err)
	if string(body) != "ok" {
		t.Errorf("/readyz says %q", body)
	}
}
