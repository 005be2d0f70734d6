//! The fold: which pending writes become part of the next state, in which order, and what they make of each channel.

use super::reducer::{Accumulator, Origin, ReduceError, Reducer};
use super::writes::{Standing, Write, enters_state, standing};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// A task and its rows, which are in the order of their idx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub task_id: String,
    pub task_path: String,
    /// Which of the task's batches these are: the newest.
    pub epoch: i64,
    pub rows: Vec<Write<'static>>,
}

impl Task {
    pub fn standing(&self) -> Standing {
        standing(&self.rows)
    }
}

/// A row as it is stored, with its task.
pub struct TaskWrite {
    pub task_id: String,
    pub task_path: String,
    pub epoch: i64,
    pub write: Write<'static>,
}

/// Collects rows that come in the order `(task_path, task_id, idx)`. A task has one path: that of its ordinary writes. Of
/// batches that different children of the checkpoint saw the newest is taken.
pub fn group(rows: impl Iterator<Item = TaskWrite>) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut place_of: HashMap<String, usize> = HashMap::new();
    for TaskWrite { task_id, task_path, epoch, write } in rows {
        match place_of.get(&task_id).map(|&place| &mut tasks[place]) {
            Some(task) if task.epoch == epoch => {
                if write.idx == 0 {
                    task.task_path = task_path;
                }
                task.rows.push(write);
            }
            Some(task) if task.epoch > epoch => {}
            Some(task) => *task = Task { task_id, task_path, epoch, rows: vec![write] },
            None => {
                place_of.insert(task_id.clone(), tasks.len());
                tasks.push(Task { task_id, task_path, epoch, rows: vec![write] });
            }
        }
    }
    for task in &mut tasks {
        // Rows of special channels can have come with another path.
        task.rows.sort_by_key(|row| row.idx);
    }
    tasks.sort_by(|a, b| (&a.task_path, &a.task_id).cmp(&(&b.task_path, &b.task_id)));
    tasks
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoldError {
    /// These tasks had to finish and have not.
    Unfinished(Vec<String>),
    Reduce {
        channel: String,
        task_id: String,
        reducer: Reducer,
        error: ReduceError,
    },
}

/// The tasks whose writes the fold takes: every finished one. `required` must be among them.
pub fn finished<'a>(tasks: &'a [Task], required: &[String]) -> Result<Vec<&'a Task>, FoldError> {
    let finished: Vec<&Task> = tasks.iter().filter(|task| task.standing() == Standing::Finished).collect();
    let done: HashSet<&str> = finished.iter().map(|task| task.task_id.as_str()).collect();
    let missing: Vec<String> = required.iter().filter(|id| !done.contains(id.as_str())).cloned().collect();
    if missing.is_empty() { Ok(finished) } else { Err(FoldError::Unfinished(missing)) }
}

/// The channels that the writes of `tasks` reach, each once, in the order in which they are first written.
pub fn written_channels<'a>(tasks: &[&'a Task]) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    state_writes(tasks).map(|(_, write)| write.channel.as_str()).filter(|channel| seen.insert(*channel)).collect()
}

/// Folds the writes of `tasks`, in order. `current` holds the present value of each written channel that has one and whose
/// reducer looks at it; the result the next value of each written channel that is `wanted`.
pub fn fold(
    checkpoint_id: &str,
    tasks: &[&Task],
    reducers: &HashMap<String, Reducer>,
    current: &HashMap<String, String>,
    wanted: impl Fn(&str) -> bool,
) -> Result<HashMap<String, String>, FoldError> {
    let mut accumulators: HashMap<&str, Accumulator> = HashMap::new();
    for (task_id, write) in state_writes(tasks).filter(|(_, write)| wanted(&write.channel)) {
        let channel = write.channel.as_str();
        let reducer = reducers.get(channel).copied().unwrap_or(Reducer::Replace);
        let failed =
            |error| FoldError::Reduce { channel: channel.to_owned(), task_id: task_id.to_owned(), reducer, error };
        let accumulator = match accumulators.entry(channel) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let current = current.get(channel).map(String::as_str);
                entry.insert(Accumulator::new(reducer, current).map_err(failed)?)
            }
        };
        accumulator.add(write.text(), Origin { checkpoint_id, task_id, idx: write.idx }).map_err(failed)?;
    }
    Ok(accumulators.into_iter().map(|(channel, value)| (channel.to_owned(), value.finish())).collect())
}

/// The elements that the writes of `tasks` append to a channel, as they stand between the brackets of a list. `None` where
/// its reducer does not append, or nothing is appended.
pub fn appended(tasks: &[&Task], reducers: &HashMap<String, Reducer>, channel: &str) -> Option<String> {
    if reducers.get(channel) != Some(&Reducer::Append) {
        return None;
    }
    let mut list = Accumulator::new(Reducer::Append, None).ok()?;
    for (task_id, write) in state_writes(tasks).filter(|(_, write)| write.channel == channel) {
        list.add(write.text(), Origin { checkpoint_id: "", task_id, idx: write.idx }).ok()?;
    }
    let list = list.finish();
    let elements = list.strip_prefix('[')?.strip_suffix(']')?;
    (!elements.is_empty()).then(|| elements.to_owned())
}

fn state_writes<'a>(tasks: &[&'a Task]) -> impl Iterator<Item = (&'a str, &'a Write<'static>)> {
    tasks.iter().flat_map(|task| {
        let ordinary = task.rows.iter().filter(|row| row.idx >= 0 && !row.is_mark() && enters_state(&row.channel));
        ordinary.map(|row| (task.task_id.as_str(), row))
    })
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
