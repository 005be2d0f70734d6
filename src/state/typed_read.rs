//! `ckpt_get_typed` and `ckpt_list_typed`: checkpoints with their values and pending writes as rows, one value a row, each read
//! when its row is made. So no result is one giant datum, and no more than one value is in this session's memory. The functions
//! are declared in `sql/row_functions.sql`.

use super::Namespace;
use super::checkpoint::Checkpoint;
use super::read::List;
use super::reader::Reader;
use super::writes::{large_of, read_write, stored_tasks};
use crate::args;
use crate::error::{Error, Result};
use crate::json::shallow;
use crate::json_types::{JsonResult, JsonbText};
use crate::model::fold::{Task, group};
use crate::model::manifest::{Digest, Place};
use crate::model::writes::{SENDS, Write};
use crate::row_sink::{HEADROOM, RowSink, bytea_datum, datum};
use crate::spi::{Db, Statement, TEXT, param};
use pgrx::pg_sys::Datum;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// What a checkpoint saw of its parent's writes, or took along when that was deleted.
static CONSUMED: Statement = Statement::new(
    "SELECT w.task_id, w.task_path, w.epoch, w.idx, w.channel, w.value_type, w.value, w.digest
     FROM @s.checkpoints c
     JOIN @s.checkpoint_writes w
       ON w.thread_id @= c.thread_id AND w.tenant @= c.tenant AND w.checkpoint_ns @= c.checkpoint_ns
      AND w.checkpoint_id @= CASE WHEN c.adopted THEN c.checkpoint_id ELSE c.parent_checkpoint_id END
      AND w.epoch @<= CASE WHEN c.adopted THEN -1 ELSE c.revision END
      AND w.epoch @> CASE WHEN c.adopted THEN -2 ELSE COALESCE(
              (SELECT pg_catalog.max(s.revision) FROM @s.checkpoints s
               WHERE s.thread_id @= c.thread_id AND s.tenant @= c.tenant AND s.checkpoint_ns @= c.checkpoint_ns
                 AND s.parent_checkpoint_id @= c.parent_checkpoint_id AND s.revision @< c.revision AND NOT s.adopted), -1) END
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4
     ORDER BY w.task_path, w.task_id, w.epoch, w.idx",
    &[TEXT, TEXT, TEXT, TEXT],
);

/// A checkpoint (the latest by default) as rows: one of kind `checkpoint`, then one per `channel`, then one per pending `write`;
/// of a checkpoint of a version before 4 also one per `send` that its parent has queued for it. No rows where there is no such checkpoint.
///
/// Errors: 22004, 22023 for arguments; XX001 a stored value is missing or damaged.
#[pg_extern(sql = false)]
fn ckpt_get_typed(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_ns: Option<&str>,
    checkpoint_id: Option<&str>,
) -> std::result::Result<(), ErrorReport> {
    let ns = Namespace::of_args(thread_id, checkpoint_ns)?;
    let checkpoint_id = checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?;
    let db = Db::of_call(fcinfo)?;
    let found = match checkpoint_id {
        Some(id) => Checkpoint::find(&db, ns, id)?,
        None => Checkpoint::latest(&db, ns)?,
    };
    Ok(send(&db, fcinfo, found)?)
}

/// Checkpoints across threads and namespaces, by id descending, each as the rows of `ckpt_get_typed`.
///
/// Errors: 22023 for arguments; XX001 a stored value is missing or damaged.
#[pg_extern(sql = false)]
fn ckpt_list_typed(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_ns: Option<&str>,
    filter: Option<JsonbText>,
    before: Option<&str>,
    max_rows: Option<i32>,
) -> std::result::Result<(), ErrorReport> {
    let list = List::of_args(thread_id, checkpoint_ns, filter, before, max_rows)?;
    let db = Db::of_call(fcinfo)?;
    let found = list.run(&db)?;
    Ok(send(&db, fcinfo, found)?)
}

fn send(db: &Db, fcinfo: pg_sys::FunctionCallInfo, checkpoints: impl IntoIterator<Item = Checkpoint>) -> Result<()> {
    let mut sink = RowSink::of_call(fcinfo);
    checkpoints.into_iter().try_for_each(|checkpoint| Rows { db, checkpoint: &checkpoint }.send(&mut sink))
}

/// What a row has beside the names of its checkpoint.
#[derive(Default)]
struct Columns {
    parent_checkpoint_id: Option<Datum>,
    checkpoint: Option<Datum>,
    metadata: Option<Datum>,
    created_at: Option<Datum>,
    task_id: Option<Datum>,
    task_path: Option<Datum>,
    idx: Option<Datum>,
    channel: Option<Datum>,
    version: Option<Datum>,
    value_type: Option<Datum>,
    value: Option<Datum>,
}

/// The rows of a checkpoint.
struct Rows<'a> {
    db: &'a Db,
    checkpoint: &'a Checkpoint,
}

impl Rows<'_> {
    fn send(&self, sink: &mut RowSink) -> Result<()> {
        let Checkpoint { manifest, checkpoint_id, .. } = self.checkpoint;
        let ns = self.checkpoint.namespace();
        let tasks = stored_tasks(self.db, ns, checkpoint_id)?;
        let consumed = self.consumed()?;
        let digests = manifest.stored().map(|(_, digest)| digest).chain(large_of(&tasks)).chain(large_of(&consumed));
        let reader = Reader::new(self.db, ns, digests)?;
        self.row(sink, "checkpoint", || Columns {
            parent_checkpoint_id: datum(self.checkpoint.parent_checkpoint_id.as_deref()),
            checkpoint: datum(self.checkpoint.body.clone().map(JsonResult)),
            metadata: datum(JsonResult(self.checkpoint.metadata.clone())),
            created_at: datum(self.checkpoint.created_at),
            ..Columns::default()
        });
        for channel in &manifest.channels {
            let mut value = match &channel.place {
                Place::Absent => None,
                Place::Inline(bytes) => Some(with_headroom(bytes)),
                Place::Stored { digest, .. } => Some(self.read(&reader, digest, &channel.name)?),
            };
            self.row(sink, "channel", || Columns {
                channel: datum(channel.name.as_str()),
                version: datum(channel.version.clone().map(JsonResult)),
                value_type: datum(channel.value_type.as_str()),
                value: value.as_deref_mut().map(bytea_datum),
                ..Columns::default()
            });
        }
        self.writes(sink, &reader, "write", &tasks, |write| !write.is_mark())?;
        self.writes(sink, &reader, "send", &consumed, |write| write.channel == SENDS)
    }

    fn writes(
        &self,
        sink: &mut RowSink,
        reader: &Reader<'_>,
        kind: &str,
        tasks: &[Task],
        wanted: impl Fn(&Write<'_>) -> bool,
    ) -> Result<()> {
        for task in tasks {
            for write in task.rows.iter().filter(|write| wanted(write)) {
                let mut value = match &write.digest {
                    Some(digest) => self.read(reader, digest, &write.channel)?,
                    None => with_headroom(&write.value),
                };
                self.row(sink, kind, || Columns {
                    task_id: datum(task.task_id.as_str()),
                    task_path: datum(task.task_path.as_str()),
                    idx: datum(write.idx),
                    channel: datum(write.channel.as_str()),
                    value_type: datum(write.value_type.as_str()),
                    value: Some(bytea_datum(&mut value)),
                    ..Columns::default()
                });
            }
        }
        Ok(())
    }

    /// What LangGraph's checkpoints of versions before 4 queued with their writes for the next one.
    fn consumed(&self) -> Result<Vec<Task>> {
        let body = self.checkpoint.body.as_deref().and_then(|body| shallow(body).ok());
        let version = body.as_ref().and_then(|body| body.member("v")).and_then(|version| version.parse::<f64>().ok());
        if version.is_none_or(|version| version >= 4.0) {
            return Ok(Vec::new());
        }
        let args = self.checkpoint.namespace().args_with(self.db, [param(self.checkpoint.checkpoint_id.as_str())]);
        Ok(group(self.db.read(&CONSUMED, &args, read_write)?.into_iter()))
    }

    /// Adds a row, in the order of the columns in `sql/row_functions.sql`.
    fn row(&self, sink: &mut RowSink, kind: &str, columns: impl FnOnce() -> Columns) {
        check_for_interrupts!();
        sink.put(|| {
            let of_kind = columns();
            [
                datum(kind),
                datum(self.checkpoint.thread_id.as_str()),
                datum(self.checkpoint.checkpoint_ns.as_str()),
                datum(self.checkpoint.checkpoint_id.as_str()),
                of_kind.parent_checkpoint_id,
                of_kind.checkpoint,
                of_kind.metadata,
                of_kind.created_at,
                of_kind.task_id,
                of_kind.task_path,
                of_kind.idx,
                of_kind.channel,
                of_kind.version,
                of_kind.value_type,
                of_kind.value,
            ]
        });
    }

    /// The bytes of a large value, behind [`HEADROOM`].
    fn read(&self, reader: &Reader<'_>, digest: &Digest, channel: &str) -> Result<Vec<u8>> {
        reader
            .read(digest, HEADROOM)?
            .ok_or_else(|| Error::damaged(channel, &self.checkpoint.checkpoint_id, &self.checkpoint.thread_id))
    }
}

fn with_headroom(bytes: &[u8]) -> Vec<u8> {
    [&[0; HEADROOM], bytes].concat()
}
