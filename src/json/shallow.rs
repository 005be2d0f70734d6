//! The top level of a JSON value, as slices of its text.

use super::{EventKind, JsonError, Problem, Walker};
use std::borrow::Cow;
use std::collections::HashMap;

/// A member of an object: `raw_key` with its quotes, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    pub key: Cow<'a, str>,
    pub raw_key: &'a str,
    pub value: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shallow<'a> {
    Object(Vec<Member<'a>>),
    Array(Vec<&'a str>),
    String(&'a str),
    Number(&'a str),
    Literal(&'a str),
}

impl<'a> Shallow<'a> {
    /// The JSON type as messages to people name it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Shallow::Object(_) => "an object",
            Shallow::Array(_) => "an array",
            Shallow::String(_) => "a string",
            Shallow::Number(_) => "a number",
            Shallow::Literal("null") => "null",
            Shallow::Literal(_) => "a boolean",
        }
    }

    /// The value of a member, where this is an object that has it.
    pub fn member(&self, key: &str) -> Option<&'a str> {
        match self {
            Shallow::Object(members) => members.iter().find(|m| m.key == key).map(|m| m.value),
            _ => None,
        }
    }
}

/// Splits a value at its top level. The whole text is walked: what this accepts can be kept and given back.
///
/// Errors: a lone surrogate anywhere, a key that stands twice in the top-level object.
pub fn shallow(text: &str) -> Result<Shallow<'_>, JsonError> {
    split(text, false)
}

/// The same for a value that was accepted inside another one: of a key that stands twice the last counts, as for most readers
/// of JSON.
pub fn shallow_tolerant(text: &str) -> Result<Shallow<'_>, JsonError> {
    split(text, true)
}

fn split(text: &str, last_counts: bool) -> Result<Shallow<'_>, JsonError> {
    let mut walker = Walker::new(text);
    let Some(first) = walker.next_event()? else {
        return Err(JsonError { problem: Problem::Malformed, offset: 0 });
    };
    let result = match first.kind {
        EventKind::BeginObject => Shallow::Object(members(text, &mut walker, last_counts)?),
        EventKind::BeginArray => Shallow::Array(elements(text, &mut walker)?),
        EventKind::String => Shallow::String(&text[first.start..first.end]),
        EventKind::Number => Shallow::Number(&text[first.start..first.end]),
        _ => Shallow::Literal(&text[first.start..first.end]),
    };
    match walker.next_event()? {
        None => Ok(result),
        Some(event) => Err(JsonError { problem: Problem::Malformed, offset: event.start }),
    }
}

fn members<'a>(text: &'a str, walker: &mut Walker<'a>, last_counts: bool) -> Result<Vec<Member<'a>>, JsonError> {
    let mut members: Vec<Member<'a>> = Vec::new();
    let mut places = Places::default();
    while let Some(event) = walker.next_event()? {
        if event.kind == EventKind::EndObject {
            break;
        }
        let raw_key = &text[event.start..event.end];
        let key = unquote(raw_key)?;
        let before = places.insert(&key, &members);
        if before.is_some() && !last_counts {
            let problem = Problem::DuplicateKey(key.into_owned());
            return Err(JsonError { problem, offset: event.start });
        }
        let value = next_value(text, walker)?.ok_or(JsonError { problem: Problem::Malformed, offset: event.end })?;
        match before {
            Some(place) => members[place].value = value,
            None => members.push(Member { key, raw_key, value }),
        }
    }
    Ok(members)
}

/// Where the keys of an object are. A few are looked through; a table is made when there are more.
#[derive(Default)]
struct Places(HashMap<String, usize>);

impl Places {
    /// The place of the member that has the key already; else the key will have the next one.
    fn insert(&mut self, key: &str, members: &[Member<'_>]) -> Option<usize> {
        const FEW: usize = 16;
        if members.len() < FEW {
            return members.iter().position(|member| member.key == key);
        }
        if self.0.is_empty() {
            self.0.extend(members.iter().enumerate().map(|(place, member)| (member.key.to_string(), place)));
        }
        if let Some(place) = self.0.get(key) {
            return Some(*place);
        }
        self.0.insert(key.to_owned(), members.len());
        None
    }
}

fn elements<'a>(text: &'a str, walker: &mut Walker<'a>) -> Result<Vec<&'a str>, JsonError> {
    let mut elements = Vec::new();
    while let Some(value) = next_value(text, walker)? {
        elements.push(value);
    }
    Ok(elements)
}

/// The next value inside the container that the walker has just entered; `None` where the container ends.
fn next_value<'a>(text: &'a str, walker: &mut Walker<'a>) -> Result<Option<&'a str>, JsonError> {
    let outside = walker.depth();
    let Some(first) = walker.next_event()? else {
        return Ok(None);
    };
    match first.kind {
        EventKind::EndArray | EventKind::EndObject => Ok(None),
        EventKind::BeginArray | EventKind::BeginObject => {
            let mut end = first.end;
            while walker.depth() > outside {
                match walker.next_event()? {
                    Some(event) => end = event.end,
                    None => {
                        return Err(JsonError { problem: Problem::Malformed, offset: end });
                    }
                }
            }
            Ok(Some(&text[first.start..end]))
        }
        _ => Ok(Some(&text[first.start..first.end])),
    }
}

/// The text of a JSON string given with its quotes; borrowed where it has no escapes.
pub fn unquote(raw: &str) -> Result<Cow<'_, str>, JsonError> {
    let malformed = JsonError { problem: Problem::Malformed, offset: 0 };
    let inner = raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')).ok_or(malformed.clone())?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw).map(Cow::Owned).map_err(|_| malformed)
}

/// The JSON string, with its quotes, of a text.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
