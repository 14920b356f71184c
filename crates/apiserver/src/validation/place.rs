//! Where a rule looks. In: the steps of a walk, on the stack. Out: the path of a field as Kubernetes writes it, made only
//! when there is an error to report.

use konverge_core::FieldPath;

/// A place in an object, linked to the place that holds it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// The object itself.
    Root,
    /// A field of a struct.
    Field(&'a Place<'a>, &'a str),
    /// An item of a list.
    Index(&'a Place<'a>, usize),
    /// An entry of a map.
    Key(&'a Place<'a>, &'a str),
}

impl Place<'_> {
    /// The path as clients read it.
    pub(super) fn path(&self) -> FieldPath {
        match self {
            Place::Root => FieldPath::root(),
            Place::Field(parent, name) => parent.path().child(name),
            Place::Index(parent, at) => parent.path().index(*at),
            Place::Key(parent, key) => parent.path().key(key),
        }
    }

    /// The path of a field below.
    pub(super) fn child(&self, name: &str) -> FieldPath {
        self.path().child(name)
    }
}
