//! Reducers: how a written value and the value a channel has become the channel's next value. All of them work on JSON
//! text and leave what they do not change byte for byte as it was.

use super::id::folded_message_id;
use crate::json::{JsonError, Shallow, canonical, quote, shallow, unquote};
use bigdecimal::BigDecimal;
use std::collections::{HashMap, HashSet};
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reducer {
    Replace,
    Append,
    AddMessages,
    Sum,
    Merge,
    Union,
}

impl Reducer {
    pub const ALL: [(&'static str, Reducer); 6] = [
        ("replace", Reducer::Replace),
        ("append", Reducer::Append),
        ("add_messages", Reducer::AddMessages),
        ("sum", Reducer::Sum),
        ("merge", Reducer::Merge),
        ("union", Reducer::Union),
    ];

    pub fn by_name(name: &str) -> Option<Reducer> {
        Reducer::ALL.iter().find(|(known, _)| *known == name).map(|(_, reducer)| *reducer)
    }

    pub fn name(self) -> &'static str {
        Reducer::ALL.iter().find(|(_, reducer)| *reducer == self).map_or("", |(name, _)| name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReduceError {
    /// What the reducer needs, and what it was given: the channel's value or the write.
    WrongType {
        needs: &'static str,
        whose: Whose,
        found: &'static str,
    },
    /// A message whose `id` or `ephemeral` is of the wrong type.
    BadMessage(&'static str),
    /// A sum with more digits than [`MAX_DIGITS`].
    TooManyDigits,
    Json(JsonError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Channel,
    Write,
}

impl From<JsonError> for ReduceError {
    fn from(error: JsonError) -> Self {
        ReduceError::Json(error)
    }
}

/// A sum is written out in full, so `1e1000000` plus anything would be a megabyte: 16,383 digits on each side of the point
/// are what SQL's `numeric` keeps behind its own.
pub const MAX_DIGITS: i64 = 16_383;

/// Where a write comes from: what the id of a message without one is made of.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    pub checkpoint_id: &'a str,
    pub task_id: &'a str,
    pub idx: i32,
}

/// The channel's next value. `current` is `None` where the channel is absent, which every reducer takes for its identity.
pub fn reduce(reducer: Reducer, current: Option<&str>, write: &str, origin: Origin<'_>) -> Result<String, ReduceError> {
    match reducer {
        Reducer::Replace => Ok(write.trim().to_owned()),
        Reducer::Append => {
            let list = list_of(current)?;
            Ok(join(current, &list, &elements_of(write)?))
        }
        Reducer::Union => union(current, write),
        Reducer::AddMessages => add_messages(current, write, origin),
        Reducer::Sum => sum(current, write),
        Reducer::Merge => merge(current, write),
    }
}

fn wrong_type<T>(needs: &'static str, whose: Whose, value: &Shallow<'_>) -> Result<T, ReduceError> {
    Err(ReduceError::WrongType { needs, whose, found: value.type_name() })
}

fn list_of(current: Option<&str>) -> Result<Vec<&str>, ReduceError> {
    match current.map(shallow).transpose()? {
        None => Ok(Vec::new()),
        Some(Shallow::Array(elements)) => Ok(elements),
        Some(other) => wrong_type("an array", Whose::Channel, &other),
    }
}

/// A written list stands for its elements, any other value for itself.
fn elements_of(write: &str) -> Result<Vec<&str>, ReduceError> {
    Ok(match shallow(write)? {
        Shallow::Array(elements) => elements,
        _ => vec![write.trim()],
    })
}

/// The list with more elements behind it; the text of what was there is kept as it is.
fn join<S: AsRef<str>>(current: Option<&str>, list: &[&str], more: &[S]) -> String {
    let more = more.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match current {
        Some(text) if more.is_empty() => text.trim().to_owned(),
        Some(text) if !list.is_empty() => {
            let open = text.trim().strip_suffix(']').unwrap_or_default();
            format!("{open}, {more}]")
        }
        _ => format!("[{more}]"),
    }
}

fn union(current: Option<&str>, write: &str) -> Result<String, ReduceError> {
    let list = list_of(current)?;
    let mut known: HashSet<String> = HashSet::new();
    for element in &list {
        known.insert(canonical(element)?);
    }
    let mut new = Vec::new();
    for element in elements_of(write)? {
        if known.insert(canonical(element)?) {
            new.push(element);
        }
    }
    Ok(join(current, &list, &new))
}

fn add_messages(current: Option<&str>, write: &str, origin: Origin<'_>) -> Result<String, ReduceError> {
    let list = list_of(current)?;
    let mut place_of: HashMap<String, usize> = HashMap::new();
    for (place, element) in list.iter().enumerate() {
        let message = shallow(element)?;
        if let Some(id) = message.member("id").filter(|id| id.starts_with('"')) {
            place_of.insert(unquote(id)?.into_owned(), place);
        }
    }
    let mut replaced: HashMap<usize, String> = HashMap::new();
    let mut new: Vec<String> = Vec::new();
    for (at, element) in elements_of(write)?.into_iter().enumerate() {
        let message = shallow(element)?;
        let Shallow::Object(_) = message else {
            return wrong_type("message objects", Whose::Write, &message);
        };
        match message.member("ephemeral") {
            Some("true") => continue,
            None | Some("false") => {}
            Some(_) => return Err(ReduceError::BadMessage("its \"ephemeral\" is not a boolean")),
        }
        let (id, text) = match message.member("id") {
            Some(id) if id.starts_with('"') => (unquote(id)?.into_owned(), element.to_owned()),
            None | Some("null") => {
                let id = folded_message_id(origin.checkpoint_id, origin.task_id, origin.idx, at as u64);
                let text = with_id(&message, &id);
                (id, text)
            }
            Some(_) => return Err(ReduceError::BadMessage("its \"id\" is not a string")),
        };
        match place_of.get(&id) {
            Some(&place) if place < list.len() => {
                replaced.insert(place, text);
            }
            Some(&place) => new[place - list.len()] = text,
            None => {
                place_of.insert(id, list.len() + new.len());
                new.push(text);
            }
        }
    }
    if replaced.is_empty() {
        return Ok(join(current, &list, &new));
    }
    let kept = list.iter().enumerate().map(|(place, element)| replaced.get(&place).map_or(*element, String::as_str));
    Ok(format!("[{}]", kept.chain(new.iter().map(String::as_str)).collect::<Vec<_>>().join(", ")))
}

fn with_id(message: &Shallow<'_>, id: &str) -> String {
    let Shallow::Object(members) = message else {
        return String::new();
    };
    let others = members.iter().filter(|member| member.key != "id");
    let mut parts: Vec<String> = others.map(|member| format!("{}: {}", member.raw_key, member.value)).collect();
    parts.push(format!("\"id\": {}", quote(id)));
    format!("{{{}}}", parts.join(", "))
}

fn sum(current: Option<&str>, write: &str) -> Result<String, ReduceError> {
    let number = |text: &str, whose| match shallow(text)? {
        Shallow::Number(number) => decimal(number),
        other => wrong_type("a number", whose, &other),
    };
    let added = number(write, Whose::Write)?;
    let Some(current) = current else {
        return Ok(write.trim().to_owned());
    };
    Ok((number(current, Whose::Channel)? + added).to_plain_string())
}

fn decimal(text: &str) -> Result<BigDecimal, ReduceError> {
    if text.len() as i64 > 2 * MAX_DIGITS {
        return Err(ReduceError::TooManyDigits);
    }
    let value = BigDecimal::from_str(text).map_err(|_| ReduceError::TooManyDigits)?;
    let scale = value.fractional_digit_count();
    let whole_digits = (value.digits() as i64).saturating_sub(scale);
    if scale > MAX_DIGITS || whole_digits > MAX_DIGITS {
        return Err(ReduceError::TooManyDigits);
    }
    Ok(value)
}

fn merge(current: Option<&str>, write: &str) -> Result<String, ReduceError> {
    let added = match shallow(write)? {
        Shallow::Object(members) => members,
        other => return wrong_type("an object", Whose::Write, &other),
    };
    let mut members = match current.map(shallow).transpose()? {
        None => return Ok(write.trim().to_owned()),
        Some(Shallow::Object(members)) => members,
        Some(other) => return wrong_type("an object", Whose::Channel, &other),
    };
    let mut place_of: HashMap<String, usize> =
        members.iter().enumerate().map(|(place, member)| (member.key.clone().into_owned(), place)).collect();
    for member in added {
        match place_of.get(member.key.as_ref()) {
            Some(&place) => members[place].value = member.value,
            None => {
                place_of.insert(member.key.clone().into_owned(), members.len());
                members.push(member);
            }
        }
    }
    let parts: Vec<String> = members.iter().map(|member| format!("{}: {}", member.raw_key, member.value)).collect();
    Ok(format!("{{{}}}", parts.join(", ")))
}

#[cfg(test)]
#[path = "reducer_tests.rs"]
mod tests;
