//! JSON as text, without ever building a tree of it.
//!
//! The extension promises that JSON comes out as it went in: number text, key order and escapes. So values are handled
//! as slices of the text they arrived in, and a document is only walked. Nothing here recurses, because the depth of a
//! document is the caller's choice and the stack of a backend is not. Nothing here knows Postgres.

mod canonical;
mod number;
mod shallow;
mod walk;

pub use canonical::{canonical, canonical_without};
pub use shallow::{Member, Shallow, quote, shallow, shallow_tolerant, unquote};
pub use walk::{EventKind, Walker};

use std::fmt;

/// Why a JSON text cannot be kept or compared, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    pub problem: Problem,
    /// Byte offset into the text.
    pub offset: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    Malformed,
    /// Half of a surrogate pair: no Unicode text can hold it.
    LoneSurrogate,
    DuplicateKey(String),
    /// A number whose decimal exponent has more than 18 digits has no canonical form.
    ExponentTooLong,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Malformed => write!(f, "malformed JSON"),
            Problem::LoneSurrogate => write!(f, "a lone surrogate, which no text can hold"),
            Problem::DuplicateKey(key) => write!(f, "the key {} appears twice", quote(key)),
            Problem::ExponentTooLong => write!(f, "a number with an exponent of more than 18 digits"),
        }
    }
}

/// The JSON path (`$.messages[3].content`) of the value or key at or around byte `offset` of `text`.
pub fn path_at(text: &str, offset: usize) -> String {
    enum Frame {
        Key(String),
        Index(usize),
    }
    let mut walker = Walker::lenient(text);
    let mut frames: Vec<Frame> = Vec::new();
    while let Ok(Some(event)) = walker.next_event() {
        match event.kind {
            EventKind::EndObject | EventKind::EndArray => {
                frames.pop();
            }
            EventKind::Key => {
                let raw = &text[event.start..event.end];
                if let Some(Frame::Key(key)) = frames.last_mut() {
                    *key = unquote(raw).map_or_else(|_| raw.to_owned(), |k| k.into_owned());
                }
            }
            _ => {
                if let Some(Frame::Index(index)) = frames.last_mut() {
                    *index = index.wrapping_add(1);
                }
            }
        }
        if event.end > offset {
            break;
        }
        match event.kind {
            EventKind::BeginObject => frames.push(Frame::Key(String::new())),
            // The first element counts it up to 0.
            EventKind::BeginArray => frames.push(Frame::Index(usize::MAX)),
            _ => {}
        }
    }
    let mut path = String::from("$");
    for frame in frames {
        match frame {
            Frame::Key(key) if is_plain(&key) => {
                path.push('.');
                path.push_str(&key);
            }
            Frame::Key(key) => {
                path.push('[');
                path.push_str(&quote(&key));
                path.push(']');
            }
            Frame::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests;
