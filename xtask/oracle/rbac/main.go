// The decisions of Kubernetes' own RBAC authorizer about random roles, bindings and requests. In: a seed and how many worlds.
// Out: a line of JSON for each world: its objects, what is asked, and the answers.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

// A World is a set of objects with questions about them.
type World struct {
	ClusterRoles        []*rbacv1.ClusterRole        `json:"clusterRoles"`
	Roles               []*rbacv1.Role               `json:"roles"`
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding `json:"clusterRoleBindings"`
	RoleBindings        []*rbacv1.RoleBinding        `json:"roleBindings"`
	Questions           []*Question                  `json:"questions"`
	Grants              []*Grant                     `json:"grants"`
}

// A Question is whether somebody may do something.
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
	Allowed     bool     `json:"allowed"`
}

// A Grant is whether somebody may give rules to others in a namespace; the refusal is empty if so.
type Grant struct {
	User      string              `json:"user"`
	Groups    []string            `json:"groups"`
	Namespace string              `json:"namespace"`
	Rules     []rbacv1.PolicyRule `json:"rules"`
	Refusal   string              `json:"refusal"`
}

var (
	verbs        = []string{"get", "list", "create", "delete", "*"}
	groups       = []string{"", "apps", "*"}
	resources    = []string{"pods", "deployments", "pods/log", "deployments/scale", "*/scale", "*/log", "*", "pods/*"}
	paths        = []string{"/metrics", "/healthz", "/healthz/*", "/api*", "*", "/"}
	askedPaths   = []string{"/metrics", "/healthz", "/healthz/ping", "/healthz/", "/api", "/apis", "/", "/version"}
	names        = []string{"a", "b", "c"}
	namespaces   = []string{"one", "two"}
	users        = []string{"alice", "bob", "system:serviceaccount:one:robot", "system:serviceaccount:two:robot"}
	userGroups   = []string{"dev", "ops", "system:authenticated"}
	askedVerbs   = []string{"get", "list", "create", "delete", "watch"}
	askedGroups  = []string{"", "apps", "batch"}
	askedObjects = []string{"pods", "deployments", "jobs"}
	askedSubs    = []string{"", "", "", "log", "scale", "status"}
)

func one(r *rand.Rand, list []string) string { return list[r.Intn(len(list))] }

// some picks at least `least` of a list, mostly few.
func some(r *rand.Rand, list []string, least int) []string {
	picked := []string{}
	for range least + r.Intn(2) + r.Intn(2) {
		picked = append(picked, one(r, list))
	}
	return picked
}

func rules(r *rand.Rand, namespaced bool) []rbacv1.PolicyRule {
	made := []rbacv1.PolicyRule{}
	for range 1 + r.Intn(4) {
		rule := rbacv1.PolicyRule{Verbs: some(r, verbs, 1)}
		if !namespaced && r.Intn(4) == 0 {
			rule.NonResourceURLs = some(r, paths, 1)
		} else {
			rule.APIGroups, rule.Resources = some(r, groups, 1), some(r, resources, 1)
			if r.Intn(4) == 0 {
				rule.ResourceNames = some(r, names, 1)
			}
		}
		made = append(made, rule)
	}
	return made
}

func subjects(r *rand.Rand, namespaced bool) []rbacv1.Subject {
	made := []rbacv1.Subject{}
	for range 1 + r.Intn(3) {
		switch r.Intn(3) {
		case 0:
			made = append(made, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: one(r, users)})
		case 1:
			made = append(made, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: one(r, userGroups)})
		default:
			account := rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: one(r, namespaces)}
			if namespaced && r.Intn(2) == 0 {
				account.Namespace = ""
			}
			made = append(made, account)
		}
	}
	return made
}

func who(r *rand.Rand) (string, []string) {
	return one(r, users), some(r, userGroups, 0)
}

func world(r *rand.Rand) *World {
	w := &World{}
	clusterRole, role := []string{"absent"}, []string{"absent"}
	for at := range 1 + r.Intn(4) {
		name := fmt.Sprintf("cluster-%d", at)
		clusterRole = append(clusterRole, name)
		w.ClusterRoles = append(w.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules(r, false)})
	}
	for at := range r.Intn(4) {
		name := fmt.Sprintf("role-%d", at)
		role = append(role, name)
		meta := metav1.ObjectMeta{Name: name, Namespace: one(r, namespaces)}
		w.Roles = append(w.Roles, &rbacv1.Role{ObjectMeta: meta, Rules: rules(r, true)})
	}
	for at := range 1 + r.Intn(5) {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("binding-%d", at)}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: one(r, clusterRole)}
		w.ClusterRoleBindings = append(w.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects(r, false)})
	}
	for at := range 2 + r.Intn(6) {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("binding-%d", at), Namespace: one(r, namespaces)}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: one(r, role)}
		if r.Intn(2) == 0 {
			ref.Kind, ref.Name = "ClusterRole", one(r, clusterRole)
		}
		w.RoleBindings = append(w.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects(r, true)})
	}
	resolver, static := validation.NewTestRuleResolver(w.Roles, w.RoleBindings, w.ClusterRoles, w.ClusterRoleBindings)
	decides := rbac.New(static, static, static, static)
	for range 50 {
		q := &Question{Verb: one(r, askedVerbs)}
		q.User, q.Groups = who(r)
		if r.Intn(5) == 0 {
			q.Path = one(r, askedPaths)
		} else {
			q.Group, q.Resource, q.Subresource = one(r, askedGroups), one(r, askedObjects), one(r, askedSubs)
			q.Namespace, q.Name = one(r, append(namespaces, "")), one(r, append(names, ""))
		}
		decision, _, err := decides.Authorize(context.Background(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: q.User, Groups: q.Groups}, Verb: q.Verb, Path: q.Path, APIGroup: q.Group, APIVersion: "v1",
			Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, ResourceRequest: q.Path == "",
		})
		if err != nil {
			panic(err)
		}
		q.Allowed = decision == authorizer.DecisionAllow
		w.Questions = append(w.Questions, q)
	}
	for range 10 {
		g := &Grant{Namespace: one(r, namespaces), Rules: rules(r, true)}
		g.User, g.Groups = who(r)
		ctx := request.WithNamespace(request.WithUser(context.Background(), &user.DefaultInfo{Name: g.User, Groups: g.Groups}), g.Namespace)
		if err := validation.ConfirmNoEscalation(ctx, quiet{resolver}, g.Rules); err != nil {
			g.Refusal = err.Error()
		}
		w.Grants = append(w.Grants, g)
	}
	return w
}

// quiet leaves out the errors about roles that do not exist: the static lists have other words for them than a server.
type quiet struct {
	validation.AuthorizationRuleResolver
}

func (q quiet) RulesFor(ctx context.Context, who user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	found, _ := q.AuthorizationRuleResolver.RulesFor(ctx, who, namespace)
	return found, nil
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
