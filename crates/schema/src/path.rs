//! The path of the value that a walk is at, without allocating: a linked list of borrowed steps on the stack. It becomes
//! text only when there is an error to report. JSON is parsed no deeper than 128 levels, so walks recurse.

use konverge_core::FieldPath;

/// One step, and the steps before it.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// `spec.labels.app`: map keys written like fields, as errors of schema validation and strict decoding show them.
    pub(crate) fn dotted(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, false);
        text
    }

    /// `spec.labels[app]`: map keys in brackets, as errors of other validation show them, below `prefix`.
    pub(crate) fn keyed(&self, prefix: &FieldPath) -> FieldPath {
        let mut text = prefix.as_str().to_owned();
        self.write(&mut text, true);
        FieldPath::new(&text)
    }

    fn write(&self, text: &mut String, bracket_keys: bool) {
        match self {
            Self::Root => {}
            Self::Key(parent, key) if bracket_keys => {
                parent.write(text, bracket_keys);
                text.extend(["[", key, "]"]);
            }
            Self::Field(parent, name) | Self::Key(parent, name) => {
                parent.write(text, bracket_keys);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Self::Index(parent, at) => {
                parent.write(text, bracket_keys);
                text.extend(["[", &at.to_string(), "]"]);
            }
        }
    }
}
