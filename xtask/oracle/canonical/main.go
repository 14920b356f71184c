// What Kubernetes makes of objects: decoded from JSON, stored as protobuf, and written as JSON again. In: an object on each
// line. Out: for each a line with what became of it, or with why it cannot be decoded.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

type answer struct {
	Object  json.RawMessage `json:"object,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

func main() {
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	asJSON := serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, serializerjson.SerializerOptions{})
	asProtobuf := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		var said answer
		if object, err := roundTrip(asJSON, asProtobuf, in.Bytes()); err != nil {
			said.Refused = err.Error()
		} else {
			said.Object = object
		}
		line, err := json.Marshal(said)
		if err != nil {
			panic(err)
		}
		out.Write(append(line, '\n'))
	}
}

func roundTrip(asJSON, asProtobuf runtime.Serializer, body []byte) ([]byte, error) {
	object, kind, err := asJSON.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	var stored, shown bytes.Buffer
	if err := asProtobuf.Encode(object, &stored); err != nil {
		return nil, err
	}
	read, _, err := asProtobuf.Decode(stored.Bytes(), nil, nil)
	if err != nil {
		return nil, err
	}
	read.GetObjectKind().SetGroupVersionKind(*kind)
	if err := asJSON.Encode(read, &shown); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(shown.Bytes()), nil
}
