// The decisions of Kubernetes' own Node authorizer about random objects and requests. In: a seed and how many worlds. Out: a line
// of JSON for each world: the objects in the order in which they are written, which of them are deleted again, what is asked, and
// the answers.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"k8s.io/utils/ptr"
)

// A World is what is written, and questions about it.
type World struct {
	Steps     []*Step     `json:"steps"`
	Questions []*Question `json:"questions"`
}

// A Step writes an object, or deletes the one of this name.
type Step struct {
	Plural string `json:"plural"`
	Object any    `json:"object"`
	Delete bool   `json:"delete"`
}

// A Question is whether a node may do something.
type Question struct {
	User        string   `json:"user"`
	Groups      []string `json:"groups"`
	Verb        string   `json:"verb"`
	Path        string   `json:"path,omitempty"`
	Group       string   `json:"group,omitempty"`
	Resource    string   `json:"resource,omitempty"`
	Subresource string   `json:"subresource,omitempty"`
	Namespace   string   `json:"namespace,omitempty"`
	Name        string   `json:"name,omitempty"`
	Fields      string   `json:"fields,omitempty"`
	Allowed     bool     `json:"allowed"`
	Reason      string   `json:"reason"`
}

var (
	nodes      = []string{"one", "two"}
	namespaces = []string{"red", "blue"}
	names      = []string{"a", "b"}
	verbs      = []string{"get", "get", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	kinds      = [][2]string{
		{"", "secrets"}, {"", "secrets"}, {"", "secrets"}, {"", "secrets"}, {"", "configmaps"}, {"", "configmaps"}, {"", "configmaps"},
		{"", "persistentvolumeclaims"}, {"", "persistentvolumeclaims"}, {"", "persistentvolumes"}, {"", "persistentvolumes"},
		{"", "serviceaccounts"}, {"", "serviceaccounts"}, {"resource.k8s.io", "resourceclaims"}, {"storage.k8s.io", "volumeattachments"},
		{"resource.k8s.io", "resourceslices"}, {"", "pods"}, {"", "pods"}, {"", "nodes"}, {"", "events"}, {"", "services"},
		{"resource.k8s.io", "resourceclaims"}, {"resource.k8s.io", "resourceslices"}, {"storage.k8s.io", "volumeattachments"},
		{"storage.k8s.io", "csinodes"}, {"storage.k8s.io", "csidrivers"}, {"coordination.k8s.io", "leases"},
		{"certificates.k8s.io", "podcertificaterequests"}, {"certificates.k8s.io", "certificatesigningrequests"},
		{"authentication.k8s.io", "tokenreviews"}, {"apps", "deployments"},
	}
	subresources = []string{"status", "token", "eviction", "binding"}
)

func one(r *rand.Rand, list []string) string { return list[r.Intn(len(list))] }

func secretRef(r *rand.Rand) *corev1.LocalObjectReference {
	return &corev1.LocalObjectReference{Name: one(r, names)}
}

func volume(r *rand.Rand, at int) corev1.Volume {
	v := corev1.Volume{Name: fmt.Sprintf("v%d", at)}
	switch r.Intn(12) {
	case 0:
		v.Secret = &corev1.SecretVolumeSource{SecretName: one(r, names)}
	case 1:
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: *secretRef(r)}
	case 2:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: *secretRef(r)}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *secretRef(r)}},
		}}
	case 3, 4, 5:
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: one(r, names)}
	case 6:
		v.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
			},
		}}
	case 7:
		v.CSI = &corev1.CSIVolumeSource{Driver: "csi.example.com", NodePublishSecretRef: secretRef(r)}
	case 8:
		v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: one(r, names), ShareName: "share"}
	case 9:
		v.ISCSI = &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2015-02.example.com:test", SecretRef: secretRef(r)}
	case 10:
		v.FlexVolume = &corev1.FlexVolumeSource{Driver: "example.com/flex", SecretRef: secretRef(r)}
	default:
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	return v
}

func pod(r *rand.Rand, namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if r.Intn(6) > 0 {
		p.Spec.NodeName = one(r, nodes)
	}
	if p.Spec.NodeName != "" && r.Intn(10) == 0 {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "m"}
	}
	container := corev1.Container{Name: "c", Image: "i"}
	if r.Intn(3) == 0 {
		container.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *secretRef(r)}}}
	}
	if r.Intn(3) == 0 {
		container.Env = []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: *secretRef(r), Key: "k"}}}}
	}
	p.Spec.Containers = []corev1.Container{container}
	if r.Intn(4) == 0 {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: *secretRef(r)}}}}}
	}
	if r.Intn(4) == 0 {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{*secretRef(r)}
	}
	if r.Intn(2) == 0 {
		p.Spec.ServiceAccountName = one(r, names)
	}
	for at := range r.Intn(4) {
		p.Spec.Volumes = append(p.Spec.Volumes, volume(r, at))
	}
	if r.Intn(3) == 0 {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "claim", ResourceClaimName: ptr.To(one(r, names))}}
	}
	return p
}

func persistentVolume(r *rand.Rand, name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.Capacity = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	ref := func() *corev1.SecretReference {
		made := &corev1.SecretReference{Name: one(r, names), Namespace: one(r, namespaces)}
		return made
	}
	switch r.Intn(4) {
	case 0:
		pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
	case 1:
		azure := &corev1.AzureFilePersistentVolumeSource{SecretName: one(r, names), ShareName: "share"}
		if r.Intn(2) == 0 {
			azure.SecretNamespace = ptr.To(one(r, namespaces))
		}
		pv.Spec.AzureFile = azure
	case 2:
		pv.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2015-02.example.com:test", SecretRef: ref()}
		if r.Intn(2) == 0 {
			pv.Spec.ISCSI.SecretRef.Namespace = ""
		}
	default:
		csi := &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: name}
		switch r.Intn(4) {
		case 0:
			csi.NodePublishSecretRef = ref()
		case 1:
			csi.NodeStageSecretRef = ref()
		case 2:
			csi.ControllerPublishSecretRef = ref()
		default:
			csi.NodeExpandSecretRef = ref()
		}
		pv.Spec.CSI = csi
	}
	if r.Intn(5) > 0 {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: one(r, namespaces), Name: one(r, names)}
	}
	return pv
}

func world(r *rand.Rand) *World {
	w := &World{}
	graph := node.NewGraph()
	write := func(plural string, object any) { w.Steps = append(w.Steps, &Step{Plural: plural, Object: object}) }
	remove := func(plural string, object any) {
		w.Steps = append(w.Steps, &Step{Plural: plural, Object: object, Delete: true})
	}
	var pods []*corev1.Pod
	var volumes []*corev1.PersistentVolume
	deletePod := func(at int) {
		p := pods[at]
		pods = append(pods[:at:at], pods[at+1:]...)
		remove("pods", p)
		if p.Spec.NodeName != "" {
			graph.DeletePod(p.Name, p.Namespace)
		}
	}
	for at := range 10 + r.Intn(15) {
		switch r.Intn(8) {
		case 0, 1:
			pv := persistentVolume(r, fmt.Sprintf("pv%d", at))
			volumes = append(volumes, pv)
			write("persistentvolumes", pv)
			graph.AddPV(pv)
		case 2:
			va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("va%d", at)}}
			va.Spec = storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: one(r, nodes),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}}
			write("volumeattachments", va)
			graph.AddVolumeAttachment(va.Name, va.Spec.NodeName)
		case 3:
			slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slice%d", at)}}
			slice.Spec = resourcev1.ResourceSliceSpec{Driver: "dra.example.com", NodeName: ptr.To(one(r, nodes)),
				Pool: resourcev1.ResourcePool{Name: "pool", Generation: 1, ResourceSliceCount: 1}}
			write("resourceslices", slice)
			graph.AddResourceSlice(slice.Name, *slice.Spec.NodeName)
		default:
			p := pod(r, one(r, namespaces), fmt.Sprintf("pod%d", at))
			pods = append(pods, p)
			write("pods", p)
			if p.Spec.NodeName != "" {
				graph.AddPod(p)
			}
		}
		if len(pods) > 0 && r.Intn(6) == 0 {
			deletePod(r.Intn(len(pods)))
		}
		if len(volumes) > 0 && r.Intn(8) == 0 {
			at := r.Intn(len(volumes))
			remove("persistentvolumes", volumes[at])
			graph.DeletePV(volumes[at].Name)
			volumes = append(volumes[:at:at], volumes[at+1:]...)
		}
	}
	decides := node.NewAuthorizer(graph, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
	for range 60 {
		q := &Question{Verb: one(r, verbs), User: "system:node:" + one(r, nodes), Groups: []string{"system:nodes"}}
		switch r.Intn(30) {
		case 0:
			q.Groups = []string{"dev"}
		case 1:
			q.User = "alice"
		case 2:
			q.User = "system:node:"
		}
		if r.Intn(25) == 0 {
			q.Path = one(r, []string{"/healthz", "/metrics", "/version"})
		} else {
			kind := kinds[r.Intn(len(kinds))]
			q.Group, q.Resource = kind[0], kind[1]
			// Mostly what a kubelet could mean, or there would be little to allow.
			switch r.Intn(12) {
			case 0:
				q.Subresource = one(r, subresources)
			case 1, 2, 3, 4, 5, 6, 7:
				switch q.Resource {
				case "serviceaccounts":
					q.Verb, q.Subresource = "create", "token"
				case "persistentvolumeclaims":
					q.Verb, q.Subresource = one(r, []string{"update", "patch"}), "status"
				case "pods":
					q.Verb = one(r, []string{"get", "list", "watch"})
				default:
					q.Verb = "get"
				}
			}
			q.Namespace = one(r, append(namespaces, namespaces[0], namespaces[1], ""))
			number := r.Intn(25)
			switch q.Resource {
			case "pods":
				q.Name = fmt.Sprintf("pod%d", number)
			case "persistentvolumes", "volumeattachments", "resourceslices", "nodes", "csinodes":
				prefix := map[string]string{"persistentvolumes": "pv", "volumeattachments": "va", "resourceslices": "slice"}[q.Resource]
				q.Name = fmt.Sprintf("%s%d", prefix, number)
				if prefix == "" {
					q.Name = one(r, nodes)
				}
				if r.Intn(8) > 0 {
					q.Namespace = ""
				}
			case "leases":
				q.Name = one(r, nodes)
				if r.Intn(2) == 0 {
					q.Namespace = "kube-node-lease"
				}
			case "persistentvolumeclaims":
				q.Name = one(r, append(names, fmt.Sprintf("pod%d-v%d", number, r.Intn(3))))
			default:
				q.Name = one(r, names)
			}
			// The name of an object that is there, or was.
			written := []metav1.Object{}
			for _, step := range w.Steps {
				if step.Plural == q.Resource {
					written = append(written, step.Object.(metav1.Object))
				}
			}
			if len(written) > 0 && r.Intn(4) > 0 {
				meta := written[r.Intn(len(written))]
				q.Namespace, q.Name = meta.GetNamespace(), meta.GetName()
			}
			if r.Intn(8) == 0 {
				q.Name = ""
			}
			if r.Intn(3) == 0 {
				q.Fields = one(r, []string{"spec.nodeName=one", "spec.nodeName=two", "spec.nodeName!=one", "metadata.name=a",
					"spec.nodeName=one,spec.nodeName=two", "spec.nodeName==two"})
			}
		}
		asked := authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: q.User, Groups: q.Groups}, Verb: q.Verb, Path: q.Path, APIGroup: q.Group, APIVersion: "v1",
			Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, ResourceRequest: q.Path == "",
		}
		if q.Fields != "" {
			asked.FieldSelectorRequirements = fields.ParseSelectorOrDie(q.Fields).Requirements()
		}
		decision, reason, err := decides.Authorize(context.Background(), asked)
		if err != nil || decision == authorizer.DecisionDeny {
			panic(fmt.Sprint(decision, err))
		}
		q.Allowed, q.Reason = decision == authorizer.DecisionAllow, reason
		w.Questions = append(w.Questions, q)
	}
	return w
}

func main() {
	seed := flag.Int64("seed", 1, "where the random numbers begin")
	worlds := flag.Int("worlds", 200, "how many worlds")
	flag.Parse()
	r := rand.New(rand.NewSource(*seed))
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for range *worlds {
		if err := out.Encode(world(r)); err != nil {
			panic(err)
		}
	}
}
