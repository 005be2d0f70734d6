//! `ckpt_get_typed` and `ckpt_list_typed`: checkpoints with their values and pending writes as rows, one value a row, each read
//! when its row is asked for. So no result is one giant datum, and no more than one value is in memory.

use super::Namespace;
use super::checkpoint::Checkpoint;
use super::read::List;
use super::values::{self, Stored};
use super::writes::stored_tasks;
use crate::args;
use crate::error::{Error, Result};
use crate::json_types::{JsonResult, JsonbText};
use crate::model::manifest::{Channel, Digest, Place};
use crate::model::writes::Write;
use crate::spi::Db;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::{HashMap, VecDeque};

type TypedRow = (
    name!(kind, &'static str),
    name!(thread_id, String),
    name!(checkpoint_ns, String),
    name!(checkpoint_id, String),
    name!(parent_checkpoint_id, Option<String>),
    name!(checkpoint, Option<JsonResult>),
    name!(metadata, Option<JsonResult>),
    name!(created_at, Option<TimestampWithTimeZone>),
    name!(task_id, Option<String>),
    name!(task_path, Option<String>),
    name!(idx, Option<i32>),
    name!(channel, Option<String>),
    name!(version, Option<JsonResult>),
    name!(value_type, Option<String>),
    name!(value, Option<Vec<u8>>),
);

/// A checkpoint (the latest by default) as rows: one of kind `checkpoint`, then one per `channel`, then one per pending `write`.
/// No rows where there is no such checkpoint.
#[pg_extern(stable, parallel_safe)]
fn ckpt_get_typed(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_ns: default!(Option<&str>, "''"),
    checkpoint_id: default!(Option<&str>, "NULL"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(kind, &'static str),
            name!(thread_id, String),
            name!(checkpoint_ns, String),
            name!(checkpoint_id, String),
            name!(parent_checkpoint_id, Option<String>),
            name!(checkpoint, Option<JsonResult>),
            name!(metadata, Option<JsonResult>),
            name!(created_at, Option<TimestampWithTimeZone>),
            name!(task_id, Option<String>),
            name!(task_path, Option<String>),
            name!(idx, Option<i32>),
            name!(channel, Option<String>),
            name!(version, Option<JsonResult>),
            name!(value_type, Option<String>),
            name!(value, Option<Vec<u8>>),
        ),
    >,
    ErrorReport,
> {
    let ns = Namespace::of_args(thread_id, checkpoint_ns)?;
    let checkpoint_id = checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?;
    let db = Db::of_call(fcinfo)?;
    let found = match checkpoint_id {
        Some(id) => Checkpoint::find(&db, ns, id)?,
        None => Checkpoint::latest(&db, ns)?,
    };
    Ok(TableIterator::new(Rows::of(db, found.into_iter().collect())))
}

/// Checkpoints across threads and namespaces, by id descending, each as the rows of `ckpt_get_typed`.
#[pg_extern(stable, parallel_safe)]
fn ckpt_list_typed(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: default!(Option<&str>, "NULL"),
    checkpoint_ns: default!(Option<&str>, "NULL"),
    filter: default!(Option<JsonbText>, "NULL"),
    before: default!(Option<&str>, "NULL"),
    max_rows: default!(Option<i32>, "NULL"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(kind, &'static str),
            name!(thread_id, String),
            name!(checkpoint_ns, String),
            name!(checkpoint_id, String),
            name!(parent_checkpoint_id, Option<String>),
            name!(checkpoint, Option<JsonResult>),
            name!(metadata, Option<JsonResult>),
            name!(created_at, Option<TimestampWithTimeZone>),
            name!(task_id, Option<String>),
            name!(task_path, Option<String>),
            name!(idx, Option<i32>),
            name!(channel, Option<String>),
            name!(version, Option<JsonResult>),
            name!(value_type, Option<String>),
            name!(value, Option<Vec<u8>>),
        ),
    >,
    ErrorReport,
> {
    let list = List::of_args(thread_id, checkpoint_ns, filter, before, max_rows)?;
    let db = Db::of_call(fcinfo)?;
    let found = list.run(&db)?;
    Ok(TableIterator::new(Rows::of(db, found)))
}

/// The rows of checkpoints, made one by one.
struct Rows {
    db: Db,
    checkpoints: std::vec::IntoIter<Checkpoint>,
    current: Option<Current>,
}

/// What is still to come of the checkpoint whose row was given last.
struct Current {
    thread_id: String,
    checkpoint_ns: String,
    checkpoint_id: String,
    parts: VecDeque<Part>,
    stored: HashMap<Digest, Stored>,
}

enum Part {
    Channel(Channel),
    Write { task_id: String, task_path: String, write: Write<'static> },
}

impl Rows {
    fn of(db: Db, checkpoints: Vec<Checkpoint>) -> Rows {
        Rows { db, checkpoints: checkpoints.into_iter(), current: None }
    }

    fn next_row(&mut self) -> Result<Option<TypedRow>> {
        if let Some(current) = &mut self.current
            && let Some(part) = current.parts.pop_front()
        {
            return Ok(Some(current.row(&self.db, part)?));
        }
        let Some(checkpoint) = self.checkpoints.next() else {
            return Ok(None);
        };
        let mut parts = VecDeque::new();
        for task in stored_tasks(&self.db, checkpoint.namespace(), &checkpoint.checkpoint_id)? {
            for write in task.rows.into_iter().filter(|write| !write.is_mark()) {
                parts.push_back(Part::Write {
                    task_id: task.task_id.clone(),
                    task_path: task.task_path.clone(),
                    write,
                });
            }
        }
        let ns = checkpoint.namespace();
        let mut digests: Vec<Digest> = checkpoint.manifest.stored().map(|(_, digest)| digest).collect();
        digests.extend(parts.iter().filter_map(|part| match part {
            Part::Write { write, .. } => write.digest,
            Part::Channel(_) => None,
        }));
        let stored = values::recipes(&self.db, ns, digests)?;
        for channel in checkpoint.manifest.channels.into_iter().rev() {
            parts.push_front(Part::Channel(channel));
        }
        let current = Current {
            thread_id: checkpoint.thread_id,
            checkpoint_ns: checkpoint.checkpoint_ns,
            checkpoint_id: checkpoint.checkpoint_id,
            parts,
            stored,
        };
        let mut row = current.blank("checkpoint");
        row.4 = checkpoint.parent_checkpoint_id;
        row.5 = checkpoint.body.map(JsonResult);
        row.6 = Some(JsonResult(checkpoint.metadata));
        row.7 = checkpoint.created_at;
        self.current = Some(current);
        Ok(Some(row))
    }
}

impl Current {
    fn blank(&self, kind: &'static str) -> TypedRow {
        let (thread_id, ns, id) = (self.thread_id.clone(), self.checkpoint_ns.clone(), self.checkpoint_id.clone());
        (kind, thread_id, ns, id, None, None, None, None, None, None, None, None, None, None, None)
    }

    fn row(&self, db: &Db, part: Part) -> Result<TypedRow> {
        Ok(match part {
            Part::Channel(channel) => {
                let mut row = self.blank("channel");
                row.14 = match channel.place {
                    Place::Absent => None,
                    Place::Inline(bytes) => Some(bytes),
                    Place::Stored { digest, .. } => Some(self.read(db, &digest, &channel.name)?),
                };
                (row.11, row.12, row.13) =
                    (Some(channel.name), channel.version.map(JsonResult), Some(channel.value_type));
                row
            }
            Part::Write { task_id, task_path, write } => {
                let mut row = self.blank("write");
                (row.8, row.9, row.10) = (Some(task_id), Some(task_path), Some(write.idx));
                row.14 = Some(match write.digest {
                    Some(digest) => self.read(db, &digest, &write.channel)?,
                    None => write.value.into_owned(),
                });
                (row.11, row.13) = (Some(write.channel), Some(write.value_type));
                row
            }
        })
    }

    fn read(&self, db: &Db, digest: &Digest, channel: &str) -> Result<Vec<u8>> {
        let ns = Namespace { thread_id: &self.thread_id, checkpoint_ns: &self.checkpoint_ns };
        values::read(db, ns, digest, self.stored.get(digest))?
            .ok_or_else(|| Error::damaged(channel, &self.checkpoint_id, &self.thread_id))
    }
}

impl Iterator for Rows {
    type Item = TypedRow;

    fn next(&mut self) -> Option<TypedRow> {
        self.next_row().unwrap_or_else(|error| {
            // A row cannot be an error: it is raised here, in the place of the next row.
            ErrorReport::from(error).report(PgLogLevel::ERROR);
            None
        })
    }
}
