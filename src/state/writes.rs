//! Pending writes: `ckpt_put_writes` logs what a task produced, `ckpt_resume` says where a restarted process goes on.

use super::Namespace;
use super::checkpoint::Checkpoint;
use super::collect::remove_unreferenced;
use super::graph::graph_of;
use super::head::Head;
use super::reader::{self, Reader};
use super::values::{self, LargeWrite};
use crate::args;
use crate::error::{Error, Result};
use crate::guc;
use crate::json::quote;
use crate::json_types::{JsonResult, JsonText};
use crate::model::delta::Value;
use crate::model::fold::{Task, TaskWrite, group};
use crate::model::manifest::Digest;
use crate::model::writes::{Batch, BatchError, Change, ERROR, OnConflict, Standing, Tasks, Write, as_json, settle};
use crate::spi::{BIGINT, BYTESES, Db, INTS, Row, Statement, TEXT, TEXTS, param};
use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;
use std::collections::HashSet;

macro_rules! write_columns {
    () => {
        "SELECT w.task_id, w.task_path, w.epoch, w.idx, w.channel, w.value_type, w.value, w.digest
         FROM @s.checkpoint_writes w
         WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= $4 AND w.epoch @>= 0"
    };
}

static OF_TASK: Statement = Statement::new(
    concat!(write_columns!(), " AND w.task_id @= $5 ORDER BY w.epoch DESC, w.idx"),
    &[TEXT, TEXT, TEXT, TEXT, TEXT],
);

static OF_CHECKPOINT: Statement = Statement::new(
    concat!(write_columns!(), " ORDER BY w.task_path, w.task_id, w.epoch, w.idx"),
    &[TEXT, TEXT, TEXT, TEXT],
);

static HAS_CHILD_SINCE: Statement = Statement::new(
    "SELECT 1 FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.parent_checkpoint_id @= $4
       AND c.revision @> $5 AND NOT c.adopted
     LIMIT 1",
    &[TEXT, TEXT, TEXT, TEXT, BIGINT],
);

static FOLDED_INTO: Statement = Statement::new(
    "SELECT c.folded_into FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4",
    &[TEXT, TEXT, TEXT, TEXT],
);

static REMOVE: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= $4 AND w.task_id @= $5
       AND w.epoch @= $6 AND w.idx @= ANY ($7)",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT, INTS],
);

static STORE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_writes (thread_id, tenant, checkpoint_ns, checkpoint_id, task_id, epoch, task_path,
                                       idx, channel, value_type, value, digest)
     SELECT $1, $2, $3, $4, $5, $6, $7, new.idx, new.channel, new.value_type, new.value, new.digest
     FROM ROWS FROM (pg_catalog.unnest($8), pg_catalog.unnest($9), pg_catalog.unnest($10), pg_catalog.unnest($11),
                     pg_catalog.unnest($12))
          AS new (idx, channel, value_type, value, digest)",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT, TEXT, INTS, TEXTS, TEXTS, BYTESES, BYTESES],
);

pub fn read_write(row: &mut Row<'_>) -> Result<TaskWrite> {
    let digest = row.optional_bytes(8)?.map(reader::digest).transpose()?;
    let value = row.get::<Vec<u8>>(7)?.unwrap_or_default().into();
    let write = Write { idx: row.must(4)?, channel: row.must(5)?, value_type: row.must(6)?, value, digest };
    Ok(TaskWrite { task_id: row.must(1)?, task_path: row.must(2)?, epoch: row.must(3)?, write })
}

/// The tasks of a checkpoint with their writes, in the order in which they are folded; the values of large ones too.
pub fn tasks_of(db: &Db, ns: Namespace<'_>, checkpoint_id: &str) -> Result<Vec<Task>> {
    let mut tasks = stored_tasks(db, ns, checkpoint_id)?;
    let reader = Reader::new(db, ns, large_of(&tasks))?;
    load_large(&reader, ns, checkpoint_id, tasks.iter_mut().flat_map(|task| &mut task.rows))?;
    Ok(tasks)
}

/// The same, without the values of large ones.
pub fn stored_tasks(db: &Db, ns: Namespace<'_>, checkpoint_id: &str) -> Result<Vec<Task>> {
    let rows = db.read(&OF_CHECKPOINT, &ns.args_with(db, [param(checkpoint_id)]), read_write)?;
    Ok(group(rows.into_iter()))
}

/// The digests of the values that do not stand in their rows.
pub fn large_of(tasks: &[Task]) -> impl Iterator<Item = Digest> {
    tasks.iter().flat_map(|task| &task.rows).filter_map(|row| row.digest)
}

/// Reads the values that do not stand in their rows.
pub fn load_large<'w>(
    reader: &Reader<'_>,
    ns: Namespace<'_>,
    checkpoint_id: &str,
    rows: impl Iterator<Item = &'w mut Write<'static>>,
) -> Result<()> {
    for row in rows {
        if let Some(digest) = &row.digest {
            let value =
                reader.read(digest, 0)?.ok_or_else(|| Error::damaged(&row.channel, checkpoint_id, ns.thread_id))?;
            row.value = value.into();
        }
    }
    Ok(())
}

/// Logs what a task produced against the checkpoint that its step started from; returns how many writes it stored.
///
/// Errors: 22004, 22023, 54000 for arguments; 23505 the task has other writes; 55000 the checkpoint was folded.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_put_writes(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_id: Option<&str>,
    task_id: Option<&str>,
    writes: Option<JsonText<'_>>,
    checkpoint_ns: default!(Option<&str>, "''"),
    task_path: default!(Option<&str>, "''"),
    on_conflict: default!(Option<&str>, "'error'"),
) -> std::result::Result<i32, ErrorReport> {
    let put = PutWrites {
        ns: Namespace::of_args(thread_id, checkpoint_ns)?,
        checkpoint_id: args::name("checkpoint_id", checkpoint_id)?,
        task_id: args::name("task_id", task_id)?,
        batch: parse_batch(args::json("writes", writes)?)?,
        task_path: args::task_path(task_path)?,
        on_conflict: args::on_conflict(on_conflict)?,
        tasks: Tasks::Ours,
    };
    Ok(put.run(&Db::of_call(fcinfo)?)?)
}

pub struct PutWrites<'a> {
    pub ns: Namespace<'a>,
    pub checkpoint_id: &'a str,
    pub task_id: &'a str,
    pub batch: Batch<'a>,
    pub task_path: &'a str,
    pub on_conflict: OnConflict,
    pub tasks: Tasks,
}

impl PutWrites<'_> {
    pub fn run(mut self, db: &Db) -> Result<i32> {
        let mut batch = std::mem::take(&mut self.batch);
        let mut large = hash_large(&mut batch);
        let head = Head::lock(db, self.ns)?;
        let graph = graph_of(db, &head)?;
        let texts = graph.stored_texts(&batch);
        if !graph.is_empty() {
            let mark = if self.tasks == Tasks::Ours { Write::mark() } else { Write::no_writes() };
            batch = graph.stored_writes(batch, &texts, mark);
            large = hash_large(&mut batch);
        }
        let (epoch, rows) = self.rows(db)?;
        let mut epoch = epoch.unwrap_or(head.revision);
        let is_repeat = || settle(&rows, &batch, OnConflict::Error, self.tasks).is_ok_and(|change| change.is_empty());
        if !rows.is_empty() && is_repeat() {
            return Ok(0);
        }
        let folded_into = self.folded_into(db)?;
        let mut stands = rows.as_slice();
        if folded_into.is_none() && !rows.is_empty() && self.has_child_since(db, epoch)? {
            // What the task wrote belongs to that child. This is a new batch.
            epoch = head.revision;
            stands = &[];
        }
        let settled = settle(stands, &batch, self.on_conflict, self.tasks);
        if settled.as_ref().is_ok_and(Change::is_empty) {
            return Ok(0);
        }
        if let Some(folded_into) = folded_into {
            return Err(self.folded(&folded_into));
        }
        let change = settled.map_err(|_| {
            Error::conflict(format!("task \"{}\" has other writes already", self.task_id))
                .detail(format!(
                    "They were logged against checkpoint \"{}\" of thread \"{}\"; nothing was changed.",
                    self.checkpoint_id, self.ns.thread_id
                ))
                .hint("Pass on_conflict => 'keep' to let the first batch stand, or 'replace' to let this one.")
        })?;
        values::store_writes(db, self.ns, &large)?;
        if !change.remove.is_empty() {
            let removed = rows.iter().filter(|row| change.remove.contains(&row.idx)).filter_map(|row| row.digest);
            let removed: Vec<Digest> = removed.collect();
            db.execute(&REMOVE, &self.args(db, [param(epoch), param(change.remove)]))?;
            self.store(db, epoch, &change.store)?;
            remove_unreferenced(db, self.ns, removed)?;
        } else {
            self.store(db, epoch, &change.store)?;
        }
        // A finish mark is no write of the caller's.
        Ok(change.store.iter().filter(|write| !write.is_mark()).count() as i32)
    }

    fn args<'d>(&'d self, db: &Db, more: impl IntoIterator<Item = DatumWithOid<'d>>) -> Vec<DatumWithOid<'d>> {
        self.ns.args_with(db, [param(self.checkpoint_id), param(self.task_id)].into_iter().chain(more))
    }

    /// The newest batch of the task, and its epoch.
    fn rows(&self, db: &Db) -> Result<(Option<i64>, Vec<Write<'static>>)> {
        let rows = db.write(&OF_TASK, &self.args(db, []), read_write)?;
        let epoch = rows.first().map(|row| row.epoch);
        let newest = rows.into_iter().take_while(|row| Some(row.epoch) == epoch);
        let mut newest: Vec<Write<'static>> = newest.map(|row| row.write).collect();
        if self.tasks == Tasks::Ours {
            // JSON is compared by value; other bytes by their digest.
            let reader = Reader::new(db, self.ns, newest.iter().filter_map(|row| row.digest))?;
            load_large(&reader, self.ns, self.checkpoint_id, newest.iter_mut())?;
        }
        Ok((epoch, newest))
    }

    fn has_child_since(&self, db: &Db, epoch: i64) -> Result<bool> {
        let args = self.ns.args_with(db, [param(self.checkpoint_id), param(epoch)]);
        Ok(db.write_one(&HAS_CHILD_SINCE, &args, |row| row.must::<i32>(1))?.is_some())
    }

    /// Into which checkpoint this one was folded: then it takes no more writes. A framework's late write is never refused.
    fn folded_into(&self, db: &Db) -> Result<Option<String>> {
        if self.tasks == Tasks::Theirs {
            return Ok(None);
        }
        let args = self.ns.args_with(db, [param(self.checkpoint_id)]);
        Ok(db.write_one(&FOLDED_INTO, &args, |row| row.get::<String>(1))?.flatten())
    }

    fn folded(&self, folded_into: &str) -> Error {
        Error::wrong_state(format!("checkpoint \"{}\" takes no more writes", self.checkpoint_id))
            .detail(format!("Its writes were folded into checkpoint \"{folded_into}\"."))
            .hint("Go on from that checkpoint, or run the step again on a fork: ckpt_fork(thread_id, checkpoint_id).")
    }

    fn store(&self, db: &Db, epoch: i64, writes: &[Write<'_>]) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let value = |write: &'_ Write<'_>| write.digest.is_none().then(|| write.value.to_vec());
        let args = self.args(
            db,
            [
                param(epoch),
                param(self.task_path),
                param(writes.iter().map(|write| write.idx).collect::<Vec<_>>()),
                param(writes.iter().map(|write| write.channel.as_str()).collect::<Vec<_>>()),
                param(writes.iter().map(|write| write.value_type.as_str()).collect::<Vec<_>>()),
                param(writes.iter().map(value).collect::<Vec<_>>()),
                param(writes.iter().map(|write| write.digest.map(|digest| digest.to_vec())).collect::<Vec<_>>()),
            ],
        );
        db.execute(&STORE, &args)?;
        Ok(())
    }
}

/// Hashes the values that will not stand in their rows.
fn hash_large<'a>(batch: &mut Batch<'a>) -> Vec<LargeWrite<'a>> {
    let inline_limit = guc::inline_limit();
    let mut large = Vec::new();
    for write in batch.writes_mut() {
        write.digest = None;
        // A copy of the reference, not of the bytes: a batch borrows its values.
        let Cow::Borrowed(bytes) = write.value else { continue };
        if bytes.len() > inline_limit {
            let value = Value::new(bytes);
            write.digest = Some(value.digest);
            large.push(LargeWrite { channel: write.channel.clone(), value_type: write.value_type.clone(), value });
        }
    }
    large
}

fn parse_batch(writes: &str) -> Result<Batch<'_>> {
    Batch::parse(writes, args::is_channel_name).map_err(|error| match error {
        BatchError::Json(error) => Error::json("writes", writes, &error),
        BatchError::Channel { path, channel } => args::bad_channel_name("writes", &path, &channel),
        BatchError::Shape { path, found } => {
            Error::invalid(format!("writes must be a list of [\"channel\", value] pairs: at {path} stands {found}"))
                .detail("Nothing was stored.")
                .hint("Pass [[\"messages\", {…}], [\"count\", 1]], or [] for a task that finished without writes.")
        }
    })
}

/// What a restarted process needs: the latest checkpoint, what its tasks have done, and which are still to do.
#[pg_extern(stable, parallel_safe)]
fn ckpt_resume(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_ns: default!(Option<&str>, "''"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(checkpoint_id, String),
            name!(next, Vec<String>),
            name!(finished, JsonResult),
            name!(failed, JsonResult),
            name!(waiting, JsonResult),
            name!(todo, Vec<String>),
        ),
    >,
    ErrorReport,
> {
    let ns = Namespace::of_args(thread_id, checkpoint_ns)?;
    let row = resume(&Db::of_call(fcinfo)?, ns)?;
    Ok(TableIterator::new(row))
}

type ResumeRow = (String, Vec<String>, JsonResult, JsonResult, JsonResult, Vec<String>);

fn resume(db: &Db, ns: Namespace<'_>) -> Result<Option<ResumeRow>> {
    let Some(latest) = Checkpoint::latest(db, ns)? else {
        return Ok(None);
    };
    let tasks = tasks_of(db, ns, &latest.checkpoint_id)?;
    let values = tasks.iter().flat_map(|task| &task.rows).map(|row| row.value.len() as u64).sum();
    args::check_result_size("what the tasks wrote", values)?;
    let of = |standing: Standing, value: fn(&Task) -> String| {
        let members = tasks.iter().filter(|task| task.standing() == standing);
        let members: Vec<String> = members.map(|task| format!("{}: {}", quote(&task.task_id), value(task))).collect();
        JsonResult(format!("{{{}}}", members.join(", ")))
    };
    let finished = of(Standing::Finished, |task| as_json(task.rows.iter().filter(|row| row.idx >= 0)));
    let failed = of(Standing::Failed, |task| {
        let error = task.rows.iter().find(|row| row.idx < 0 && row.channel == ERROR);
        error.map_or_else(|| "null".to_owned(), |row| row.text().to_owned())
    });
    let waiting = of(Standing::Waiting, |task| as_json(task.rows.iter()));
    let done = tasks.iter().filter(|task| task.standing() == Standing::Finished);
    let done: HashSet<&str> = done.map(|task| task.task_id.as_str()).collect();
    let todo = latest.next.iter().filter(|id| !done.contains(id.as_str())).cloned().collect();
    Ok(Some((latest.checkpoint_id, latest.next, finished, failed, waiting, todo)))
}
