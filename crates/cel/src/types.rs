//! Types of expressions. In: types with parameters. Out: whether one fits another, and what its parameters stand for then.
//! Follows the rules of cel-go, also where they are lenient: `null` fits durations, timestamps and objects.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// Known when the expression is evaluated.
    Dyn,
    /// The type of what has an issue already.
    Error,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An object with declared fields, by its name.
    Object(Arc<str>),
    /// A type of a library, as `optional_type(int)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// The type of a type.
    Kind(Option<Arc<Type>>),
    /// A parameter of a function, or a type that is still to be found.
    Param(Arc<str>),
}

impl Type {
    pub(crate) fn list(item: Type) -> Self {
        Self::List(Arc::new(item))
    }

    pub(crate) fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(inner: Type) -> Self {
        Self::Opaque("optional_type".into(), [inner].into())
    }

    /// What is inside an optional type, or the type itself.
    pub(crate) fn unwrap_optional(&self) -> (&Type, bool) {
        match self {
            Self::Opaque(name, inner) if &**name == "optional_type" => (&inner[0], true),
            other => (other, false),
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        *self == Self::Dyn
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    fn may_be_null(&self) -> bool {
        matches!(self, Self::Null | Self::Opaque(..) | Self::Object(_) | Self::Duration | Self::Timestamp)
    }

    /// The name without parameters, as cel-go's messages about values have it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Kind(_) => "type".to_owned(),
            Self::Opaque(name, _) => name.to_string(),
            other => other.to_string(),
        }
    }
}

impl Type {
    /// The name with its parameters, as cel-go's `Type.String` has it.
    pub(crate) fn declared_name(&self) -> String {
        match self {
            Self::List(item) => format!("list({})", item.declared_name()),
            Self::Map(entry) => format!("map({}, {})", entry.0.declared_name(), entry.1.declared_name()),
            Self::Opaque(name, params) if !params.is_empty() => {
                let params: Vec<String> = params.iter().map(Self::declared_name).collect();
                format!("{name}({})", params.join(", "))
            }
            Self::Kind(Some(of)) => format!("type({})", of.declared_name()),
            other => other.name(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Dyn => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Object(name) | Self::Param(name) => f.write_str(name),
            Self::Opaque(name, params) if params.is_empty() => f.write_str(name),
            Self::Opaque(name, params) => {
                let params: Vec<String> = params.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", params.join(", "))
            }
            Self::Kind(None) => f.write_str("type"),
            Self::Kind(Some(of)) => write!(f, "type({of})"),
        }
    }
}

/// What parameters stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Substitutions {
    known: HashMap<Arc<str>, Type>,
    /// What the parameters that an attempt has changed stood for before it.
    changed: Vec<(Arc<str>, Option<Type>)>,
}

impl Substitutions {
    pub(crate) fn bind(&mut self, param: Arc<str>, to: Type) {
        let before = self.known.insert(param.clone(), to);
        self.changed.push((param, before));
    }

    /// Whether a value of the first type can be where the second is expected; remembers what parameters stand for then.
    pub(crate) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.assignable_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// The same for several, all or none.
    pub(crate) fn assignable_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.changed.clear();
        let fits = self.fits_all(from, to);
        // An attempt that fails is undone. A copy for each attempt would take quadratic time.
        while let Some((param, before)) = self.changed.pop() {
            match before {
                _ if fits => {}
                Some(before) => drop(self.known.insert(param, before)),
                None => drop(self.known.remove(&param)),
            }
        }
        fits
    }

    fn fits_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to))
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(param) = to {
            let (valid, known) = self.valid(from, param);
            if valid || known {
                return valid;
            }
        }
        if let Type::Param(param) = from {
            return self.valid(to, param).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => other.may_be_null(),
            (Type::Kind(_), Type::Kind(_)) => true,
            (Type::List(from), Type::List(to)) => self.fits(from, to),
            (Type::Map(from), Type::Map(to)) => self.fits(&from.0, &to.0) && self.fits(&from.1, &to.1),
            (Type::Opaque(name, from), Type::Opaque(other, to)) => name == other && self.fits_all(from, to),
            _ => from == to,
        }
    }

    /// Whether `param` can stand for `ty`, and whether it stood for something before.
    fn valid(&mut self, ty: &Type, param: &Arc<str>) -> (bool, bool) {
        if matches!(ty, Type::Param(same) if same == param) {
            return (true, true);
        }
        if let Some(known) = self.known.get(param).cloned() {
            if known == *ty {
                return (true, true);
            }
            if self.fits(ty, &known) {
                let general = if is_equal_or_less_specific(ty, &known) { ty.clone() } else { known };
                if self.absent_from(param, &general) {
                    self.bind(param.clone(), general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent_from(param, ty) {
            self.bind(param.clone(), ty.clone());
            return (true, false);
        }
        (false, false)
    }

    fn absent_from(&self, param: &Arc<str>, ty: &Type) -> bool {
        match ty {
            Type::Param(name) if name == param => false,
            Type::Param(name) => self.known.get(name).is_none_or(|known| self.absent_from(param, known)),
            Type::List(item) => self.absent_from(param, item),
            Type::Map(entry) => self.absent_from(param, &entry.0) && self.absent_from(param, &entry.1),
            Type::Opaque(_, params) => params.iter().all(|inner| self.absent_from(param, inner)),
            Type::Kind(Some(of)) => self.absent_from(param, of),
            _ => true,
        }
    }

    /// A type with its parameters replaced; those that stand for nothing become `dyn` if `settle` is set.
    pub(crate) fn apply(&self, ty: &Type, settle: bool) -> Type {
        match ty {
            Type::Param(name) => match self.known.get(name) {
                Some(known) => self.apply(known, settle),
                None if settle => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(item) => Type::list(self.apply(item, settle)),
            Type::Map(entry) => Type::map(self.apply(&entry.0, settle), self.apply(&entry.1, settle)),
            Type::Opaque(name, params) => {
                Type::Opaque(name.clone(), params.iter().map(|param| self.apply(param, settle)).collect())
            }
            Type::Kind(Some(of)) => Type::Kind(Some(Arc::new(self.apply(of, settle)))),
            other => other.clone(),
        }
    }
}

/// The more general of two types that fit each other.
pub(crate) fn most_general(one: &Type, other: &Type) -> Type {
    if is_equal_or_less_specific(one, other) { one.clone() } else { other.clone() }
}

fn is_equal_or_less_specific(one: &Type, other: &Type) -> bool {
    if one.is_dyn() || matches!(one, Type::Param(_)) {
        return true;
    }
    if other.is_dyn() || matches!(other, Type::Param(_)) {
        return false;
    }
    match (one, other) {
        (Type::Opaque(name, params), Type::Opaque(same, others)) => {
            name == same
                && params.len() == others.len()
                && params.iter().zip(&**others).all(|(one, other)| is_equal_or_less_specific(one, other))
        }
        (Type::List(one), Type::List(other)) => is_equal_or_less_specific(one, other),
        (Type::Map(one), Type::Map(other)) => {
            is_equal_or_less_specific(&one.0, &other.0) && is_equal_or_less_specific(&one.1, &other.1)
        }
        (Type::Kind(_), Type::Kind(_)) => true,
        _ => one == other,
    }
}
