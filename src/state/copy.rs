//! `ckpt_copy_thread`: the same thread under another id.

use super::head::Head;
use crate::args;
use crate::error::{Error, Result};
use crate::log;
use crate::spi::{Db, Statement, TEXT, TEXTS, param};
use crate::threads;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Copies rows of one thread ($1, tenant $2) to another ($3), of the namespaces that were locked ($4): another may begin meanwhile.
macro_rules! copy_rows {
    ($table:literal, $columns:literal) => {
        Statement::new(
            concat!(
                "INSERT INTO @s.",
                $table,
                " (thread_id, tenant, ",
                $columns,
                ")
                 SELECT $3, t.tenant, ",
                $columns,
                " FROM @s.",
                $table,
                " t WHERE t.thread_id @= $1 AND t.tenant @= $2 AND t.checkpoint_ns @= ANY ($4)"
            ),
            &[TEXT, TEXT, TEXT, TEXTS],
        )
    };
}
static CHECKPOINTS: Statement = copy_rows!(
    "checkpoints",
    "checkpoint_ns, checkpoint_id, parent_checkpoint_id, adopted, revision, folded_into, next, manifest, body, metadata,
     metadata_filter, created_at"
);
static BLOBS: Statement = copy_rows!("checkpoint_blobs", "checkpoint_ns, digest, log, recipe");
static SEGMENTS: Statement = copy_rows!("checkpoint_segments", "checkpoint_ns, log, start, len, data");
static WRITES: Statement = copy_rows!(
    "checkpoint_writes",
    "checkpoint_ns, checkpoint_id, task_id, epoch, idx, task_path, channel, value_type, value, digest, created_at"
);
static HEADS: Statement =
    copy_rows!("checkpoint_heads", "checkpoint_ns, latest_id, previous_id, newest_uuid, revision");

/// Copies a thread, its checkpoints, pending writes, message log and graph, under another id; returns how many checkpoints and
/// messages it has. Ids of checkpoints and messages stay the same. A target that is bound to a graph stays so.
///
/// Errors: 22004, 22023 for arguments; P0002 no such thread; 55000 the target has something, or was deleted and is blocked.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_copy_thread(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    target_thread_id: Option<&str>,
) -> std::result::Result<i64, ErrorReport> {
    let thread_id = args::thread_id(thread_id)?;
    let target = args::named_thread_id("target_thread_id", target_thread_id)?;
    if thread_id == target {
        return Err(Error::invalid("target_thread_id must not be the thread itself")
            .detail("Nothing was copied.")
            .hint("Pass an id under which there is nothing yet. For another way within a thread there is ckpt_fork.")
            .into());
    }
    Ok(copy(&Db::of_call(fcinfo)?, thread_id, target)?)
}

fn copy(db: &Db, thread_id: &str, target: &str) -> Result<i64> {
    // Before the source is locked: this may have to wait for those who are about to begin the target.
    threads::lock(db, target)?;
    threads::check_not_blocked(db, target)?;
    if !threads::is_empty(db, target)? {
        return Err(Error::wrong_state(format!("thread \"{target}\" is not empty"))
            .detail("A thread can only be copied to an id under which there is nothing. Nothing was copied.")
            .hint("Choose another target_thread_id, or delete that thread first: ckpt_delete_thread(thread_id)."));
    }
    let namespaces = Head::lock_all(db, thread_id)?;
    let messages = log::copy(db, thread_id, target)?;
    if namespaces.is_empty() && messages.is_none() {
        return Err(Error::no_thread_at_all(thread_id));
    }
    let args = || [param(thread_id), param(db.tenant.as_str()), param(target), param(namespaces.clone())];
    let mut copied = messages.unwrap_or_default();
    if !namespaces.is_empty() {
        Head::touch_all(db, thread_id)?;
        db.execute(&HEADS, &args())?;
        copied += db.execute(&CHECKPOINTS, &args())?;
        for statement in [&BLOBS, &SEGMENTS, &WRITES] {
            db.execute(statement, &args())?;
        }
    }
    // What the target was bound to beforehand goes before.
    let graph = match threads::graph(db, target)? {
        Some(graph) => Some(graph),
        None => threads::graph(db, thread_id)?,
    };
    if let Some(graph) = graph {
        threads::bind(db, target, &graph)?;
        Head::bind_all(db, target, &graph)?;
    }
    Ok(copied as i64)
}
