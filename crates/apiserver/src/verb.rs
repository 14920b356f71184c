//! Verbs: what requests do with resources, as discovery lists them and RBAC rules name them.

/// What a request does with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// POST
    Create,
    /// DELETE of one
    Delete,
    /// DELETE of many
    DeleteCollection,
    /// GET of one
    Get,
    /// GET of many
    List,
    /// PATCH
    Patch,
    /// PUT
    Update,
    /// GET of many that goes on
    Watch,
}

impl Verb {
    /// Every verb, in the order discovery lists them.
    pub(crate) const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];

    /// As discovery and RBAC write it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verbs(u8);

impl Verbs {
    /// All eight, as CRDs have them.
    pub(crate) const ALL: Verbs = Verbs(u8::MAX);

    /// Whether `verb` is among them.
    pub(crate) fn contains(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u8) != 0
    }

    /// Those of the set, in discovery's order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |verb| self.contains(*verb))
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Verbs(verbs.into_iter().fold(0, |set, verb| set | (1 << verb as u8)))
    }
}
