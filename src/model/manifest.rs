//! The manifest of a checkpoint: which channels it has, in which order, and where the bytes of each are.
//!
//! One small binary value in the checkpoint's row. Small channel values stand in it; of a large one it holds the digest
//! under which `checkpoint_blobs` has the recipe. So an unchanged large channel costs its digest and no bytes.
//!
//! Layout, version 1: the version byte, then per channel `kind text(name) text(type)`, with [`VERSIONED`] in the kind
//! `text(version)`, and `bytes(value)` of an inline value, `digest[32] varint(size)` of a stored one, nothing of an absent
//! one; `text` and `bytes` are a varint length and the content; varints are LEB128.

use super::delta::Value;
use super::wire::{put_bytes, put_varint, take_array, take_bytes, take_varint};
use crate::json::quote;

const VERSION: u8 = 1;
const INLINE: u8 = 0;
const STORED: u8 = 1;
const ABSENT: u8 = 2;
const VERSIONED: u8 = 0x10;

/// The type tag of a value that is JSON text.
pub const JSON: &str = "json";

pub type Digest = [u8; 32];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Inline(Vec<u8>),
    Stored {
        digest: Digest,
        size: u64,
    },
    /// The channel has a version and no value, as in a framework's checkpoint it can.
    Absent,
}

impl Place {
    /// The key of the value in `checkpoint_blobs`, where it is there.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Place::Stored { digest, .. } => Some(*digest),
            Place::Inline(_) | Place::Absent => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub name: String,
    /// A framework's version of the channel, as JSON text; none in a JSON state.
    pub version: Option<String>,
    /// The type tag, which says how to read the bytes.
    pub value_type: String,
    pub place: Place,
}

impl Channel {
    pub fn size(&self) -> u64 {
        match &self.place {
            Place::Inline(bytes) => bytes.len() as u64,
            Place::Stored { size, .. } => *size,
            Place::Absent => 0,
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
    /// The channels whose values stand in `checkpoint_blobs`, with their keys there.
    pub fn stored(&self) -> impl Iterator<Item = (&str, Digest)> {
        self.channels.iter().filter_map(|channel| Some((channel.name.as_str(), channel.place.digest()?)))
    }

    /// Whether two manifests say the same, wherever their values are kept: the inline limit may have changed between them.
    pub fn same_content(&self, other: &Manifest) -> bool {
        let digest = |place: &Place| match place {
            Place::Inline(bytes) => Some(Value::new(bytes).digest),
            Place::Stored { digest, .. } => Some(*digest),
            Place::Absent => None,
        };
        let same = |(a, b): (&Channel, &Channel)| {
            let same_value = a.place == b.place || a.size() == b.size() && digest(&a.place) == digest(&b.place);
            same_value && (&a.name, &a.version, &a.value_type) == (&b.name, &b.version, &b.value_type)
        };
        self.channels.len() == other.channels.len() && self.channels.iter().zip(&other.channels).all(same)
    }

    /// For people and for clients that want the small values: those as they are, of the others type and size.
    pub fn summary_json(&self) -> String {
        let members: Vec<String> = self
            .channels
            .iter()
            .filter(|channel| channel.place != Place::Absent)
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
            let kind = match &channel.place {
                Place::Inline(_) => INLINE,
                Place::Stored { .. } => STORED,
                Place::Absent => ABSENT,
            };
            out.push(if channel.version.is_some() { kind | VERSIONED } else { kind });
            put_bytes(&mut out, channel.name.as_bytes());
            put_bytes(&mut out, channel.value_type.as_bytes());
            if let Some(version) = &channel.version {
                put_bytes(&mut out, version.as_bytes());
            }
            match &channel.place {
                Place::Inline(bytes) => put_bytes(&mut out, bytes),
                Place::Stored { digest, size } => {
                    out.extend_from_slice(digest);
                    put_varint(&mut out, *size);
                }
                Place::Absent => {}
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
    let [kind] = take_array(rest)?;
    let name = take_text(rest)?;
    let value_type = take_text(rest)?;
    let version = if kind & VERSIONED == 0 { None } else { Some(take_text(rest)?) };
    let place = match kind & !VERSIONED {
        INLINE => Place::Inline(take_bytes(rest)?.to_vec()),
        STORED => Place::Stored { digest: take_array(rest)?, size: take_varint(rest)? },
        ABSENT => Place::Absent,
        _ => return None,
    };
    Some(Channel { name, version, value_type, place })
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(rest)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> impl Strategy<Value = Place> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Place::Inline),
            (any::<Digest>(), any::<u64>()).prop_map(|(digest, size)| Place::Stored { digest, size }),
            Just(Place::Absent),
        ]
    }

    fn manifest() -> impl Strategy<Value = Manifest> {
        let version = prop::option::of(".{0,40}");
        let channel = (any::<String>(), version, ".{0,10}", place())
            .prop_map(|(name, version, value_type, place)| Channel { name, version, value_type, place });
        prop::collection::vec(channel, 0..8).prop_map(|channels| Manifest { channels })
    }

    #[test]
    fn the_same_value_is_the_same_wherever_it_is_kept() {
        let manifest = |value_type: &str, place| Manifest {
            channels: vec![Channel { name: "a".to_owned(), version: None, value_type: value_type.to_owned(), place }],
        };
        let bytes = vec![b'x'; 2000];
        let stored = Place::Stored { digest: Value::new(&bytes).digest, size: 2000 };
        assert!(manifest("t", Place::Inline(bytes.clone())).same_content(&manifest("t", stored.clone())));
        assert!(!manifest("t", Place::Inline(vec![b'y'; 2000])).same_content(&manifest("t", stored.clone())));
        assert!(!manifest("u", Place::Inline(bytes)).same_content(&manifest("t", stored.clone())));
        assert!(!manifest("t", Place::Absent).same_content(&manifest("t", stored)));
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
