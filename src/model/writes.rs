//! The writes of a task: what a batch says, what the rows of a task add up to.
//!
//! Ordinary writes have idx 0, 1, …; the special channels have fixed negative ones, as in LangGraph, so that an interrupt
//! never takes the place of a result. An empty batch is stored as a finish mark.

use super::manifest::{Digest, JSON};
use crate::json::{JsonError, Shallow, canonical, quote, shallow, unquote};
use std::borrow::Cow;
use std::collections::BTreeMap;

pub const ERROR: &str = "__error__";
pub const INTERRUPT: &str = "__interrupt__";
pub const RESUME: &str = "__resume__";

/// Where LangGraph queues what the next step is to run, in checkpoints of versions before 4.
pub const SENDS: &str = "__pregel_tasks";

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

/// One row of a task, stored or on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write<'a> {
    pub idx: i32,
    pub channel: String,
    pub value_type: String,
    /// Empty where only the digest was read.
    pub value: Cow<'a, [u8]>,
    /// The key of a value that is too large for the row.
    pub digest: Option<Digest>,
}

impl<'a> Write<'a> {
    pub fn new(idx: i32, channel: &str, value_type: &str, value: impl Into<Cow<'a, [u8]>>) -> Write<'a> {
        Write { idx, channel: channel.to_owned(), value_type: value_type.to_owned(), value: value.into(), digest: None }
    }

    /// The finish mark of a task without writes.
    pub fn mark() -> Write<'a> {
        Write::new(0, MARK_CHANNEL, MARK_TYPE, &b"null"[..])
    }

    /// What a framework itself writes for a task without writes.
    pub fn no_writes() -> Write<'a> {
        Write::new(0, MARK_CHANNEL, "null", &b""[..])
    }

    pub fn is_mark(&self) -> bool {
        self.value_type == MARK_TYPE && self.channel == MARK_CHANNEL
    }

    /// The value of a JSON write.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.value).unwrap_or_default()
    }

    fn same_value(&self, other: &Write<'_>) -> bool {
        let same_bytes = || match (&self.digest, &other.digest) {
            (Some(digest), other) => other.as_ref() == Some(digest),
            (None, None) => self.value == other.value,
            (None, Some(_)) => false,
        };
        let same_json = || {
            self.value_type == JSON && canonical(self.text()).is_ok_and(|value| canonical(other.text()) == Ok(value))
        };
        self.channel == other.channel && self.value_type == other.value_type && (same_bytes() || same_json())
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
pub struct Batch<'a> {
    pub ordinary: Vec<Write<'a>>,
    pub special: Vec<Write<'a>>,
}

impl<'a> Batch<'a> {
    /// Numbers writes in the order in which they were sent. None is a finish mark.
    fn number(writes: impl Iterator<Item = (String, String, Cow<'a, [u8]>)>) -> Batch<'a> {
        let mut special: BTreeMap<i32, Write<'a>> = BTreeMap::new();
        let mut ordinary = Vec::new();
        for (channel, value_type, value) in writes {
            let idx = special_idx(&channel);
            let write = Write { idx: idx.unwrap_or(ordinary.len() as i32), channel, value_type, value, digest: None };
            match idx {
                Some(idx) => drop(special.insert(idx, write)),
                None => ordinary.push(write),
            }
        }
        if special.is_empty() && ordinary.is_empty() {
            ordinary.push(Write::mark());
        }
        Batch { ordinary, special: special.into_values().collect() }
    }

    /// A batch of a framework, with its own serializer: channels, type tags and bytes.
    pub fn typed(writes: impl Iterator<Item = (&'a str, &'a str, &'a [u8])>) -> Batch<'a> {
        Batch::number(writes.map(|(channel, tag, value)| (channel.to_owned(), tag.to_owned(), Cow::Borrowed(value))))
    }

    pub fn writes_mut(&mut self) -> impl Iterator<Item = &mut Write<'a>> {
        self.ordinary.iter_mut().chain(&mut self.special)
    }

    /// Reads `[["channel", value], …]`; `valid_name` says whether a text may be a channel's name.
    pub fn parse(json: &'a str, valid_name: impl Fn(&str) -> bool) -> Result<Batch<'a>, BatchError> {
        let shape = |path: String, found: &Shallow<'_>| BatchError::Shape { path, found: found.type_name() };
        let pairs = match shallow(json).map_err(BatchError::Json)? {
            Shallow::Array(pairs) => pairs,
            other => return Err(shape("$".to_owned(), &other)),
        };
        let mut writes = Vec::with_capacity(pairs.len());
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
            writes.push((channel, JSON.to_owned(), Cow::Borrowed(value.as_bytes())));
        }
        Ok(Batch::number(writes.into_iter()))
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

pub fn standing(rows: &[Write<'_>]) -> Standing {
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
pub struct Change<'a> {
    /// The idx of rows to remove first.
    pub remove: Vec<i32>,
    pub store: Vec<Write<'a>>,
}

impl Change<'_> {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.store.is_empty()
    }
}

/// The task has other ordinary writes already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict;

/// Who says which tasks have finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tasks {
    /// This extension: a new batch clears a task's error, and an error does not undo a finished task.
    Ours,
    /// The framework that writes them: its errors stand beside its results.
    Theirs,
}

/// Settles a batch against the rows that its task has. Only ordinary writes are compared: they stand or are replaced whole,
/// never mixed. Of a special channel the newest stands.
pub fn settle<'a>(
    rows: &[Write<'_>],
    batch: &Batch<'a>,
    on_conflict: OnConflict,
    tasks: Tasks,
) -> Result<Change<'a>, Conflict> {
    let before = standing(rows);
    let failed = before == Standing::Failed && tasks == Tasks::Ours;
    let interrupted = batch.special.iter().any(|write| write.channel == INTERRUPT);
    let failed_again = batch.special.iter().any(|write| write.channel == ERROR);
    let has: Vec<&Write<'_>> = rows.iter().filter(|row| row.idx >= 0).collect();
    let equal = |new: &[Write<'_>]| {
        has.len() == new.len() && has.iter().zip(new).all(|(old, new)| old.idx == new.idx && old.same_value(new))
    };
    let mut change = Change::default();
    let stands_already = |write: &Write<'_>| rows.iter().any(|row| row.idx == write.idx && row.same_value(write));
    if failed && failed_again && equal(&batch.ordinary) && batch.special.iter().all(stands_already) {
        return Ok(change);
    }
    if !batch.ordinary.is_empty() {
        let stands = match on_conflict {
            _ if failed || has.is_empty() => false,
            _ if equal(&batch.ordinary) => true,
            OnConflict::Error => return Err(Conflict),
            OnConflict::Keep => true,
            OnConflict::Replace => false,
        };
        if !stands {
            change.remove.extend(has.iter().map(|row| row.idx));
            if failed {
                change.remove.push(special_idx(ERROR).unwrap_or_default());
            }
            change.store.extend(batch.ordinary.iter().cloned());
        }
    }
    if failed && batch.ordinary.is_empty() && interrupted && !failed_again {
        // The task ran again and now waits: what it did before it failed does not count.
        change.remove.extend(has.iter().map(|row| row.idx).chain(special_idx(ERROR)));
    }
    for write in &batch.special {
        let old = rows.iter().find(|row| row.idx == write.idx);
        let undoes_a_finish = before == Standing::Finished && write.channel == ERROR && tasks == Tasks::Ours;
        if undoes_a_finish || (old.is_some_and(|old| old.same_value(write)) && !change.remove.contains(&write.idx)) {
            continue;
        }
        if old.is_some() && !change.remove.contains(&write.idx) {
            change.remove.push(write.idx);
        }
        change.store.push(write.clone());
    }
    Ok(change)
}

/// `[["channel", value], …]` of rows, as they were sent; finish marks are left out.
pub fn as_json<'w>(rows: impl Iterator<Item = &'w Write<'w>>) -> String {
    let pairs: Vec<String> =
        rows.filter(|row| !row.is_mark()).map(|row| format!("[{}, {}]", quote(&row.channel), row.text())).collect();
    format!("[{}]", pairs.join(", "))
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
