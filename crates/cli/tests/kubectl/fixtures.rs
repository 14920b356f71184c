//! The objects that scenarios start from. Each text starts a document, so they can be put one behind the other.

/// A definition with everything a definition can have: columns, both subresources, two versions, short names,
/// categories, selectable fields, defaults and value checks.
pub(crate) const WIDGETS: &str = r#"---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all, gear]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
        labelSelectorPath: .status.selector
    selectableFields:
    - jsonPath: .spec.color
    - jsonPath: .spec.size
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema: &schema
      openAPIV3Schema:
        description: A thing with a size.
        type: object
        required: [spec]
        properties:
          spec:
            description: What is wanted.
            type: object
            required: [size]
            properties:
              size: {type: string, enum: [small, medium, large], description: How big it is.}
              replicas: {type: integer, minimum: 0, maximum: 10, default: 1}
              color: {type: string, default: blue, pattern: '^[a-z]+$', maxLength: 10}
              note: {type: string}
              tags: {type: array, items: {type: string}, maxItems: 3}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    count: {type: integer, default: 1}
          status:
            type: object
            properties:
              phase: {type: string}
              replicas: {type: integer}
              selector: {type: string}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status]
                  properties:
                    type: {type: string}
                    status: {type: string}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    subresources: {status: {}}
    schema: *schema
"#;

/// A definition without namespaces, subresources and columns.
pub(crate) const REGIONS: &str = r#"---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: regions.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: regions, singular: region, kind: Region, shortNames: [rg]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {continent: {type: string}}}
          status: {type: object, properties: {phase: {type: string}}}
"#;

/// A Deployment of two containers.
pub(crate) const WEB: &str = r#"---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: server
        image: nginx:1.27
        ports: [{containerPort: 80, name: http}]
      - name: proxy
        image: envoy:1.30
"#;

/// A ConfigMap with one entry.
pub(crate) fn config_map(name: &str, key: &str, value: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{{key}: {value:?}}}\n")
}

/// A Widget with fields of its `spec`, as flow YAML: `size: small, color: red`.
pub(crate) fn widget(name: &str, spec: &str) -> String {
    format!("---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}
