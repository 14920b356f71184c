package clients

import (
	"net/http"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// answers notes the content types of answers.
type answers struct {
	next  http.RoundTripper
	mutex sync.Mutex
	types []string
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := a.next.RoundTrip(request)
	if err == nil {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		a.types = append(a.types, answer.Header.Get("Content-Type"))
	}
	return answer, err
}

// last is the content type of the last answer.
func (a *answers) last() string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.types[len(a.types)-1]
}

// in is a configuration whose clients accept this, and what they were answered.
func in(accept string) (*rest.Config, *answers) {
	config, noted := rest.CopyConfig(cfg), &answers{}
	config.AcceptContentTypes = accept
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		noted.next = next
		return noted
	})
	return config, noted
}

// TestProtobufAnswers reads every kind as protobuf and as JSON, and gets the same object.
func TestProtobufAnswers(t *testing.T) {
	namespace := newNamespace(t)
	binary, fromProtobuf := in(protobuf + ",application/json")
	text, fromJSON := in("application/json")
	inProtobuf, err := client.New(binary, client.Options{})
	must(t, err)
	inJSON, err := client.New(text, client.Options{})
	must(t, err)
	for _, object := range kinds(namespace) {
		must(t, inProtobuf.Create(t.Context(), object))
		key := client.ObjectKeyFromObject(object)
		one := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
		two := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
		must(t, inProtobuf.Get(t.Context(), key, one))
		if fromProtobuf.last() != protobuf {
			t.Errorf("%T was answered as %q", object, fromProtobuf.last())
		}
		must(t, inJSON.Get(t.Context(), key, two))
		if fromJSON.last() != "application/json" {
			t.Errorf("%T was answered as %q", object, fromJSON.last())
		}
		// Controllers may have written between the two.
		if one.GetResourceVersion() == two.GetResourceVersion() && !apiequality.Semantic.DeepEqual(one, two) {
			t.Errorf("%T differs:\n%+v\n%+v", object, one, two)
		}
	}
	err = inProtobuf.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "none"}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) || fromProtobuf.last() != protobuf {
		t.Errorf("%v as %q", err, fromProtobuf.last())
	}
	// Custom resources have no messages.
	must(t, inProtobuf.Create(t.Context(), &Site{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}, Spec: SiteSpec{Image: "a"}}))
	if fromProtobuf.last() != "application/json" {
		t.Errorf("a custom resource was answered as %q", fromProtobuf.last())
	}
}

// TestProtobufWatch watches objects and metadata, which come in frames.
func TestProtobufWatch(t *testing.T) {
	namespace := newNamespace(t)
	config, noted := in(protobuf)
	clientset, err := kubernetes.NewForConfig(config)
	must(t, err)
	maps := clientset.CoreV1().ConfigMaps(namespace)
	yes := true
	// A controller may publish the CA of the cluster beside it.
	events, err := maps.Watch(t.Context(), metav1.ListOptions{
		FieldSelector:     "metadata.name=a",
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	must(t, err)
	defer events.Stop()
	if noted.last() != protobuf+";stream=watch" {
		t.Errorf("a watch was answered as %q", noted.last())
	}
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, maps.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	for _, expect := range []watch.EventType{watch.Bookmark, watch.Added, watch.Deleted} {
		event := <-events.ResultChan()
		if found, ok := event.Object.(*corev1.ConfigMap); !ok || event.Type != expect || (expect == watch.Added && found.Data["k"] != "v") {
			t.Fatalf("%+v instead of %v", event, expect)
		}
	}

	config, noted = in("")
	metadataClient, err := metadata.NewForConfig(config)
	must(t, err)
	must(t, direct.Create(t.Context(), &Site{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b"}, Spec: SiteSpec{Image: "a"}}))
	list, err := metadataClient.Resource(GroupVersion.WithResource("sites")).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].Name != "b" || noted.last() != protobuf {
		t.Errorf("%+v as %q", list, noted.last())
	}
}
