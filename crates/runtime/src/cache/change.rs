//! One change to one object, as the cache hands it out.

use std::sync::Arc;

use konverge_core::ObjectKey;

use crate::object::Object;

/// An object was created, changed, or is gone.
#[derive(Clone, Debug)]
pub struct Change {
    before: Option<Arc<Object>>,
    after: Option<Arc<Object>>,
    origin: Origin,
}

/// How a change became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The object was there when whoever is told began to look.
    Initial,
    /// A list after an interruption showed it; the change itself was missed.
    Relist,
    /// The watch brought it as it happened.
    Watch,
    /// We made it ourselves. The watch has not brought it yet, and nothing is told when it does.
    Own,
}

impl Change {
    pub(crate) fn created(after: Arc<Object>, origin: Origin) -> Self {
        Self { before: None, after: Some(after), origin }
    }

    pub(crate) fn updated(before: Arc<Object>, after: Arc<Object>, origin: Origin) -> Self {
        Self { before: Some(before), after: Some(after), origin }
    }

    pub(crate) fn deleted(before: Arc<Object>, origin: Origin) -> Self {
        Self { before: Some(before), after: None, origin }
    }

    /// Which object.
    pub fn key(&self) -> ObjectKey {
        self.object().key()
    }

    /// How it was before; nothing if it is new. For a deleted object, how it last was.
    pub fn before(&self) -> Option<&Arc<Object>> {
        self.before.as_ref()
    }

    /// How it is now; nothing if it is gone.
    pub fn after(&self) -> Option<&Arc<Object>> {
        self.after.as_ref()
    }

    /// How it is now, or how it last was.
    pub fn object(&self) -> &Arc<Object> {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has a before or an after")
    }

    /// How it became known.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether the object is gone.
    pub fn is_delete(&self) -> bool {
        self.after.is_none()
    }
}
