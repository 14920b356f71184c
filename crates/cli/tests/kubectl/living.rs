//! `konverge dev` is a living cluster: what workloads become, as a person follows it with `kubectl`. Nothing is patched by
//! hand that a controller or a kubelet would write.

mod admission;
mod batch;
mod cascade;
mod control_plane;
mod deployment;
mod look;
mod node;
mod session;
mod stateful;

/// A Deployment with as many replicas, all of whose pods have this annotation, if any.
fn deployment(name: &str, replicas: usize, annotation: &str) -> String {
    format!(
        r#"---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}, annotations: {{{annotation}}}}}
    spec:
      containers:
      - name: main
        image: "nginx:1.27"
        ports: [{{containerPort: 80}}]
        resources: {{requests: {{cpu: "1"}}}}
"#
    )
}
