//! `ckpt_delete_thread`: everything of a thread, at once; and if it is said for how long, it does not come back.

use super::head::Head;
use crate::args;
use crate::error::Result;
use crate::log;
use crate::spi::{Db, Statement, TEXT, TEXTS, param};
use crate::threads;
use pgrx::datum::Interval;
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

/// Deletes a thread: checkpoints of all namespaces, values, writes and message log, and to which graph it was bound. Returns how
/// many checkpoints and messages it had; 0 for a thread that does not exist. For `block_for` nothing can be written to it.
///
/// Errors: 22004, 22023 for arguments.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_delete_thread(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    block_for: default!(Option<Interval>, "NULL"),
) -> std::result::Result<i64, ErrorReport> {
    let thread_id = args::thread_id(thread_id)?;
    let block_for = block_for.map(|interval| args::positive_interval("block_for", Some(interval))).transpose()?;
    Ok(delete(&Db::of_call(fcinfo)?, thread_id, block_for)?)
}

fn delete(db: &Db, thread_id: &str, block_for: Option<Interval>) -> Result<i64> {
    // From here on no namespace and no log of the thread begins.
    threads::lock(db, thread_id)?;
    let thread = || [param(thread_id), param(db.tenant.as_str())];
    let mut counted = 0;
    let namespaces = Head::lock_all(db, thread_id)?;
    let has_log = log::lock(db, thread_id)?;
    if !namespaces.is_empty() {
        let [thread_id, tenant] = thread();
        let args = [thread_id, tenant, param(namespaces)];
        counted += db.execute(&CHECKPOINTS, &args)?;
        for statement in [&WRITES, &BLOBS, &SEGMENTS, &HEADS] {
            db.execute(statement, &args)?;
        }
    }
    if has_log {
        counted += db.execute(&MESSAGES, &thread())?;
        db.execute(&SUMMARIES, &thread())?;
        db.execute(&LOGS, &thread())?;
    }
    threads::forget(db, thread_id, block_for)?;
    Ok(counted as i64)
}
