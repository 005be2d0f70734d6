//! `ckpt_apply_writes`: the replay. Folds the pending writes of a checkpoint into a new one, all or none, once.

use super::Namespace;
use super::checkpoint::{Checkpoint, Content, add};
use super::graph::graph_of;
use super::head::Head;
use super::put::metadata_filter;
use super::reader::Reader;
use super::values::Given;
use super::writes::{large_of, load_large, stored_tasks};
use crate::args;
use crate::error::{Error, Result};
use crate::json::{Shallow, unquote};
use crate::json_types::{JsonText, JsonbText};
use crate::model::fold::{FoldError, Task, appended, finished, fold, written_channels};
use crate::model::growth::Grown;
use crate::model::manifest::JSON;
use crate::model::reducer::{MAX_DIGITS, ReduceError, Reducer, Whose};
use crate::model::writes::Write;
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
        ns: Namespace::of_args(thread_id, checkpoint_ns)?,
        checkpoint_id: checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?,
        tasks: tasks.map(|tasks| args::names("tasks", tasks)).transpose()?,
        reducers: parse_reducers(&args::required("reducers", reducers)?.0)?,
        next: args::names("next", args::required("next", next)?)?,
        metadata: args::json("metadata", metadata)?,
    };
    Ok(apply.run(&Db::of_call(fcinfo)?)?)
}

struct Apply<'a> {
    ns: Namespace<'a>,
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
    fn run(mut self, db: &Db) -> Result<String> {
        let metadata_filter = metadata_filter(self.metadata)?;
        let mut head = Head::lock_existing(db, self.ns)?
            .ok_or_else(|| Error::no_thread(self.ns.thread_id, self.ns.checkpoint_ns))?;
        let mut base = self.base(db, &head)?;
        if let Some(folded_into) = base.folded_into {
            return Ok(folded_into);
        }
        let graph = graph_of(db, &head)?;
        // What the call says goes before what the graph says.
        let named = std::mem::replace(&mut self.reducers, graph.reducers());
        self.reducers.extend(named);
        base.manifest.channels.retain(|channel| graph.persists(&channel.name));
        let mut tasks = stored_tasks(db, self.ns, &base.checkpoint_id)?;
        let reader = self.reader(db, &base, &tasks)?;
        load_large(&reader, self.ns, &base.checkpoint_id, tasks.iter_mut().flat_map(|task| &mut task.rows))?;
        let required = self.tasks.as_deref().unwrap_or(&base.next);
        let finished = match finished(&tasks, required) {
            Ok(finished) => finished,
            Err(_) if tasks.is_empty() && self.has_just_been_folded(db, &base)? => return Ok(base.checkpoint_id),
            Err(error) => return Err(self.fold_error(&base.checkpoint_id, &tasks, error)),
        };
        if finished.is_empty() {
            return Ok(base.checkpoint_id);
        }
        let mut grown = self.grow(&reader, &base, &finished)?;
        let wanted = |channel: &str| graph.persists(channel) && !grown.contains_key(channel);
        let folded = self.fold(&reader, &base, &tasks, &finished, wanted)?;
        let total = folded.values().map(|value| value.len() as u64).max().unwrap_or_default();
        args::check_result_size("the value of a channel", total)?;
        let values = folded_values(&base, &finished, &folded, &mut grown).hash(db, self.ns, Some(&base.manifest))?;
        values.store(db, self.ns)?;
        let content = Content {
            manifest: &values.manifest,
            body: None,
            metadata: self.metadata,
            metadata_filter: metadata_filter.as_deref(),
            next: &self.next,
        };
        let parent = Some(base.checkpoint_id.as_str());
        let id = add(db, &mut head, self.ns, None, parent, &content)?;
        let args = self.ns.args_with(db, [param(base.checkpoint_id.as_str()), param(id.as_str())]);
        db.execute(&MARK_FOLDED, &args)?;
        Ok(id)
    }

    /// Whether the latest checkpoint, which the caller did not name, is a fold on which nothing has been logged yet: the caller
    /// repeats the call that made it, or was second in a race.
    fn has_just_been_folded(&self, db: &Db, base: &Checkpoint) -> Result<bool> {
        let (None, Some(parent)) = (self.checkpoint_id, &base.parent_checkpoint_id) else {
            return Ok(false);
        };
        let parent = Checkpoint::locked(db, self.ns, parent)?;
        Ok(parent.and_then(|parent| parent.folded_into).as_deref() == Some(base.checkpoint_id.as_str()))
    }

    fn base(&self, db: &Db, head: &Head) -> Result<Checkpoint> {
        let Some(id) = self.checkpoint_id.or(head.latest_id.as_deref()) else {
            return Err(Error::no_thread(self.ns.thread_id, self.ns.checkpoint_ns));
        };
        let base = Checkpoint::locked(db, self.ns, id)?
            .ok_or_else(|| Error::no_checkpoint(self.ns.thread_id, self.ns.checkpoint_ns, id))?;
        if base.body.is_some() {
            return Err(Error::wrong_state(format!("checkpoint \"{id}\" is a framework's"))
                .detail("Its values are in the framework's own encoding, which only the framework can fold.")
                .hint("Let the framework go on from it, or put a JSON state with ckpt_put."));
        }
        Ok(base)
    }

    /// What the fold may have to read: large values of the writes, and of the channels that they change.
    fn reader<'d>(&'d self, db: &'d Db, base: &Checkpoint, tasks: &[Task]) -> Result<Reader<'d>> {
        let writes: Vec<&Write<'_>> = tasks.iter().flat_map(|task| &task.rows).collect();
        let reduced = |name: &str| {
            let reducer = self.reducers.get(name);
            reducer.is_some_and(|reducer| *reducer != Reducer::Replace)
                && writes.iter().any(|write| write.channel == name)
        };
        let channels = base.manifest.channels.iter().filter(|channel| reduced(&channel.name));
        let values = channels.clone().filter_map(|channel| channel.place.digest());
        let mut reader = Reader::new(db, self.ns, values.chain(large_of(tasks)))?;
        for channel in channels.filter(|channel| self.reducers.get(&channel.name) == Some(&Reducer::Append)) {
            let writes = writes.iter().filter(|write| write.channel == channel.name);
            reader.keep_open_end(channel, writes.filter_map(|write| write.digest))?;
        }
        Ok(reader)
    }

    /// The lists that are only appended to, and large: those are not read.
    fn grow(
        &self,
        reader: &Reader<'_>,
        base: &Checkpoint,
        finished: &[&Task],
    ) -> Result<HashMap<String, (String, Grown)>> {
        let mut grown = HashMap::new();
        for channel in &base.manifest.channels {
            if channel.place.digest().is_some()
                && let Some(elements) = appended(finished, &self.reducers, &channel.name)
                && let Some(list) = reader.grow(channel, &elements)?
            {
                grown.insert(channel.name.clone(), list);
            }
        }
        Ok(grown)
    }

    /// The values that those of the written channels get that are wanted. Only those that are not simply replaced are read.
    fn fold(
        &self,
        reader: &Reader<'_>,
        base: &Checkpoint,
        tasks: &[Task],
        finished: &[&Task],
        wanted: impl Fn(&str) -> bool,
    ) -> Result<HashMap<String, String>> {
        let mut written: HashSet<&str> = written_channels(finished).into_iter().collect();
        written.retain(|name| wanted(name));
        let needs_value = |name: &str| {
            written.contains(name) && self.reducers.get(name).is_some_and(|reducer| *reducer != Reducer::Replace)
        };
        let current = reader.load_json(base, needs_value)?;
        let current = current.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        fold(&base.checkpoint_id, finished, &self.reducers, &current, wanted)
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
fn folded_values<'a>(
    base: &Checkpoint,
    finished: &[&Task],
    folded: &'a HashMap<String, String>,
    grown: &mut HashMap<String, (String, Grown)>,
) -> Given<'a> {
    let mut given = Given::default();
    let known: HashSet<&str> = base.manifest.channels.iter().map(|channel| channel.name.as_str()).collect();
    let mut new = written_channels(finished);
    new.retain(|name| !known.contains(name));
    for channel in &base.manifest.channels {
        if let Some((log, list)) = grown.remove(&channel.name) {
            given.add_grown(channel, log, list);
            continue;
        }
        match folded.get(&channel.name) {
            Some(value) => given.add(channel.name.clone(), None, JSON.to_owned(), value.as_bytes()),
            None => given.keep(channel.clone()),
        }
    }
    for name in new {
        if let Some(value) = folded.get(name) {
            given.add(name.to_owned(), None, JSON.to_owned(), value.as_bytes());
        }
    }
    given
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
