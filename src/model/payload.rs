//! What of a pending write will stand in the state if its channel is a list that the write is appended to. A large write is
//! logged in that form at the end of its channel's log, where the next state then finds it.

use super::manifest::JSON;
use crate::json::{Shallow, shallow_tolerant};
use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// What a list has before the appended elements.
    pub separator: &'static [u8],
    /// The elements, as a part of the write.
    pub elements: Range<usize>,
}

impl Payload {
    /// `None` where the write is no list, or nobody can tell how the list will be written.
    pub fn of(value_type: &str, bytes: &[u8]) -> Option<Payload> {
        let payload = if value_type == JSON { json(bytes) } else { msgpack(value_type, bytes) }?;
        (!payload.elements.is_empty()).then_some(payload)
    }
}

fn msgpack(value_type: &str, bytes: &[u8]) -> Option<Payload> {
    let header = match bytes.first()? {
        _ if value_type != "msgpack" => return None,
        0x90..=0x9f => 1,
        0xdc => 3,
        0xdd => 5,
        _ => return None,
    };
    (header < bytes.len()).then_some(Payload { separator: b"", elements: header..bytes.len() })
}

/// With a space behind commas and colons, as the fold and Python write lists. Where there are none it could be either.
fn json(bytes: &[u8]) -> Option<Payload> {
    let text = std::str::from_utf8(bytes).ok()?;
    if !text.contains("\": ") {
        return None;
    }
    let separator = b", ";
    match shallow_tolerant(text).ok()? {
        Shallow::Array(elements) => {
            let inner = text.strip_prefix('[')?.strip_suffix(']')?;
            let joined =
                elements.iter().map(|element| element.len() + separator.len()).sum::<usize>() == inner.len() + 2;
            let spaced = elements.windows(2).all(|pair| {
                let between = pair[0].as_ptr() as usize + pair[0].len() - text.as_ptr() as usize;
                bytes[between..].starts_with(separator)
            });
            (joined && spaced).then_some(Payload { separator, elements: 1..bytes.len() - 1 })
        }
        Shallow::Object(_) if text.trim().len() == text.len() => Some(Payload { separator, elements: 0..bytes.len() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements<'a>(value_type: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
        Payload::of(value_type, bytes).map(|payload| &bytes[payload.elements])
    }

    #[test]
    fn of_msgpack_the_list_without_its_header() {
        assert_eq!(elements("msgpack", b"\x92\x01\x02"), Some(&b"\x01\x02"[..]));
        assert_eq!(elements("msgpack", b"\xdc\x00\x10abc"), Some(&b"abc"[..]));
        assert_eq!(elements("msgpack", b"\xdd\x00\x01\x00\x00abc"), Some(&b"abc"[..]));
        for other in [&b""[..], b"\x90", b"\xdc\x00", b"\x81\xa1a\x01", b"\xc4\x01a"] {
            assert_eq!(elements("msgpack", other), None, "{other:?}");
        }
        assert_eq!(elements("pickle", b"\x92\x01\x02"), None);
    }

    #[test]
    fn of_json_what_the_fold_will_append() {
        assert_eq!(elements("json", br#"[{"a": 1}, {"b": 2}]"#), Some(&br#"{"a": 1}, {"b": 2}"#[..]));
        assert_eq!(elements("json", br#"{"a": 1}"#), Some(&br#"{"a": 1}"#[..]));
        for other in
            [&br#"[{"a":1},{"b":2}]"#[..], br#"[{"a": 1},{"b": 2}]"#, br#"[ {"a": 1}]"#, b"[]", b"[1, 2]", b"\"x\""]
        {
            assert_eq!(elements("json", other), None, "{other:?}");
        }
    }
}
