// What Kubernetes says about rules in CEL. In: a case on each line, as JSON: the schema of a version of a CRD, and objects to
// judge by it. Out: each case with the answers of Kubernetes: the errors of the definition, what each rule can cost at most,
// and for each object its errors, its warnings and what its rules cost.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
)

type object struct {
	New json.RawMessage `json:"new"`
	Old json.RawMessage `json:"old,omitempty"`
	// Answers.
	Schema   []string `json:"schema,omitempty"`
	Errors   []string `json:"errors,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Cost     *int64   `json:"cost,omitempty"`
}

type testCase struct {
	Name    string          `json:"name,omitempty"`
	Schema  json.RawMessage `json:"schema"`
	Objects []*object       `json:"objects,omitempty"`
	// Answers.
	Definition []string `json:"definition,omitempty"`
	Estimates  []uint64 `json:"estimates,omitempty"`
}

type recorder struct{ said []string }

func (r *recorder) AddWarning(_, text string) { r.said = append(r.said, text) }

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		var c testCase
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, "case:", err)
			os.Exit(1)
		}
		c.Definition, c.Estimates = nil, nil
		if err := c.answer(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name, err)
			os.Exit(1)
		}
		line, err := json.Marshal(c)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%s\n", line)
	}
}

func (c *testCase) answer() error {
	var v1 apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(c.Schema, &v1); err != nil {
		return err
	}
	var schema apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &schema, nil); err != nil {
		return err
	}
	c.Definition = definition(&schema)
	structural, err := structuralschema.NewStructural(&schema)
	if err != nil {
		return nil
	}
	estimates(structural, true, &c.Estimates)
	validator := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	schemaValidator, _, err := validation.NewSchemaValidator(&schema)
	if err != nil {
		return err
	}
	for _, o := range c.Objects {
		if err := o.answer(structural, validator, schemaValidator); err != nil {
			return err
		}
	}
	return nil
}

func definition(schema *apiextensions.JSONSchemaProps) []string {
	crd := &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group:                 "example.com",
			Version:               "v1",
			Names:                 apiextensions.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Scope:                 apiextensions.NamespaceScoped,
			Versions:              []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
			Validation:            &apiextensions.CustomResourceValidation{OpenAPIV3Schema: schema},
			PreserveUnknownFields: new(bool),
			Conversion:            &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
		},
		Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
	return texts(crdvalidation.ValidateCustomResourceDefinition(context.Background(), crd))
}

// estimates appends what each rule can cost, in the order of a walk over the schema with properties sorted by name.
func estimates(s *structuralschema.Structural, root bool, found *[]uint64) {
	declType := model.SchemaDeclType(s, root)
	if declType != nil && len(s.XValidations) > 0 {
		env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
		results, err := cel.Compile(s, declType, celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
		if err == nil {
			for _, result := range results {
				*found = append(*found, result.MaxCost)
				if result.MessageExpression != nil {
					*found = append(*found, result.MessageExpressionMaxCost)
				}
			}
		}
	}
	if s.Items != nil {
		estimates(s.Items, s.Items.XEmbeddedResource, found)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		inner := s.AdditionalProperties.Structural
		estimates(inner, inner.XEmbeddedResource, found)
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		inner := s.Properties[name]
		estimates(&inner, inner.XEmbeddedResource, found)
	}
}

func (o *object) answer(structural *structuralschema.Structural, validator *cel.Validator, schemaValidator validation.SchemaValidator) error {
	o.Schema, o.Errors, o.Warnings, o.Cost = nil, nil, nil, nil
	var value, old map[string]interface{}
	if err := utiljson.Unmarshal(o.New, &value); err != nil {
		return err
	}
	if len(o.Old) > 0 {
		if err := utiljson.Unmarshal(o.Old, &old); err != nil {
			return err
		}
	}
	said := &recorder{}
	ctx := warning.WithWarningRecorder(context.Background(), said)
	var errs field.ErrorList
	var left int64 = celconfig.RuntimeCELCostBudget
	if old != nil {
		correlated := common.NewCorrelatedObject(value, old, &model.Structural{Structural: structural})
		o.Schema = texts(validation.ValidateCustomResourceUpdate(nil, value, old, schemaValidator, validation.WithRatcheting(correlated)))
		errs, left = validator.Validate(ctx, nil, structural, value, old, left, cel.WithRatcheting(correlated))
	} else {
		o.Schema = texts(validation.ValidateCustomResource(nil, value, schemaValidator))
		errs, left = validator.Validate(ctx, nil, structural, value, nil, left)
	}
	o.Errors = texts(errs)
	sort.Strings(said.said)
	o.Warnings = said.said
	if left >= 0 {
		cost := celconfig.RuntimeCELCostBudget - left
		o.Cost = &cost
	}
	return nil
}

func texts(errs field.ErrorList) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	sort.Strings(texts)
	return texts
}
