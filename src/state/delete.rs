//! `ckpt_delete_thread`: everything of a thread, at once.

use super::head::Head;
use crate::args;
use crate::error::Result;
use crate::spi::{Db, Statement, TEXT, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

macro_rules! delete_from {
    ($table:literal) => {
        Statement::new(
            concat!("DELETE FROM @s.", $table, " t WHERE t.thread_id @= $1 AND t.tenant @= $2"),
            &[TEXT, TEXT],
        )
    };
}
static CHECKPOINTS: Statement = delete_from!("checkpoints");
static MESSAGES: Statement = delete_from!("checkpoint_messages");
static WRITES: Statement = delete_from!("checkpoint_writes");
static BLOBS: Statement = delete_from!("checkpoint_blobs");
static HEADS: Statement = delete_from!("checkpoint_heads");
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

fn delete(db: &Db, thread_id: &str) -> Result<i64> {
    let args = [param(thread_id), param(db.tenant.as_str())];
    Head::lock_all(db, thread_id)?;
    db.execute(&LOCK_LOG, &args)?;
    let counted = db.execute(&CHECKPOINTS, &args)? + db.execute(&MESSAGES, &args)?;
    for statement in [&WRITES, &BLOBS, &HEADS, &LOGS] {
        db.execute(statement, &args)?;
    }
    Ok(counted as i64)
}
