//! `ckpt_apply_writes`: the replay. Folds the pending writes of a checkpoint into a new one, all or none, once.

use super::blobs::{Values, load};
use super::checkpoint::{Checkpoint, Content, add};
use super::head::Head;
use super::put::metadata_filter;
use super::writes::locked_tasks;
use crate::args;
use crate::error::{Error, Result};
use crate::guc;
use crate::json::{Shallow, unquote};
use crate::json_types::{JsonText, JsonbText};
use crate::model::fold::{FoldError, Task, finished, fold, written_channels};
use crate::model::reducer::{MAX_DIGITS, ReduceError, Reducer, Whose};
use crate::spi::{Db, Statement, TEXT, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::{HashMap, HashSet};

/// Folds the pending writes of a checkpoint (the latest by default) into a new one and returns its id; the checkpoint's own id
/// where no task has finished; the id of the earlier fold where there was one.
///
/// Errors: 22004, 22023, 54000 for arguments and for writes that a reducer cannot take; P0002 no such checkpoint; 55000 a
/// required task has not finished.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_apply_writes(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_ns: default!(Option<&str>, "''"),
    checkpoint_id: default!(Option<&str>, "NULL"),
    tasks: default!(Option<Vec<Option<String>>>, "NULL"),
    reducers: default!(Option<JsonbText>, "'{}'"),
    next: default!(Option<Vec<Option<String>>>, "'{}'"),
    metadata: default!(Option<JsonText<'_>>, "'{}'"),
) -> std::result::Result<String, ErrorReport> {
    let apply = Apply {
        thread_id: args::thread_id(thread_id)?,
        checkpoint_ns: args::checkpoint_ns(checkpoint_ns)?,
        checkpoint_id: checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?,
        tasks: tasks.map(|tasks| args::names("tasks", tasks)).transpose()?,
        reducers: parse_reducers(&args::required("reducers", reducers)?.0)?,
        next: args::names("next", args::required("next", next)?)?,
        metadata: args::json("metadata", metadata)?,
    };
    Ok(apply.run(&Db::of_call(fcinfo)?)?)
}

struct Apply<'a> {
    thread_id: &'a str,
    checkpoint_ns: &'a str,
    checkpoint_id: Option<&'a str>,
    tasks: Option<Vec<String>>,
    reducers: HashMap<String, Reducer>,
    next: Vec<String>,
    metadata: &'a str,
}

static MARK_FOLDED: Statement = Statement::new(
    "UPDATE @s.checkpoints AS c SET folded_into = $5
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4",
    &[TEXT, TEXT, TEXT, TEXT, TEXT],
);

impl Apply<'_> {
    fn run(&self, db: &Db) -> Result<String> {
        let metadata_filter = metadata_filter(self.metadata)?;
        let mut head = Head::lock(db, self.thread_id, self.checkpoint_ns)?;
        let base = self.base(db, &head)?;
        if let Some(folded_into) = base.folded_into {
            return Ok(folded_into);
        }
        let tasks = locked_tasks(db, self.thread_id, self.checkpoint_ns, &base.checkpoint_id)?;
        let required = self.tasks.as_deref().unwrap_or(&base.next);
        let finished =
            finished(&tasks, required).map_err(|error| self.fold_error(&base.checkpoint_id, &tasks, error))?;
        if finished.is_empty() {
            return Ok(base.checkpoint_id);
        }
        let folded = self.fold(db, &base, &tasks, &finished)?;
        let values = folded_values(&base, &finished, &folded);
        values.store(db, self.thread_id, self.checkpoint_ns)?;
        let content = Content {
            manifest: &values.manifest,
            metadata: self.metadata,
            metadata_filter: metadata_filter.as_deref(),
            next: &self.next,
        };
        let parent = Some(base.checkpoint_id.as_str());
        let id = add(db, &mut head, self.thread_id, self.checkpoint_ns, None, parent, &content)?;
        let args = [
            param(self.thread_id),
            param(db.tenant.as_str()),
            param(self.checkpoint_ns),
            param(base.checkpoint_id.as_str()),
            param(id.as_str()),
        ];
        db.execute(&MARK_FOLDED, &args)?;
        Ok(id)
    }

    fn base(&self, db: &Db, head: &Head) -> Result<Checkpoint> {
        let Some(id) = self.checkpoint_id.or(head.latest_id.as_deref()) else {
            return Err(Error::no_thread(self.thread_id, self.checkpoint_ns));
        };
        Checkpoint::locked(db, self.thread_id, self.checkpoint_ns, id)?
            .ok_or_else(|| Error::no_checkpoint(self.thread_id, self.checkpoint_ns, id))
    }

    /// The values that the written channels get. Only those that are not simply replaced are read.
    fn fold(&self, db: &Db, base: &Checkpoint, tasks: &[Task], finished: &[&Task]) -> Result<HashMap<String, String>> {
        let written: HashSet<&str> = written_channels(finished).into_iter().collect();
        let needs_value = |name: &str| {
            written.contains(name) && self.reducers.get(name).is_some_and(|reducer| *reducer != Reducer::Replace)
        };
        let current = load(db, self.thread_id, self.checkpoint_ns, &base.manifest, needs_value)?;
        let current = current.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        fold(&base.checkpoint_id, finished, &self.reducers, &current)
            .map_err(|error| self.fold_error(&base.checkpoint_id, tasks, error))
    }

    fn fold_error(&self, checkpoint_id: &str, tasks: &[Task], error: FoldError) -> Error {
        match error {
            FoldError::Unfinished(missing) => {
                let standing = |id: &String| match tasks.iter().find(|task| task.task_id == *id) {
                    Some(task) => format!("\"{id}\" ({})", format!("{:?}", task.standing()).to_lowercase()),
                    None => format!("\"{id}\" (no writes)"),
                };
                let missing: Vec<String> = missing.iter().map(standing).collect();
                Error::wrong_state(format!("checkpoint \"{checkpoint_id}\" has unfinished tasks"))
                    .detail(format!("Not finished: {}. Nothing was folded.", missing.join(", ")))
                    .hint("Run them and log their writes with ckpt_put_writes, or pass tasks => the ones to wait for.")
            }
            FoldError::Reduce { channel, task_id, reducer, error } => {
                let what = format!("the {} reducer of channel \"{channel}\"", reducer.name());
                reduce_error(&what, &task_id, &error)
                    .detail(format!("In the writes of task \"{task_id}\" on checkpoint \"{checkpoint_id}\". Nothing was folded."))
                    .hint("Choose another reducer for the channel, or replace the task's writes: ckpt_put_writes(…, on_conflict => 'replace').")
            }
        }
    }
}

fn reduce_error(what: &str, task_id: &str, error: &ReduceError) -> Error {
    match error {
        ReduceError::WrongType { needs, whose, found } => {
            let holder = match whose {
                Whose::Channel => "the channel holds".to_owned(),
                Whose::Write => format!("task \"{task_id}\" wrote"),
            };
            Error::invalid(format!("{what} needs {needs}, and {holder} {found}"))
        }
        ReduceError::BadMessage(why) => Error::invalid(format!("{what} cannot take a message: {why}")),
        ReduceError::TooManyDigits => {
            Error::limit(format!("{what} takes numbers of at most {MAX_DIGITS} digits on each side of the point"))
        }
        ReduceError::Json(error) => Error::invalid(format!("{what} cannot compare the values: {}", error.problem)),
    }
}

/// The base's channels with the folded ones in their places, and new ones behind them in the order of the writes.
fn folded_values<'a>(base: &Checkpoint, finished: &[&Task], folded: &'a HashMap<String, String>) -> Values<'a> {
    let inline_limit = guc::inline_limit();
    let mut values = Values::default();
    for channel in &base.manifest.channels {
        match folded.get(&channel.name) {
            Some(value) => values.add(channel.name.clone(), value, inline_limit),
            None => values.manifest.channels.push(channel.clone()),
        }
    }
    let known: HashSet<&str> = base.manifest.channels.iter().map(|channel| channel.name.as_str()).collect();
    for name in written_channels(finished) {
        if !known.contains(name)
            && let Some(value) = folded.get(name)
        {
            values.add(name.to_owned(), value, inline_limit);
        }
    }
    values
}

fn parse_reducers(text: &str) -> Result<HashMap<String, Reducer>> {
    let members = match args::split("reducers", text)? {
        Shallow::Object(members) => members,
        other => {
            return Err(args::wrong_json_type("reducers", "an object", text, &other)
                .hint("Pass the reducer of each channel: {\"messages\": \"add_messages\", \"cost\": \"sum\"}."));
        }
    };
    let mut reducers = HashMap::new();
    for member in members {
        let name = unquote(member.value).ok();
        let Some(reducer) = name.as_deref().and_then(Reducer::by_name) else {
            let known: Vec<&str> = Reducer::ALL.iter().map(|(name, _)| *name).collect();
            return Err(Error::invalid(format!("unknown reducer {} for channel \"{}\"", member.value, member.key))
                .detail("Nothing was folded.")
                .hint(format!("The reducers are {}.", known.join(", "))));
        };
        reducers.insert(member.key.into_owned(), reducer);
    }
    Ok(reducers)
}
