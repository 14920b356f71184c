//! The name of a subject. In: DER. Out: the values of its attributes as text, and the name as a certificate has it. String types are
//! read as Go's `crypto/x509` reads them.

use super::der::{self, OBJECT_IDENTIFIER, Reader, SEQUENCE, SET};

const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const T61_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;

/// The attributes that a certificate is signed with, in Go's order (2.5.4.…): country, organization, organizational unit, locality,
/// province, street, postal code. All values of one attribute are one set.
const SIGNED: [u8; 7] = [6, 10, 11, 7, 8, 9, 17];
/// Those of which only the last value counts: common name and serial number.
const SIGNED_ONCE: [u8; 2] = [3, 5];

/// The name of a subject: attributes in their order.
///
/// ```
/// use konverge_core::x509::Name;
/// use konverge_core::x509::der::Reader;
///
/// let der = [0x30, 14, 0x31, 12, 0x30, 10, 6, 3, 0x55, 4, 3, 0x0c, 3, b'b', b'o', b'b'];
/// let name = Name::read(&mut Reader::new(&der)).unwrap();
/// assert_eq!(name.common_name(), "bob");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    attributes: Vec<(Box<[u8]>, String)>,
}

impl Name {
    /// The object identifier of a common name (2.5.4.3), as DER has it.
    pub const COMMON_NAME: &'static [u8] = &[0x55, 4, 3];
    /// The object identifier of an organization (2.5.4.10), as DER has it.
    pub const ORGANIZATION: &'static [u8] = &[0x55, 4, 10];

    /// The name that comes next. None if it is no name, or if a value is no text: a value that is passed over could be one that another
    /// reader takes.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut sets = reader.sequence()?;
        let mut attributes = Vec::new();
        while !sets.is_empty() {
            let mut set = Reader::new(sets.expect(SET)?);
            while !set.is_empty() {
                let mut attribute = set.sequence()?;
                let kind = attribute.expect(OBJECT_IDENTIFIER)?;
                let (tag, value) = attribute.next()?;
                attributes.push((kind.into(), text(tag, value).filter(|_| attribute.is_empty())?));
            }
        }
        Some(Self { attributes })
    }

    /// The values of the attributes with this object identifier (in DER, without tag and length), in their order.
    pub fn values(&self, object_identifier: &[u8]) -> impl DoubleEndedIterator<Item = &str> {
        self.attributes.iter().filter(move |(kind, _)| **kind == *object_identifier).map(|(_, value)| value.as_str())
    }

    /// All values of all attributes.
    pub fn all_values(&self) -> impl Iterator<Item = &str> {
        self.attributes.iter().map(|(_, value)| value.as_str())
    }

    /// The common name, which is the name of a user: the last one, as in Go. Empty if there is none.
    pub fn common_name(&self) -> &str {
        self.values(Self::COMMON_NAME).next_back().unwrap_or_default()
    }

    /// The organizations, which are the groups of a user.
    pub fn organizations(&self) -> impl Iterator<Item = &str> {
        self.values(Self::ORGANIZATION)
    }

    /// The name as a certificate is signed with it: what was read, written anew, so that nobody can read anything else in it.
    /// Attributes that Go's `pkix.Name` does not know are left out, as by the signer of kube-controller-manager.
    pub fn to_der(&self) -> Vec<u8> {
        let mut sets = Vec::new();
        for number in SIGNED {
            let kind = [0x55, 4, number];
            let mut values: Vec<Vec<u8>> = self.values(&kind).map(|value| attribute(&kind, value)).collect();
            // The elements of a set are sorted.
            values.sort();
            if !values.is_empty() {
                sets.extend(der::value(SET, &values.concat()));
            }
        }
        for number in SIGNED_ONCE {
            let kind = [0x55, 4, number];
            if let Some(value) = self.values(&kind).next_back().filter(|value| !value.is_empty()) {
                sets.extend(der::value(SET, &attribute(&kind, value)));
            }
        }
        der::value(SEQUENCE, &sets)
    }
}

fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    // Go allows two more letters when it reads than when it writes.
    let printable = value.bytes().all(|byte| is_printable(byte) && !matches!(byte, b'*' | b'&'));
    let tag = if printable { PRINTABLE_STRING } else { UTF8_STRING };
    der::value(SEQUENCE, &[der::value(OBJECT_IDENTIFIER, kind), der::value(tag, value.as_bytes())].concat())
}

/// A string of one of the types that Go knows.
fn text(tag: u8, value: &[u8]) -> Option<String> {
    let ascii = |allowed: fn(u8) -> bool| {
        value.iter().all(|byte| allowed(*byte)).then(|| value.iter().copied().map(char::from).collect())
    };
    match tag {
        UTF8_STRING => std::str::from_utf8(value).ok().map(str::to_owned),
        PRINTABLE_STRING => ascii(is_printable),
        IA5_STRING => ascii(|byte| byte.is_ascii()),
        NUMERIC_STRING => ascii(|byte| byte.is_ascii_digit() || byte == b' '),
        // Read as Latin-1, as nearly everybody does.
        T61_STRING => ascii(|_| true),
        BMP_STRING => basic_plane(value),
        _ => None,
    }
}

fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()*+,-./:=?&".contains(&byte)
}

/// A text of two bytes a letter, which may end with a zero.
fn basic_plane(value: &[u8]) -> Option<String> {
    let value = value.strip_suffix(&[0, 0]).filter(|_| value.len().is_multiple_of(2)).unwrap_or(value);
    let (pairs, rest) = value.as_chunks::<2>();
    let letter = |pair: &[u8; 2]| {
        let point = u16::from_be_bytes(*pair);
        // Surrogates are no letters, and neither are these.
        let reserved = matches!(point, 0xfffe | 0xffff | 0xfdd0..=0xfdef);
        char::from_u32(point.into()).filter(|_| !reserved)
    };
    pairs.iter().map(letter).collect::<Option<String>>().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of attributes: the last byte of the object identifier, the tag and the bytes of the value.
    fn name(attributes: &[(u8, u8, &[u8])]) -> Option<Name> {
        let sets = attributes.iter().flat_map(|(number, tag, value)| {
            let pair = [der::value(OBJECT_IDENTIFIER, &[0x55, 4, *number]), der::value(*tag, value)].concat();
            der::value(SET, &der::value(SEQUENCE, &pair))
        });
        Name::read(&mut Reader::new(&der::value(SEQUENCE, &sets.collect::<Vec<u8>>())))
    }

    #[test]
    fn strings_are_read_as_in_go() {
        #[track_caller]
        fn check(tag: u8, value: &[u8], expect: Option<&str>) {
            assert_eq!(name(&[(3, tag, value)]).as_ref().map(Name::common_name), expect, "{tag:#x} {value:?}");
        }
        check(UTF8_STRING, "zoë".as_bytes(), Some("zoë"));
        check(UTF8_STRING, &[0xff], None);
        check(PRINTABLE_STRING, b"system:node:n1", Some("system:node:n1"));
        check(PRINTABLE_STRING, b"a_b", None);
        check(IA5_STRING, b"a_b", Some("a_b"));
        check(IA5_STRING, &[0x80], None);
        check(NUMERIC_STRING, b"1 2", Some("1 2"));
        check(NUMERIC_STRING, b"a", None);
        check(T61_STRING, b"zo\xeb", Some("zoë"));
        check(BMP_STRING, &[0, b'a', 1, 0], Some("aĀ"));
        check(BMP_STRING, &[0, b'a', 0, 0], Some("a"));
        check(BMP_STRING, &[0, b'a', 0], None);
        check(BMP_STRING, &[0xd8, 0], None);
        check(BMP_STRING, &[0xff, 0xfe], None);
        // VisibleString, UniversalString and a number.
        check(0x1a, b"a", None);
        check(0x1c, &[0, 0, 0, b'a'], None);
        check(der::INTEGER, &[7], None);
    }

    #[test]
    fn a_name_is_signed_as_it_was_read() {
        let (controller, node) = (&b"system:kube-controller-manager"[..], &b"system:node:n1"[..]);
        let read = name(&[
            (10, UTF8_STRING, b"zz"),
            (3, UTF8_STRING, controller),
            (10, T61_STRING, b"a"),
            (3, T61_STRING, node),
        ]);
        let read = read.expect("a name");
        assert_eq!(read.common_name(), "system:node:n1");
        let signed = Name::read(&mut Reader::new(&read.to_der())).expect("a name");
        assert_eq!(signed.all_values().collect::<Vec<_>>(), ["a", "zz", "system:node:n1"]);
        // An attribute that Go does not know.
        let other = name(&[(45, UTF8_STRING, b"7")]).expect("a name");
        assert_eq!(other.to_der(), [SEQUENCE, 0]);
    }
}
