//! The fold: which pending writes become part of the next state, in which order, and what they make of each channel.

use super::reducer::{Origin, ReduceError, Reducer, reduce};
use super::writes::{Standing, Write, enters_state, standing};
use std::collections::HashMap;

/// A task and its rows, which are in the order of their idx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub task_id: String,
    pub task_path: String,
    pub rows: Vec<Write>,
}

impl Task {
    pub fn standing(&self) -> Standing {
        standing(&self.rows)
    }
}

/// Collects rows that come in the order `(task_path, task_id, idx)`. A task has one path: that of the batch that stands.
pub fn group(rows: impl Iterator<Item = (String, String, Write)>) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut place_of: HashMap<String, usize> = HashMap::new();
    for (task_id, task_path, write) in rows {
        match place_of.get(&task_id) {
            Some(&place) => tasks[place].rows.push(write),
            None => {
                place_of.insert(task_id.clone(), tasks.len());
                tasks.push(Task { task_id, task_path, rows: vec![write] });
            }
        }
    }
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
    let missing: Vec<String> =
        required.iter().filter(|id| !finished.iter().any(|task| task.task_id == **id)).cloned().collect();
    if missing.is_empty() { Ok(finished) } else { Err(FoldError::Unfinished(missing)) }
}

/// The channels that the writes of `tasks` reach, each once, in the order in which they are first written.
pub fn written_channels<'a>(tasks: &[&'a Task]) -> Vec<&'a str> {
    let mut channels = Vec::new();
    for write in state_writes(tasks) {
        let channel = write.1.channel.as_str();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
    }
    channels
}

/// Folds the writes of `tasks`, in order, into `values`, which holds the present value of each written channel that has one.
pub fn fold(
    checkpoint_id: &str,
    tasks: &[&Task],
    reducers: &HashMap<String, Reducer>,
    values: &mut HashMap<String, String>,
) -> Result<(), FoldError> {
    for (task_id, write) in state_writes(tasks) {
        let reducer = reducers.get(&write.channel).copied().unwrap_or(Reducer::Replace);
        let origin = Origin { checkpoint_id, task_id, idx: write.idx };
        let current = values.get(&write.channel).map(String::as_str);
        let next = reduce(reducer, current, &write.value, origin).map_err(|error| FoldError::Reduce {
            channel: write.channel.clone(),
            task_id: task_id.to_owned(),
            reducer,
            error,
        })?;
        values.insert(write.channel.clone(), next);
    }
    Ok(())
}

fn state_writes<'a>(tasks: &[&'a Task]) -> impl Iterator<Item = (&'a str, &'a Write)> {
    tasks.iter().flat_map(|task| {
        let ordinary = task.rows.iter().filter(|row| row.idx >= 0 && !row.is_mark() && enters_state(&row.channel));
        ordinary.map(|row| (task.task_id.as_str(), row))
    })
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
