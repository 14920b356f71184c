// The oracle of `cargo xtask validation`: what the registries of Kubernetes itself say of an object. In: JSON lines with an
// object, and the object before it for an update. Out: a JSON line for each, with the errors of the strategy of its kind, or
// why it cannot be decoded. Feature gates are at their defaults.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/registry/apiservice"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
)

type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// Nobody is authorized here, so that no kind has to be resolved either; but there has to be somebody who could.
var unasked = resolver.ResourceResolverFunc(func(schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{}, errors.New("not resolved")
})

// Strategies by kind and subresource; kinds are unique among the groups that are asked about, except Event.
var strategies = map[string]strategy{
	"ConfigMap":                        configmap.Strategy,
	"Endpoints":                        endpoint.Strategy,
	"Event":                            event.Strategy,
	"LimitRange":                       limitrange.Strategy,
	"Namespace":                        namespace.Strategy,
	"Node":                             node.Strategy,
	"PersistentVolume":                 persistentvolume.Strategy,
	"PersistentVolumeClaim":            persistentvolumeclaim.Strategy,
	"Pod":                              pod.Strategy,
	"PodTemplate":                      podtemplate.Strategy,
	"ReplicationController":            replicationcontroller.Strategy,
	"ResourceQuota":                    resourcequota.Strategy,
	"Secret":                           secret.Strategy,
	"Service":                          service.Strategy,
	"ServiceAccount":                   serviceaccount.Strategy,
	"ControllerRevision":               controllerrevision.Strategy,
	"DaemonSet":                        daemonset.Strategy,
	"Deployment":                       deployment.Strategy,
	"ReplicaSet":                       replicaset.Strategy,
	"StatefulSet":                      statefulset.Strategy,
	"HorizontalPodAutoscaler":          horizontalpodautoscaler.Strategy,
	"CronJob":                          cronjob.Strategy,
	"Job":                              job.Strategy,
	"CertificateSigningRequest":        certificates.Strategy,
	"Lease":                            lease.Strategy,
	"EndpointSlice":                    endpointslice.Strategy,
	"FlowSchema":                       flowschema.Strategy,
	"PriorityLevelConfiguration":       prioritylevelconfiguration.Strategy,
	"Ingress":                          ingress.Strategy,
	"IngressClass":                     ingressclass.Strategy,
	"IPAddress":                        ipaddress.Strategy,
	"NetworkPolicy":                    networkpolicy.Strategy,
	"ServiceCIDR":                      servicecidr.Strategy,
	"RuntimeClass":                     runtimeclass.Strategy,
	"PodDisruptionBudget":              poddisruptionbudget.Strategy,
	"ClusterRole":                      clusterrole.Strategy,
	"ClusterRoleBinding":               clusterrolebinding.Strategy,
	"Role":                             role.Strategy,
	"RoleBinding":                      rolebinding.Strategy,
	"DeviceClass":                      deviceclass.Strategy,
	"ResourceSlice":                    resourceslice.Strategy,
	"PriorityClass":                    priorityclass.Strategy,
	"CSIDriver":                        csidriver.Strategy,
	"CSINode":                          csinode.Strategy,
	"CSIStorageCapacity":               csistoragecapacity.Strategy,
	"StorageClass":                     storageclass.Strategy,
	"VolumeAttachment":                 volumeattachment.Strategy,
	"VolumeAttributesClass":            volumeattributesclass.Strategy,
	"APIService":                       apiservice.NewStrategy(aggregatorscheme.Scheme),
	"MutatingWebhookConfiguration":     mutatingwebhookconfiguration.Strategy,
	"ValidatingWebhookConfiguration":   validatingwebhookconfiguration.Strategy,
	"ValidatingAdmissionPolicy":        validatingadmissionpolicy.NewStrategy(nil, nil),
	"ValidatingAdmissionPolicyBinding": validatingadmissionpolicybinding.NewStrategy(nil, nil, unasked),
	"MutatingAdmissionPolicy":          mutatingadmissionpolicy.NewStrategy(nil, nil),
	"MutatingAdmissionPolicyBinding":   mutatingadmissionpolicybinding.NewStrategy(nil, nil, unasked),
}

type question struct {
	Object json.RawMessage `json:"object"`
	Old    json.RawMessage `json:"old,omitempty"`
}

type answer struct {
	// Why an object cannot be decoded or is refused without field errors.
	Refused string `json:"refused,omitempty"`
	// Field errors, one text for each: path, message.
	Errors []string `json:"errors,omitempty"`
}

func main() {
	klog.SetOutput(os.Stderr)
	klog.LogToStderr(false)
	capabilities.Setup(true, 0)
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if err := encoder.Encode(ask(line)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out.Flush()
	}
}

func ask(line []byte) (result answer) {
	defer func() {
		if failure := recover(); failure != nil {
			result = answer{Refused: fmt.Sprintf("panic: %v", failure)}
		}
	}()
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Refused: err.Error()}
	}
	object, kind, err := decode(asked.Object)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	strategy, known := strategies[kind.Kind]
	if !known {
		return answer{Refused: "unknown kind " + kind.Kind}
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	info := &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: kind.Group, APIVersion: kind.Version,
		Namespace: accessor.GetNamespace(), Name: accessor.GetName(),
	}
	context := genericapirequest.WithRequestInfo(genericapirequest.NewContext(), info)
	context = genericapirequest.WithNamespace(context, accessor.GetNamespace())
	accessor.SetUID(types.UID("u"))
	accessor.SetCreationTimestamp(metav1.Now())
	if asked.Old == nil {
		return answerOf(rest.BeforeCreate(strategy, context, object))
	}
	info.Verb = "update"
	old, _, err := decode(asked.Old)
	if err != nil {
		return answer{Refused: "old: " + err.Error()}
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	before.SetUID(types.UID("u"))
	before.SetCreationTimestamp(accessor.GetCreationTimestamp())
	before.SetResourceVersion("1")
	accessor.SetResourceVersion("1")
	// A pod gets a merged selector at its creation, which nobody sends here.
	if kind.Kind != "Pod" {
		prepare(context, strategy, old)
	}
	return answerOf(rest.BeforeUpdate(strategy, context, object, old))
}

// prepare gives the object before an update what its creation gave it.
func prepare(context context.Context, strategy strategy, object runtime.Object) {
	strategy.PrepareForCreate(context, object)
	strategy.Canonicalize(object)
}

func decode(raw []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := legacyscheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return aggregatorscheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	}
	return object, kind, err
}

func answerOf(err error) answer {
	if err == nil {
		return answer{}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return answer{Refused: err.Error()}
	}
	var texts []string
	for _, cause := range status.Status().Details.Causes {
		texts = append(texts, cause.Field+": "+cause.Message)
	}
	return answer{Errors: texts}
}
