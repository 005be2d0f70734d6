//! Pending writes: `ckpt_put_writes` logs what a task produced, `ckpt_resume` says where a restarted process goes on.

use super::checkpoint::Checkpoint;
use super::head::Head;
use crate::args;
use crate::error::{Error, Result};
use crate::json::quote;
use crate::json_types::{JsonResult, JsonText};
use crate::model::fold::{Task, group};
use crate::model::writes::{Batch, BatchError, Change, ERROR, OnConflict, Standing, Write, as_json, settle};
use crate::spi::{BYTESES, Db, INTS, Row, Statement, TEXT, TEXTS, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::HashSet;

static OF_TASK: Statement = Statement::new(
    "SELECT w.task_id, w.task_path, w.idx, w.channel, w.value_type, w.value FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= $4 AND w.task_id @= $5
     ORDER BY w.idx",
    &[TEXT, TEXT, TEXT, TEXT, TEXT],
);

static OF_CHECKPOINT: Statement = Statement::new(
    "SELECT w.task_id, w.task_path, w.idx, w.channel, w.value_type, w.value FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= $4
     ORDER BY w.task_path, w.task_id, w.idx",
    &[TEXT, TEXT, TEXT, TEXT],
);

static REMOVE: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= $4 AND w.task_id @= $5
       AND w.idx @= ANY ($6)",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, INTS],
);

static STORE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_writes (thread_id, tenant, checkpoint_ns, checkpoint_id, task_id, task_path,
                                       idx, channel, value_type, value)
     SELECT $1, $2, $3, $4, $5, $6, new.idx, new.channel, new.value_type, new.value
     FROM ROWS FROM (pg_catalog.unnest($7), pg_catalog.unnest($8), pg_catalog.unnest($9), pg_catalog.unnest($10))
          AS new (idx, channel, value_type, value)",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, INTS, TEXTS, TEXTS, BYTESES],
);

fn read_write(row: &Row<'_>) -> Result<(String, String, Write)> {
    let value: Vec<u8> = row.must(6)?;
    let channel: String = row.must(4)?;
    let value = String::from_utf8(value)
        .map_err(|_| Error::corrupted(format!("a pending write to channel \"{channel}\" is damaged")))?;
    Ok((row.must(1)?, row.must(2)?, Write { idx: row.must(3)?, channel, value_type: row.must(5)?, value }))
}

/// The tasks of a checkpoint with their writes, in the order in which they are folded, under the lock of the head.
pub fn locked_tasks(db: &Db, thread_id: &str, checkpoint_ns: &str, checkpoint_id: &str) -> Result<Vec<Task>> {
    let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns), param(checkpoint_id)];
    Ok(group(db.write(&OF_CHECKPOINT, &args, read_write)?.into_iter()))
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
        thread_id: args::thread_id(thread_id)?,
        checkpoint_id: args::name("checkpoint_id", checkpoint_id)?,
        task_id: args::name("task_id", task_id)?,
        batch: parse_batch(args::json("writes", writes)?)?,
        checkpoint_ns: args::checkpoint_ns(checkpoint_ns)?,
        task_path: args::task_path(task_path)?,
        on_conflict: args::on_conflict(on_conflict)?,
    };
    Ok(put.run(&Db::of_call(fcinfo)?)?)
}

struct PutWrites<'a> {
    thread_id: &'a str,
    checkpoint_id: &'a str,
    task_id: &'a str,
    batch: Batch,
    checkpoint_ns: &'a str,
    task_path: &'a str,
    on_conflict: OnConflict,
}

impl PutWrites<'_> {
    fn run(self, db: &Db) -> Result<i32> {
        Head::lock(db, self.thread_id, self.checkpoint_ns)?;
        let base = Checkpoint::locked(db, self.thread_id, self.checkpoint_ns, self.checkpoint_id)?;
        let mut args = vec![
            param(self.thread_id),
            param(db.tenant.as_str()),
            param(self.checkpoint_ns),
            param(self.checkpoint_id),
            param(self.task_id),
        ];
        let rows: Vec<Write> = db.write(&OF_TASK, &args, |row| Ok(read_write(row)?.2))?;
        let folded_into = base.and_then(|base| base.folded_into);
        let settled = settle(&rows, self.batch, self.on_conflict);
        if settled.as_ref().is_ok_and(Change::is_empty) {
            return Ok(0);
        }
        if let Some(folded_into) = folded_into {
            return Err(Error::wrong_state(format!("checkpoint \"{}\" takes no more writes", self.checkpoint_id))
                .detail(format!("Its writes were folded into checkpoint \"{folded_into}\"."))
                .hint(
                    "Go on from that checkpoint, or run the step again on a fork: ckpt_fork(thread_id, checkpoint_id).",
                ));
        }
        let change = settled.map_err(|_| {
            Error::conflict(format!("task \"{}\" has other writes already", self.task_id))
                .detail(format!(
                    "They were logged against checkpoint \"{}\" of thread \"{}\"; nothing was changed.",
                    self.checkpoint_id, self.thread_id
                ))
                .hint("Pass on_conflict => 'keep' to let the first batch stand, or 'replace' to let this one.")
        })?;
        if !change.remove.is_empty() {
            args.push(param(change.remove));
            db.execute(&REMOVE, &args)?;
            args.pop();
        }
        let stored = change.store.len();
        if stored > 0 {
            args.push(param(self.task_path));
            args.push(param(change.store.iter().map(|write| write.idx).collect::<Vec<_>>()));
            args.push(param(change.store.iter().map(|write| write.channel.as_str()).collect::<Vec<_>>()));
            args.push(param(change.store.iter().map(|write| write.value_type.as_str()).collect::<Vec<_>>()));
            args.push(param(change.store.iter().map(|write| write.value.as_bytes()).collect::<Vec<_>>()));
            db.execute(&STORE, &args)?;
        }
        // A finish mark is no write of the caller's.
        Ok(change.store.iter().filter(|write| !write.is_mark()).count() as i32)
    }
}

fn parse_batch(writes: &str) -> Result<Batch> {
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
    let thread_id = args::thread_id(thread_id)?;
    let checkpoint_ns = args::checkpoint_ns(checkpoint_ns)?;
    let row = resume(&Db::of_call(fcinfo)?, thread_id, checkpoint_ns)?;
    Ok(TableIterator::new(row))
}

type ResumeRow = (String, Vec<String>, JsonResult, JsonResult, JsonResult, Vec<String>);

fn resume(db: &Db, thread_id: &str, checkpoint_ns: &str) -> Result<Option<ResumeRow>> {
    let Some(latest) = Checkpoint::latest(db, thread_id, checkpoint_ns)? else {
        return Ok(None);
    };
    let mut tasks = Vec::new();
    // The writes of a folded checkpoint are in its child already.
    if latest.folded_into.is_none() {
        let args =
            [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns), param(latest.checkpoint_id.as_str())];
        tasks = group(db.read(&OF_CHECKPOINT, &args, read_write)?.into_iter());
    }
    let of = |standing: Standing, value: fn(&Task) -> String| {
        let members = tasks.iter().filter(|task| task.standing() == standing);
        let members: Vec<String> = members.map(|task| format!("{}: {}", quote(&task.task_id), value(task))).collect();
        JsonResult(format!("{{{}}}", members.join(", ")))
    };
    let finished = of(Standing::Finished, |task| as_json(task.rows.iter().filter(|row| row.idx >= 0)));
    let failed = of(Standing::Failed, |task| {
        let error = task.rows.iter().find(|row| row.idx < 0 && row.channel == ERROR);
        error.map_or_else(|| "null".to_owned(), |row| row.value.clone())
    });
    let waiting = of(Standing::Waiting, |task| as_json(task.rows.iter()));
    let done = tasks.iter().filter(|task| task.standing() == Standing::Finished);
    let done: HashSet<&str> = done.map(|task| task.task_id.as_str()).collect();
    let todo = latest.next.iter().filter(|id| !done.contains(id.as_str())).cloned().collect();
    Ok(Some((latest.checkpoint_id, latest.next, finished, failed, waiting, todo)))
}
