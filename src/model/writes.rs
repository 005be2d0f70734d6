//! The writes of a task: what a batch says, what the rows of a task add up to.
//!
//! Ordinary writes have idx 0, 1, …; the special channels have fixed negative ones, as in LangGraph, so that an interrupt
//! never takes the place of a result. An empty batch is stored as a finish mark.

use crate::json::{JsonError, Shallow, canonical, quote, shallow, unquote};
use std::collections::BTreeMap;

pub const ERROR: &str = "__error__";
pub const INTERRUPT: &str = "__interrupt__";
pub const RESUME: &str = "__resume__";

/// The special channels and their idx.
const SPECIAL: [(&str, i32); 4] = [(ERROR, -1), ("__scheduled__", -2), (INTERRUPT, -3), (RESUME, -4)];

/// Channels that steer a framework and never enter the state, beside the special ones.
const CONTROL: [&str; 4] = ["__no_writes__", "__push__", "__return__", "__error_source_node__"];

/// The channel and the type tag of a finish mark's row. The tag tells it from a write to that channel.
pub const MARK_CHANNEL: &str = "__no_writes__";
pub const MARK_TYPE: &str = "mark";

pub fn special_idx(channel: &str) -> Option<i32> {
    SPECIAL.iter().find(|(name, _)| *name == channel).map(|(_, idx)| *idx)
}

pub fn enters_state(channel: &str) -> bool {
    special_idx(channel).is_none() && !CONTROL.contains(&channel)
}

/// One stored row of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub idx: i32,
    pub channel: String,
    pub value_type: String,
    pub value: String,
}

impl Write {
    pub fn is_mark(&self) -> bool {
        self.value_type == MARK_TYPE
    }

    fn same_value(&self, other: &Write) -> bool {
        self.channel == other.channel
            && self.value_type == other.value_type
            && (self.value == other.value
                || canonical(&self.value).is_ok_and(|value| canonical(&other.value) == Ok(value)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchError {
    /// Something at this JSON path is not of the form `[["channel", value], …]`.
    Shape {
        path: String,
        found: &'static str,
    },
    Channel {
        path: String,
        channel: String,
    },
    Json(JsonError),
}

/// A batch as it was sent: the ordinary writes numbered from 0, the newest of each special channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub ordinary: Vec<Write>,
    pub special: Vec<Write>,
}

impl Batch {
    /// Reads `[["channel", value], …]`; `valid_name` says whether a text may be a channel's name.
    pub fn parse(json: &str, valid_name: impl Fn(&str) -> bool) -> Result<Batch, BatchError> {
        let shape = |path: String, found: &Shallow<'_>| BatchError::Shape { path, found: found.type_name() };
        let pairs = match shallow(json).map_err(BatchError::Json)? {
            Shallow::Array(pairs) => pairs,
            other => return Err(shape("$".to_owned(), &other)),
        };
        let mut special: BTreeMap<i32, Write> = BTreeMap::new();
        let mut ordinary = Vec::new();
        for (at, pair) in pairs.iter().enumerate() {
            let top = shallow(pair).map_err(|error| within(json, pair, error))?;
            let (channel, value) = match &top {
                Shallow::Array(parts) if parts.len() == 2 && parts[0].starts_with('"') => (parts[0], parts[1]),
                Shallow::Array(parts) if parts.len() == 2 => {
                    let found = shallow(parts[0]).map_err(|error| within(json, parts[0], error))?;
                    return Err(shape(format!("$[{at}][0]"), &found));
                }
                other => return Err(shape(format!("$[{at}]"), other)),
            };
            let channel = unquote(channel).map_err(|error| within(json, channel, error))?.into_owned();
            if !valid_name(&channel) {
                return Err(BatchError::Channel { path: format!("$[{at}][0]"), channel });
            }
            let value_type = super::manifest::JSON.to_owned();
            let value = value.to_owned();
            match special_idx(&channel) {
                Some(idx) => {
                    special.insert(idx, Write { idx, channel, value_type, value });
                }
                None => ordinary.push(Write { idx: ordinary.len() as i32, channel, value_type, value }),
            }
        }
        if pairs.is_empty() {
            let value = "null".to_owned();
            let (channel, value_type) = (MARK_CHANNEL.to_owned(), MARK_TYPE.to_owned());
            ordinary.push(Write { idx: 0, channel, value_type, value });
        }
        Ok(Batch { ordinary, special: special.into_values().collect() })
    }
}

/// An error inside `part`, a slice of `whole`, as an error of the whole.
fn within(whole: &str, part: &str, error: JsonError) -> BatchError {
    let base = part.as_ptr() as usize - whole.as_ptr() as usize;
    BatchError::Json(JsonError { offset: base + error.offset, ..error })
}

/// Where a task stands, by all its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has an error.
    Failed,
    /// A finish mark or an ordinary write, and no error.
    Finished,
    /// Only interrupts or resume values.
    Waiting,
    /// Nothing that says anything.
    Open,
}

pub fn standing(rows: &[Write]) -> Standing {
    let has = |channel| rows.iter().any(|row| row.idx < 0 && row.channel == channel);
    if has(ERROR) {
        Standing::Failed
    } else if rows.iter().any(|row| row.idx >= 0) {
        Standing::Finished
    } else if has(INTERRUPT) || has(RESUME) {
        Standing::Waiting
    } else {
        Standing::Open
    }
}

/// What to do where a task's ordinary writes differ from those it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    Error,
    Keep,
    Replace,
}

impl OnConflict {
    pub const NAMES: [&'static str; 3] = ["error", "keep", "replace"];

    pub fn by_name(name: &str) -> Option<OnConflict> {
        match name {
            "error" => Some(OnConflict::Error),
            "keep" => Some(OnConflict::Keep),
            "replace" => Some(OnConflict::Replace),
            _ => None,
        }
    }
}

/// How a batch changes the rows of its task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The idx of rows to remove first.
    pub remove: Vec<i32>,
    pub store: Vec<Write>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.store.is_empty()
    }
}

/// The task has other ordinary writes already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict;

/// Settles a batch against the rows that its task has. Only ordinary writes are compared: they stand or are replaced whole,
/// never mixed. Of a special channel the newest stands, but an error never undoes a finished task.
pub fn settle(rows: &[Write], batch: Batch, on_conflict: OnConflict) -> Result<Change, Conflict> {
    let before = standing(rows);
    let has: Vec<&Write> = rows.iter().filter(|row| row.idx >= 0).collect();
    let equal = |new: &[Write]| {
        has.len() == new.len() && has.iter().zip(new).all(|(old, new)| old.idx == new.idx && old.same_value(new))
    };
    let mut change = Change::default();
    let mut new = batch.ordinary;
    if !new.is_empty() {
        let stands = match before {
            Standing::Failed => false,
            _ if has.is_empty() => false,
            _ if equal(&new) => true,
            _ => match on_conflict {
                OnConflict::Error => return Err(Conflict),
                OnConflict::Keep => true,
                OnConflict::Replace => false,
            },
        };
        if !stands {
            change.remove.extend(has.iter().map(|row| row.idx));
            if before == Standing::Failed {
                change.remove.push(special_idx(ERROR).unwrap_or_default());
            }
            change.store.append(&mut new);
        }
    }
    for write in batch.special {
        let old = rows.iter().find(|row| row.idx == write.idx);
        let undoes_a_finish = before == Standing::Finished && write.channel == ERROR;
        if undoes_a_finish || (old.is_some_and(|old| old.same_value(&write)) && !change.remove.contains(&write.idx)) {
            continue;
        }
        if old.is_some() && !change.remove.contains(&write.idx) {
            change.remove.push(write.idx);
        }
        change.store.push(write);
    }
    Ok(change)
}

/// `[["channel", value], …]` of rows, as they were sent; finish marks are left out.
pub fn as_json<'a>(rows: impl Iterator<Item = &'a Write>) -> String {
    let pairs: Vec<String> =
        rows.filter(|row| !row.is_mark()).map(|row| format!("[{}, {}]", quote(&row.channel), row.value)).collect();
    format!("[{}]", pairs.join(", "))
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
