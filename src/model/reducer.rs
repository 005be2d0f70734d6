//! Reducers: how a written value and the value a channel has become the channel's next value. All of them work on JSON
//! text and leave what they do not change byte for byte as it was.

use super::id::folded_message_id;
use crate::json::{JsonError, Shallow, canonical, quote, shallow_tolerant as shallow, unquote};
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

/// A channel's value on its way through a fold: begun with the value it has, given the writes one by one, finished once. Each
/// write costs what it adds, whatever the channel holds.
pub enum Accumulator {
    Replace(Option<String>),
    Append(List),
    AddMessages {
        list: List,
        place_of: HashMap<String, usize>,
    },
    Union {
        list: List,
        known: HashSet<String>,
    },
    /// One number alone keeps its text; a sum is written by value.
    Sum {
        alone: Option<String>,
        value: Option<BigDecimal>,
    },
    Merge {
        members: Vec<(String, String)>,
        place_of: HashMap<String, usize>,
        untouched: Option<String>,
    },
}

impl Accumulator {
    /// `current` is `None` where the channel is absent, which every reducer takes for its identity.
    pub fn new(reducer: Reducer, current: Option<&str>) -> Result<Self, ReduceError> {
        Ok(match reducer {
            Reducer::Replace => Accumulator::Replace(current.map(str::to_owned)),
            Reducer::Append => Accumulator::Append(List::new(current)?.0),
            Reducer::AddMessages => {
                let (list, elements) = List::new(current)?;
                let mut place_of = HashMap::new();
                for (place, element) in elements.iter().enumerate() {
                    if let Some(id) = shallow(element)?.member("id").filter(|id| id.starts_with('"')) {
                        place_of.insert(unquote(id)?.into_owned(), place);
                    }
                }
                Accumulator::AddMessages { list, place_of }
            }
            Reducer::Union => {
                let (list, elements) = List::new(current)?;
                let known = elements.into_iter().map(by_value).collect();
                Accumulator::Union { list, known }
            }
            Reducer::Sum => Accumulator::Sum {
                value: current.map(|current| number(current, Whose::Channel)).transpose()?,
                alone: current.map(|current| current.trim().to_owned()),
            },
            Reducer::Merge => {
                let mut merged = Accumulator::Merge {
                    members: Vec::new(),
                    place_of: HashMap::new(),
                    untouched: current.map(|current| current.trim().to_owned()),
                };
                if let Some(current) = current {
                    merged.merge(current, Whose::Channel)?;
                }
                merged
            }
        })
    }

    pub fn add(&mut self, write: &str, origin: Origin<'_>) -> Result<(), ReduceError> {
        match self {
            Accumulator::Replace(value) => *value = Some(write.trim().to_owned()),
            Accumulator::Append(list) => elements_of(write)?.into_iter().for_each(|element| list.push(element)),
            Accumulator::AddMessages { list, place_of } => add_messages(list, place_of, write, origin)?,
            Accumulator::Union { list, known } => {
                for element in elements_of(write)? {
                    if known.insert(by_value(element)) {
                        list.push(element);
                    }
                }
            }
            Accumulator::Sum { alone, value } => {
                let added = number(write, Whose::Write)?;
                *alone = value.is_none().then(|| write.trim().to_owned());
                let sum = match value.take() {
                    Some(value) => value + added,
                    None => added,
                };
                check_digits(&sum)?;
                *value = Some(sum);
            }
            Accumulator::Merge { .. } => self.merge(write, Whose::Write)?,
        }
        Ok(())
    }

    pub fn finish(self) -> String {
        match self {
            Accumulator::Replace(value) => value.unwrap_or_default(),
            Accumulator::Append(list) | Accumulator::AddMessages { list, .. } | Accumulator::Union { list, .. } => {
                list.finish()
            }
            Accumulator::Sum { alone: Some(text), .. } => text,
            Accumulator::Sum { value, .. } => value.map(|value| value.to_plain_string()).unwrap_or_default(),
            Accumulator::Merge { untouched: Some(text), .. } => text,
            Accumulator::Merge { members, .. } => {
                let parts: Vec<String> = members.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                format!("{{{}}}", parts.join(", "))
            }
        }
    }

    fn merge(&mut self, object: &str, whose: Whose) -> Result<(), ReduceError> {
        let Accumulator::Merge { members, place_of, untouched } = self else {
            return Ok(());
        };
        let added = match shallow(object)? {
            Shallow::Object(added) => added,
            other => return wrong_type("an object", whose, &other),
        };
        if whose == Whose::Write {
            // The first write of all stands as it is written.
            *untouched = (members.is_empty() && untouched.is_none()).then(|| object.trim().to_owned());
        }
        for member in added {
            match place_of.get(member.key.as_ref()) {
                Some(&place) => members[place].1 = member.value.to_owned(),
                None => {
                    place_of.insert(member.key.into_owned(), members.len());
                    members.push((member.raw_key.to_owned(), member.value.to_owned()));
                }
            }
        }
        Ok(())
    }
}

/// A JSON list that grows at its end. The text that was there stays as it is until an element of it is replaced.
pub struct List {
    /// Up to, and without, the closing bracket.
    text: String,
    length: usize,
    /// New texts of elements, by place.
    replaced: HashMap<usize, String>,
}

impl List {
    /// The list, and the elements that it has.
    fn new(current: Option<&str>) -> Result<(List, Vec<&str>), ReduceError> {
        let elements = match current.map(shallow).transpose()? {
            None => Vec::new(),
            Some(Shallow::Array(elements)) => elements,
            Some(other) => return wrong_type("an array", Whose::Channel, &other),
        };
        let text = match current {
            Some(current) if !elements.is_empty() => current.trim().strip_suffix(']').unwrap_or_default(),
            _ => "[",
        };
        Ok((List { text: text.to_owned(), length: elements.len(), replaced: HashMap::new() }, elements))
    }

    fn push(&mut self, element: &str) {
        if self.length > 0 {
            self.text.push_str(", ");
        }
        self.text.push_str(element);
        self.length += 1;
    }

    fn finish(mut self) -> String {
        self.text.push(']');
        if self.replaced.is_empty() {
            return self.text;
        }
        let elements = match shallow(&self.text) {
            Ok(Shallow::Array(elements)) => elements,
            _ => Vec::new(),
        };
        let texts = elements.iter().enumerate();
        let texts = texts.map(|(place, element)| self.replaced.get(&place).map_or(*element, String::as_str));
        format!("[{}]", texts.collect::<Vec<_>>().join(", "))
    }
}

fn wrong_type<T>(needs: &'static str, whose: Whose, value: &Shallow<'_>) -> Result<T, ReduceError> {
    Err(ReduceError::WrongType { needs, whose, found: value.type_name() })
}

/// A written list stands for its elements, any other value for itself.
fn elements_of(write: &str) -> Result<Vec<&str>, ReduceError> {
    Ok(match shallow(write)? {
        Shallow::Array(elements) => elements,
        _ => vec![write.trim()],
    })
}

fn add_messages(
    list: &mut List,
    place_of: &mut HashMap<String, usize>,
    write: &str,
    origin: Origin<'_>,
) -> Result<(), ReduceError> {
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
            Some(&place) => {
                list.replaced.insert(place, text);
            }
            None => {
                place_of.insert(id, list.length);
                list.push(&text);
            }
        }
    }
    Ok(())
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

fn number(text: &str, whose: Whose) -> Result<BigDecimal, ReduceError> {
    match shallow(text)? {
        Shallow::Number(number) => decimal(number),
        other => wrong_type("a number", whose, &other),
    }
}

fn decimal(text: &str) -> Result<BigDecimal, ReduceError> {
    if text.len() as i64 > 2 * MAX_DIGITS {
        return Err(ReduceError::TooManyDigits);
    }
    let value = BigDecimal::from_str(text).map_err(|_| ReduceError::TooManyDigits)?;
    check_digits(&value)?;
    Ok(value)
}

/// What a sum gives can be added to again.
fn check_digits(value: &BigDecimal) -> Result<(), ReduceError> {
    let scale = value.fractional_digit_count();
    let whole_digits = (value.digits() as i64).saturating_sub(scale);
    if scale > MAX_DIGITS || whole_digits > MAX_DIGITS { Err(ReduceError::TooManyDigits) } else { Ok(()) }
}

/// The form in which two elements are equal if their values are: the canonical one, or, of what has none, the text.
fn by_value(element: &str) -> String {
    canonical(element).unwrap_or_else(|_| element.to_owned())
}

#[cfg(test)]
#[path = "reducer_tests.rs"]
mod tests;
