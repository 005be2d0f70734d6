//! `ckpt_rewind`: takes back the tail of the log.

use super::summary;
use crate::args;
use crate::error::{Error, Result};
use crate::spi::{BIGINT, Db, Statement, TEXT, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// Writes the log's row, which locks it against appends and gives 40001 to those with an older snapshot; the counter of seqs stays as
// it is, so that none is used again.
static LOCK: Statement = Statement::new(
    "UPDATE @s.checkpoint_logs AS l SET last_seq = l.last_seq WHERE l.thread_id @= $1 AND l.tenant @= $2",
    &[TEXT, TEXT],
);

static COUNT: Statement = Statement::new(
    "UPDATE @s.checkpoint_logs AS l SET message_count = l.message_count @- $3
     WHERE l.thread_id @= $1 AND l.tenant @= $2",
    &[TEXT, TEXT, BIGINT],
);

static REMOVE: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_messages m WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @> $3",
    &[TEXT, TEXT, BIGINT],
);

/// Removes the messages after a seq, with the summaries that cover any of them, and returns how many messages there were; 0 for a
/// thread without a log.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_rewind(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    after_seq: Option<i64>,
) -> std::result::Result<i64, ErrorReport> {
    let thread_id = args::thread_id(thread_id)?;
    let after_seq = args::required("after_seq", after_seq)?;
    if after_seq < 0 {
        return Err(Error::invalid(format!("after_seq must not be negative: {after_seq}"))
            .detail("Messages are numbered from 1.")
            .hint("Pass the seq of the last message to keep, or 0 to remove all.")
            .into());
    }
    Ok(rewind(&Db::of_call(fcinfo)?, thread_id, after_seq)?)
}

fn rewind(db: &Db, thread_id: &str, after_seq: i64) -> Result<i64> {
    if db.execute(&LOCK, &[param(thread_id), param(db.tenant.as_str())])? == 0 {
        return Ok(0);
    }
    let removed = db.execute(&REMOVE, &[param(thread_id), param(db.tenant.as_str()), param(after_seq)])? as i64;
    if removed > 0 {
        db.execute(&COUNT, &[param(thread_id), param(db.tenant.as_str()), param(removed)])?;
        summary::forget_from(db, thread_id, after_seq.saturating_add(1))?;
    }
    Ok(removed)
}
