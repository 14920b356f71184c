package clients

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// seen collects what an informer tells its handler.
type seen struct {
	mutex sync.Mutex
	log   []string
}

func (s *seen) handler() cache.ResourceEventHandler {
	name := func(object any) string {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		return object.(metav1.Object).GetName()
	}
	add := func(what string, object any) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.log = append(s.log, what+" "+name(object))
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { add("add", object) },
		UpdateFunc: func(_, object any) { add("update", object) },
		DeleteFunc: func(object any) { add("delete", object) },
	}
}

func (s *seen) wait(t *testing.T, expect ...string) {
	t.Helper()
	eventually(t, "what informers tell", func() error {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if fmt.Sprint(s.log) != fmt.Sprint(expect) {
			return fmt.Errorf("%v instead of %v", s.log, expect)
		}
		return nil
	})
}

// TestInformers runs the three kinds of informers of client-go over the life of objects.
func TestInformers(t *testing.T) {
	namespace := newNamespace(t)
	ctx := t.Context()
	stop := make(chan struct{})
	defer close(stop)
	first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first", Labels: map[string]string{"a": "b"}}}
	first, err := typed.CoreV1().ConfigMaps(namespace).Create(ctx, first, metav1.CreateOptions{})
	must(t, err)

	dynamicClient, err := dynamic.NewForConfig(cfg)
	must(t, err)
	metadataClient, err := metadata.NewForConfig(cfg)
	must(t, err)
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	byType := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "a=b" }))
	byMap := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicClient, 0, namespace,
		func(options *metav1.ListOptions) { options.LabelSelector = "a=b" })
	byMetadata := metadatainformer.NewFilteredSharedInformerFactory(metadataClient, 0, namespace,
		func(options *metav1.ListOptions) { options.LabelSelector = "a=b" })
	all := []cache.SharedIndexInformer{
		byType.Core().V1().ConfigMaps().Informer(),
		byMap.ForResource(resource).Informer(),
		byMetadata.ForResource(resource).Informer(),
	}
	logs := make([]*seen, len(all))
	for i, informer := range all {
		logs[i] = &seen{}
		_, err := informer.AddEventHandler(logs[i].handler())
		must(t, err)
		go informer.Run(stop)
	}
	for i, informer := range all {
		if !cache.WaitForCacheSync(stop, informer.HasSynced) {
			t.Fatalf("informer %d did not sync", i)
		}
		logs[i].wait(t, "add first")
	}

	second := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "second", Labels: map[string]string{"a": "b"}}}
	second, err = typed.CoreV1().ConfigMaps(namespace).Create(ctx, second, metav1.CreateOptions{})
	must(t, err)
	first.Data = map[string]string{"key": "value"}
	first, err = typed.CoreV1().ConfigMaps(namespace).Update(ctx, first, metav1.UpdateOptions{})
	must(t, err)
	// Whoever leaves the selection is deleted, for those who watch it.
	second.Labels = nil
	_, err = typed.CoreV1().ConfigMaps(namespace).Update(ctx, second, metav1.UpdateOptions{})
	must(t, err)
	must(t, typed.CoreV1().ConfigMaps(namespace).Delete(ctx, "first", metav1.DeleteOptions{}))
	for _, log := range logs {
		log.wait(t, "add first", "add second", "update first", "delete second", "delete first")
	}
	for i, informer := range all {
		if keys := informer.GetStore().ListKeys(); len(keys) != 0 {
			t.Errorf("informer %d still has %v", i, keys)
		}
	}
}

// TestCustomInformer follows custom resources, which clients read as JSON.
func TestCustomInformer(t *testing.T) {
	namespace := newNamespace(t)
	stop := make(chan struct{})
	defer close(stop)
	dynamicClient, err := dynamic.NewForConfig(cfg)
	must(t, err)
	sites := dynamicClient.Resource(GroupVersion.WithResource("sites"))
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicClient, 0, namespace, nil)
	informer := factory.ForResource(GroupVersion.WithResource("sites")).Informer()
	log := &seen{}
	_, err = informer.AddEventHandler(log.handler())
	must(t, err)
	go informer.Run(stop)
	if !cache.WaitForCacheSync(stop, informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	site := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "demo.example.com/v1", "kind": "Site",
		"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"image": "a"},
	}}
	site, err = sites.Namespace(namespace).Create(t.Context(), site, metav1.CreateOptions{})
	must(t, err)
	must(t, unstructured.SetNestedField(site.Object, true, "status", "ready"))
	_, err = sites.Namespace(namespace).UpdateStatus(t.Context(), site, metav1.UpdateOptions{})
	must(t, err)
	must(t, sites.Namespace(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	log.wait(t, "add web", "update web", "delete web")
}

// TestWatch reads the events of a plain watch, bookmarks included.
func TestWatch(t *testing.T) {
	namespace := newNamespace(t)
	ctx := t.Context()
	pods := typed.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	must(t, err)
	seconds := int64(60)
	watching, err := pods.Watch(ctx, metav1.ListOptions{
		ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	must(t, err)
	defer watching.Stop()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
	}
	pod, err = pods.Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	select {
	case event := <-watching.ResultChan():
		got, ok := event.Object.(*corev1.Pod)
		if event.Type != watch.Added || !ok || got.Name != "one" || got.ResourceVersion != pod.ResourceVersion {
			t.Errorf("got %s %+v", event.Type, event.Object)
		}
	case <-time.After(10 * time.Second):
		t.Error("no event")
	}

	// A watch that begins with everything ends that part with a bookmark.
	yes := true
	initial, err := pods.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	must(t, err)
	defer initial.Stop()
	types := []watch.EventType{}
	for event := range initial.ResultChan() {
		types = append(types, event.Type)
		if event.Type == watch.Bookmark {
			pod := event.Object.(*corev1.Pod)
			if pod.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("the bookmark has %v", pod.Annotations)
			}
			break
		}
	}
	if fmt.Sprint(types) != "[ADDED BOOKMARK]" && fmt.Sprint(types) != "[ADDED MODIFIED BOOKMARK]" {
		t.Errorf("events are %v", types)
	}
}
