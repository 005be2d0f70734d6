//! Canonical JSON: one text for all spellings of one value, for ids and for equality.
//!
//! No white space; object keys in the order of their UTF-8 bytes; strings in UTF-8 with only `"`, `\` and U+0000 to
//! U+001F escaped (the last as `\u00xx` in lower case); numbers by exact decimal value (see [`super::number`]).
//! Published in `docs/msg_id.md` with test vectors.

use super::number::canonical_number;
use super::{EventKind, JsonError, Problem, Walker, unquote};

/// The canonical form of `text`.
///
/// Errors: a lone surrogate, a key twice in one object (at any depth), an exponent of more than 18 digits.
pub fn canonical(text: &str) -> Result<String, JsonError> {
    canonical_without(text, &[])
}

/// The canonical form of an object without some of its top-level members.
pub fn canonical_without(text: &str, omit: &[&str]) -> Result<String, JsonError> {
    let objects = index_objects(text, omit)?;
    Ok(emit(text, &objects))
}

struct Object {
    start: usize,
    end: usize,
    /// Key and start of the value, in the order of the keys.
    members: Vec<(String, usize)>,
}

/// First pass: where each object begins and ends, and its members sorted. Arrays and scalars need no index, so that the
/// memory needed is bounded by the number of object members, whatever the depth.
fn index_objects(text: &str, omit: &[&str]) -> Result<Vec<Object>, JsonError> {
    let mut objects: Vec<Object> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut walker = Walker::new(text);
    while let Some(event) = walker.next_event()? {
        match event.kind {
            EventKind::BeginObject => {
                open.push(objects.len());
                objects.push(Object { start: event.start, end: 0, members: Vec::new() });
            }
            EventKind::Key => {
                let key = unquote(&text[event.start..event.end])?.into_owned();
                if let Some(&object) = open.last() {
                    // Until the object is closed and sorted, the offset of the key stands for that of the value.
                    objects[object].members.push((key, event.start));
                }
            }
            EventKind::EndObject => {
                let Some(index) = open.pop() else { continue };
                let object = &mut objects[index];
                object.end = event.end;
                object.members.sort();
                if let Some(pair) = object.members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    let problem = Problem::DuplicateKey(pair[1].0.clone());
                    return Err(JsonError { problem, offset: pair[1].1 });
                }
                for member in &mut object.members {
                    member.1 = value_after_key(text, member.1);
                }
            }
            EventKind::Number if canonical_number(&text[event.start..event.end]).is_none() => {
                return Err(JsonError { problem: Problem::ExponentTooLong, offset: event.start });
            }
            _ => {}
        }
    }
    if let Some(root) = objects.first_mut()
        && text.trim_start().starts_with('{')
    {
        root.members.retain(|(key, _)| !omit.contains(&key.as_str()));
    }
    Ok(objects)
}

fn value_after_key(text: &str, key_start: usize) -> usize {
    let colon = skip_space(text, string_end(text, key_start));
    skip_space(text, colon + 1)
}

enum Work {
    Value(usize),
    /// The next member of an object.
    Member(usize, usize),
    /// What follows an element of an array.
    ArrayRest,
}

/// Second pass, over a text that the first pass has accepted.
fn emit(text: &str, objects: &[Object]) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut work = vec![Work::Value(skip_space(text, 0))];
    let mut end = 0;
    while let Some(step) = work.pop() {
        match step {
            Work::Value(at) => match bytes[at] {
                b'{' => {
                    let index = objects.partition_point(|object| object.start < at);
                    out.push('{');
                    work.push(Work::Member(index, 0));
                }
                b'[' => {
                    out.push('[');
                    let inside = skip_space(text, at + 1);
                    if bytes[inside] == b']' {
                        out.push(']');
                        end = inside + 1;
                    } else {
                        work.push(Work::ArrayRest);
                        work.push(Work::Value(inside));
                    }
                }
                b'"' => {
                    end = string_end(text, at);
                    push_string(&mut out, &unquote(&text[at..end]).unwrap_or_default());
                }
                _ => {
                    end = scalar_end(text, at);
                    let scalar = &text[at..end];
                    match canonical_number(scalar) {
                        Some(number) if bytes[at] != b't' && bytes[at] != b'f' && bytes[at] != b'n' => {
                            out.push_str(&number)
                        }
                        _ => out.push_str(scalar),
                    }
                }
            },
            Work::Member(object, index) => match objects[object].members.get(index) {
                None => {
                    out.push('}');
                    end = objects[object].end;
                }
                Some((key, value)) => {
                    if index > 0 {
                        out.push(',');
                    }
                    push_string(&mut out, key);
                    out.push(':');
                    work.push(Work::Member(object, index + 1));
                    work.push(Work::Value(*value));
                }
            },
            Work::ArrayRest => {
                let at = skip_space(text, end);
                if bytes[at] == b',' {
                    out.push(',');
                    work.push(Work::ArrayRest);
                    work.push(Work::Value(skip_space(text, at + 1)));
                } else {
                    out.push(']');
                    end = at + 1;
                }
            }
        }
    }
    out
}

fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn skip_space(text: &str, mut at: usize) -> usize {
    while matches!(text.as_bytes().get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

fn string_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

fn scalar_end(text: &str, start: usize) -> usize {
    let rest = &text.as_bytes()[start..];
    let length =
        rest.iter().position(|b| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r')).unwrap_or(rest.len());
    start + length
}
