//! `ckpt_delete_thread`: everything of a thread, at once.

use super::head::Head;
use crate::args;
use crate::error::Result;
use crate::spi::{Db, Statement, TEXT, TEXTS, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

macro_rules! delete_namespaces_from {
    ($table:literal) => {
        Statement::new(
            concat!(
                "DELETE FROM @s.",
                $table,
                " t WHERE t.thread_id @= $1 AND t.tenant @= $2 AND t.checkpoint_ns @= ANY ($3)"
            ),
            &[TEXT, TEXT, TEXTS],
        )
    };
}
static CHECKPOINTS: Statement = delete_namespaces_from!("checkpoints");
static WRITES: Statement = delete_namespaces_from!("checkpoint_writes");
static BLOBS: Statement = delete_namespaces_from!("checkpoint_blobs");
static SEGMENTS: Statement = delete_namespaces_from!("checkpoint_segments");
static HEADS: Statement = delete_namespaces_from!("checkpoint_heads");

macro_rules! delete_from {
    ($table:literal) => {
        Statement::new(
            concat!("DELETE FROM @s.", $table, " t WHERE t.thread_id @= $1 AND t.tenant @= $2"),
            &[TEXT, TEXT],
        )
    };
}
static MESSAGES: Statement = delete_from!("checkpoint_messages");
static SUMMARIES: Statement = delete_from!("checkpoint_summaries");
static LOGS: Statement = delete_from!("checkpoint_logs");

static LOCK_LOG: Statement = Statement::new(
    "SELECT l.last_seq FROM @s.checkpoint_logs l WHERE l.thread_id @= $1 AND l.tenant @= $2 FOR UPDATE",
    &[TEXT, TEXT],
);

/// Deletes a thread: checkpoints of all namespaces, values, writes and message log. Returns how many checkpoints and messages
/// it had; 0 for a thread that does not exist.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_delete_thread(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
) -> std::result::Result<i64, ErrorReport> {
    let thread_id = args::thread_id(thread_id)?;
    Ok(delete(&Db::of_call(fcinfo)?, thread_id)?)
}

/// Only what is locked is deleted. A namespace that another session deleted and a third made anew, while this call waited for
/// its lock, comes after this call.
fn delete(db: &Db, thread_id: &str) -> Result<i64> {
    let thread = || [param(thread_id), param(db.tenant.as_str())];
    let mut counted = 0;
    let namespaces = Head::lock_all(db, thread_id)?;
    let log = db.write_one(&LOCK_LOG, &thread(), |row| row.must::<i64>(1))?;
    if !namespaces.is_empty() {
        let [thread_id, tenant] = thread();
        let args = [thread_id, tenant, param(namespaces)];
        counted += db.execute(&CHECKPOINTS, &args)?;
        for statement in [&WRITES, &BLOBS, &SEGMENTS, &HEADS] {
            db.execute(statement, &args)?;
        }
    }
    if log.is_some() {
        counted += db.execute(&MESSAGES, &thread())?;
        db.execute(&SUMMARIES, &thread())?;
        db.execute(&LOGS, &thread())?;
    }
    Ok(counted as i64)
}
