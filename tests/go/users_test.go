package clients

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestOwnService looks for the service by which programs in a cluster reach the server.
func TestOwnService(t *testing.T) {
	if existing() {
		t.Skip("the service is that of envtest's server")
	}
	service, err := typed.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	must(t, err)
	if port := service.Spec.Ports[0]; port.Name != "https" || port.Port != 443 || service.Spec.ClusterIP == "" {
		t.Errorf("the service is %+v", service.Spec)
	}
}

// TestUsers is about who a client is and what roles let it do: a user by AddUser, nobody, and somebody who is not believed.
func TestUsers(t *testing.T) {
	if existing() {
		t.Skip("users are those of envtest")
	}
	alice, err := environment.AddUser(envtest.User{Name: "alice", Groups: []string{"developers"}}, nil)
	must(t, err)
	clients, err := kubernetes.NewForConfig(alice.Config())
	must(t, err)
	_, err = clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	denied := `pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default"`
	if !apierrors.IsForbidden(err) || err.Error() != denied {
		t.Errorf("alice without a role: %v", err)
	}
	_, err = typed.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = typed.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "developers-read"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "readers"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "developers"}},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "alice with a role", func() error {
		_, err := clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		return err
	})

	anonymous := rest.AnonymousClientConfig(cfg)
	clients, err = kubernetes.NewForConfig(anonymous)
	must(t, err)
	_, err = clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	expect := `pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" in the namespace "default"`
	if !apierrors.IsForbidden(err) || err.Error() != expect {
		t.Errorf("nobody: %v", err)
	}
	if _, err := clients.Discovery().ServerVersion(); err != nil {
		t.Errorf("everybody may read the version: %v", err)
	}

	stranger := rest.AnonymousClientConfig(cfg)
	stranger.BearerToken = "nonsense"
	clients, err = kubernetes.NewForConfig(stranger)
	must(t, err)
	if _, err = clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that nobody gave: %v", err)
	}

	kubectl, err := alice.Kubectl()
	must(t, err)
	out, _, err := kubectl.Run("get", "namespaces", "-o", "name")
	must(t, err)
	text := new(strings.Builder)
	buffer := make([]byte, 4096)
	for n, err := out.Read(buffer); err == nil; n, err = out.Read(buffer) {
		text.Write(buffer[:n])
	}
	if !strings.Contains(text.String(), "namespace/kube-system\n") {
		t.Errorf("kubectl says %q", text)
	}
}
