//! One version of one key as bytes: a version goes in, a record comes out, and back. A record that was altered, cut or
//! moved to another place in the table does not decode; what it says is never guessed.
//!
//! ```text
//!   ┌──────┬─────────┬────────────┬─────┬───────┬─────────┐
//!   │ kind │ created │ key length │ key │ value │  crc32  │   the checksum also covers revision and place,
//!   │  u8  │   u64   │    u32     │     │       │   u32   │   which are the record's key in the table
//!   └──────┴─────────┴────────────┴─────┴───────┴─────────┘   (numbers are little-endian)
//! ```

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Revision,
    index::{RecordId, Version},
};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const HEAD: usize = 1 + 8 + 4;
const CHECKSUM: usize = 4;

/// Appends the record of a version to `buffer`, which is cleared first. Gives its checksum.
pub(super) fn encode(key: &str, version: &Version, buffer: &mut Vec<u8>) -> u32 {
    let key_length = u32::try_from(key.len()).expect("a key is shorter than 4 GiB");
    buffer.clear();
    buffer.push(if version.value.is_some() { PUT } else { DELETE });
    buffer.extend_from_slice(&version.created.0.to_le_bytes());
    buffer.extend_from_slice(&key_length.to_le_bytes());
    buffer.extend_from_slice(key.as_bytes());
    buffer.extend_from_slice(version.value.as_deref().unwrap_or_default());
    let checksum = checksum(version.id(), buffer);
    buffer.extend_from_slice(&checksum.to_le_bytes());
    checksum
}

/// The key and the version a record holds, or what is wrong with it.
pub(super) fn decode(id: RecordId, record: &[u8]) -> Result<(Arc<str>, Version), &'static str> {
    let (content, stored) = split(record).ok_or("it is too short")?;
    if checksum(id, content) != stored {
        return Err("its checksum does not match its content");
    }
    let (head, rest) = content.split_at_checked(HEAD).ok_or("it is too short")?;
    let number =
        |range: std::ops::Range<usize>| head[range].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let created = Revision(number(1..9));
    let key_length = usize::try_from(number(9..13)).map_err(|_| "its key is too long")?;
    let (key, value) = rest.split_at_checked(key_length).ok_or("its key is longer than itself")?;
    let key = std::str::from_utf8(key).map_err(|_| "its key is not text")?;
    let value = match head[0] {
        PUT => Some(Bytes::copy_from_slice(value)),
        DELETE if value.is_empty() => None,
        _ => return Err("it is neither a value nor a deletion"),
    };
    if created > id.0 {
        return Err("it was created after it was written");
    }
    Ok((key.into(), Version { revision: id.0, created, place: id.1, value }))
}

/// The checksum a record carries, unverified; `None`: too short to have one.
pub(super) fn stored_checksum(record: &[u8]) -> Option<u32> {
    split(record).map(|(_, checksum)| checksum)
}

fn split(record: &[u8]) -> Option<(&[u8], u32)> {
    let (content, checksum) = record.split_last_chunk::<CHECKSUM>()?;
    Some((content, u32::from_le_bytes(*checksum)))
}

fn checksum((revision, place): RecordId, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.0.to_le_bytes());
    hasher.update(&place.to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, revision: u64, created: u64, place: u32, value: Option<&'static [u8]>) -> Vec<u8> {
        let id = (Revision(revision), place);
        let version =
            Version { revision: id.0, created: Revision(created), place, value: value.map(Bytes::from_static) };
        let mut record = Vec::new();
        let checksum = encode(key, &version, &mut record);
        assert_eq!(stored_checksum(&record), Some(checksum));
        let (decoded_key, decoded) = decode(id, &record).expect("what was encoded decodes");
        assert_eq!((&*decoded_key, decoded.id(), decoded.created), (key, id, Revision(created)));
        assert_eq!(decoded.value.as_deref(), value);
        record
    }

    #[test]
    fn what_is_encoded_decodes() {
        check("/a", 1, 1, 0, Some(b"value"));
        check("/a", u64::MAX, 1, u32::MAX, Some(b""));
        check("", 9, 3, 2, None);
        check("/käse/🧀", 9, 9, 0, Some(&[0; 5000]));
    }

    #[test]
    fn any_flipped_bit_any_cut_and_any_other_place_is_noticed() {
        let id = (Revision(7), 3);
        let record = check("/pods/web", 7, 5, 3, Some(b"some value"));
        for bit in 0..record.len() * 8 {
            let mut flipped = record.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(id, &flipped).is_err(), "bit {bit}");
        }
        for length in 0..record.len() {
            assert!(decode(id, &record[..length]).is_err(), "cut to {length}");
        }
        assert!(decode((Revision(8), 3), &record).is_err());
        assert!(decode((Revision(7), 2), &record).is_err());
    }
}
