//! The manifest of a checkpoint: which channels it has, in which order, and where the bytes of each are.
//!
//! One small binary value in the checkpoint's row. Small channel values stand in it; of a large one it holds the digest
//! under which `checkpoint_blobs` has the bytes. So an unchanged large channel costs its digest and no bytes.
//!
//! Layout, version 1: the version byte, then per channel `text(name) text(type) place`, where `place` is `0 bytes(value)`
//! or `1 digest[32] varint(size)`; `text` and `bytes` are a varint length and the content; varints are LEB128.

use crate::json::quote;

const VERSION: u8 = 1;
const INLINE: u8 = 0;
const STORED: u8 = 1;

/// The type tag of a value that is JSON text.
pub const JSON: &str = "json";

pub type Digest = [u8; 32];

pub fn digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Inline(Vec<u8>),
    Stored { digest: Digest, size: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub name: String,
    /// The type tag, which says how to read the bytes.
    pub value_type: String,
    pub place: Place,
}

impl Channel {
    pub fn size(&self) -> u64 {
        match &self.place {
            Place::Inline(bytes) => bytes.len() as u64,
            Place::Stored { size, .. } => *size,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestError {
    /// Written by a later version of the extension.
    UnknownVersion(u8),
    Damaged,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    pub channels: Vec<Channel>,
}

impl Manifest {
    /// The digests of the values that stand in `checkpoint_blobs`.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.channels.iter().filter_map(|channel| match &channel.place {
            Place::Stored { digest, .. } => Some(*digest),
            Place::Inline(_) => None,
        })
    }

    /// For people and for clients that want the small values: those as they are, of the others type and size.
    pub fn summary_json(&self) -> String {
        let members: Vec<String> = self
            .channels
            .iter()
            .map(|channel| {
                let value = match &channel.place {
                    Place::Inline(bytes) if channel.value_type == JSON => String::from_utf8_lossy(bytes).into_owned(),
                    _ => format!("{{\"$type\": {}, \"$bytes\": {}}}", quote(&channel.value_type), channel.size()),
                };
                format!("{}: {value}", quote(&channel.name))
            })
            .collect();
        format!("{{{}}}", members.join(", "))
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for channel in &self.channels {
            put_bytes(&mut out, channel.name.as_bytes());
            put_bytes(&mut out, channel.value_type.as_bytes());
            match &channel.place {
                Place::Inline(bytes) => {
                    out.push(INLINE);
                    put_bytes(&mut out, bytes);
                }
                Place::Stored { digest, size } => {
                    out.push(STORED);
                    out.extend_from_slice(digest);
                    put_varint(&mut out, *size);
                }
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let mut rest = match bytes.split_first() {
            Some((&VERSION, rest)) => rest,
            Some((&version, _)) => return Err(ManifestError::UnknownVersion(version)),
            None => return Err(ManifestError::Damaged),
        };
        let mut channels = Vec::new();
        while !rest.is_empty() {
            channels.push(take_channel(&mut rest).ok_or(ManifestError::Damaged)?);
        }
        Ok(Manifest { channels })
    }
}

fn take_channel(rest: &mut &[u8]) -> Option<Channel> {
    let name = String::from_utf8(take_bytes(rest)?.to_vec()).ok()?;
    let value_type = String::from_utf8(take_bytes(rest)?.to_vec()).ok()?;
    let place = match take(rest, 1)?[0] {
        INLINE => Place::Inline(take_bytes(rest)?.to_vec()),
        STORED => {
            let digest = take(rest, 32)?.try_into().ok()?;
            Place::Stored { digest, size: take_varint(rest)? }
        }
        _ => return None,
    };
    Some(Channel { name, value_type, place })
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_varint(rest)?).ok()?;
    take(rest, length)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> impl Strategy<Value = Place> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Place::Inline),
            (any::<Digest>(), any::<u64>()).prop_map(|(digest, size)| Place::Stored { digest, size }),
        ]
    }

    fn manifest() -> impl Strategy<Value = Manifest> {
        let channel = (any::<String>(), ".{0,10}", place()).prop_map(|(name, value_type, place)| Channel {
            name,
            value_type,
            place,
        });
        prop::collection::vec(channel, 0..8).prop_map(|channels| Manifest { channels })
    }

    #[test]
    fn a_later_version_is_named() {
        assert_eq!(Manifest::decode(&[9, 1, 2]), Err(ManifestError::UnknownVersion(9)));
        assert_eq!(Manifest::decode(&[]), Err(ManifestError::Damaged));
    }

    proptest! {
        #[test]
        fn encoding_is_undone_by_decoding(manifest in manifest()) {
            prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }

        #[test]
        fn damage_is_an_error_and_no_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let _ = Manifest::decode(&bytes);
        }

        #[test]
        fn a_cut_manifest_is_never_taken_for_the_whole(manifest in manifest(), cut in any::<prop::sample::Index>()) {
            let bytes = manifest.encode();
            let shorter = &bytes[..cut.index(bytes.len())];
            prop_assert_ne!(Manifest::decode(shorter), Ok(manifest));
        }
    }
}
