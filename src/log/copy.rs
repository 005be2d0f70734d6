//! The log of a thread that is copied.

use crate::error::Result;
use crate::spi::{Db, Statement, TEXT, param};

static LOCK: Statement = Statement::new(
    "SELECT 1 FROM @s.checkpoint_logs l WHERE l.thread_id @= $1 AND l.tenant @= $2 FOR UPDATE",
    &[TEXT, TEXT],
);

// The job of making a summary is not copied: whoever has it has it for the source.
static LOG: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_logs (thread_id, tenant, last_seq, message_count, copied_from)
     SELECT $3, l.tenant, l.last_seq, l.message_count, COALESCE(l.copied_from, '{}') @|| $1
     FROM @s.checkpoint_logs l WHERE l.thread_id @= $1 AND l.tenant @= $2",
    &[TEXT, TEXT, TEXT],
);

static MESSAGES: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_messages (thread_id, tenant, seq, msg_id, role, opens_exchange, message_count, tokens, turn, message,
                                         rules, clean, clean_tokens, created_at)
     SELECT $3, m.tenant, m.seq, m.msg_id, m.role, m.opens_exchange, m.message_count, m.tokens, m.turn, m.message, m.rules, m.clean,
            m.clean_tokens, m.created_at
     FROM @s.checkpoint_messages m WHERE m.thread_id @= $1 AND m.tenant @= $2",
    &[TEXT, TEXT, TEXT],
);

static SUMMARIES: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_summaries (thread_id, tenant, seq, message_count, summary, expires_at, created_at)
     SELECT $3, s.tenant, s.seq, s.message_count, s.summary, s.expires_at, s.created_at
     FROM @s.checkpoint_summaries s WHERE s.thread_id @= $1 AND s.tenant @= $2",
    &[TEXT, TEXT, TEXT],
);

/// Locks the log of a thread until the end of the transaction; false where it has none.
pub fn lock(db: &Db, thread_id: &str) -> Result<bool> {
    let locked = db.write_one(&LOCK, &[param(thread_id), param(db.tenant.as_str())], |row| row.must::<i32>(1))?;
    Ok(locked.is_some())
}

/// Copies the log of a thread to a target that has none; returns how many messages it has, or `None` where there is no log. The
/// caller has locked the heads.
pub fn copy(db: &Db, thread_id: &str, target: &str) -> Result<Option<u64>> {
    if !lock(db, thread_id)? {
        return Ok(None);
    }
    let args = || [param(thread_id), param(db.tenant.as_str()), param(target)];
    db.execute(&LOG, &args())?;
    let messages = db.execute(&MESSAGES, &args())?;
    db.execute(&SUMMARIES, &args())?;
    Ok(Some(messages))
}
