//! Which object: its namespace and name, as one small value that is cheap to copy, hash and order.

use std::fmt;
use std::sync::Arc;

/// The namespace and name of an object. One allocation, shared by its copies.
///
/// ```
/// use konverge_core::ObjectKey;
/// let web = ObjectKey::new(Some("default"), "web");
/// assert_eq!((web.namespace(), web.name()), (Some("default"), "web"));
/// assert_eq!(web.to_string(), "default/web");
/// assert_eq!(ObjectKey::new(None, "node-1").to_string(), "node-1");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// The object `name` in `namespace`, or the cluster-scoped object `name`.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            // No name holds a slash, so the text is the key.
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// Its namespace; none for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectKey({})", self.0)
    }
}
