//! The Kubernetes release that the product is made for. Everything that names a release takes it from here: the tables of
//! built-in kinds, `/version`, simulated nodes, the `kubectl` that tests run.

/// The release whose API is served, and whose published documents the tables of built-in kinds are derived from.
///
/// `docs/moving-to-a-new-kubernetes.md` says what else to do when this changes.
pub const KUBERNETES_VERSION: &str = "1.36.4";

/// The minor version in [`KUBERNETES_VERSION`], as `/version` has it: `36`.
///
/// ```
/// let release = konverge_core::KUBERNETES_VERSION;
/// assert!(release.starts_with(&format!("1.{}.", konverge_core::kubernetes_minor())));
/// ```
pub fn kubernetes_minor() -> &'static str {
    KUBERNETES_VERSION.split('.').nth(1).unwrap_or_default()
}
