//! What is set for a thread as a whole: the graph that it is bound to, and whether it was deleted and must not come back yet.
//!
//! The first touch of a namespace or of a log asks for both. Calls that change them, or take a thread as it is as a whole, hold
//! an advisory lock of the thread; first touches hold it shared. A first touch holds the row that it has made, so it asks for that
//! lock for a moment only, without queueing for it, and then gives up with 40001. So no two calls can wait for each other.

use crate::error::{Error, Result};
use crate::guc;
use crate::spi::{BIGINT, Db, INTERVAL, Statement, TEXT, TIMESTAMPTZ, has_one_snapshot, param};
use pgrx::check_for_interrupts;
use pgrx::datum::{Interval, TimestampWithTimeZone, ToIsoString};
use std::collections::BTreeSet;
use std::time::Duration;

static TRY_SHARED: Statement = Statement::new("SELECT pg_catalog.pg_try_advisory_xact_lock_shared($1)", &[BIGINT]);
static EXCLUSIVE: Statement = Statement::new("SELECT pg_catalog.pg_advisory_xact_lock($1)", &[BIGINT]);

/// How often a first touch asks for the lock, and how long it rests between: as long as a deletion takes, and less than
/// `deadlock_timeout`.
const ATTEMPTS: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(3);

static FIND: Statement = Statement::new(
    "SELECT t.graph, t.blocked_until, t.blocked_until @> $3
     FROM @s.checkpoint_threads t WHERE t.thread_id @= $1 AND t.tenant @= $2",
    &[TEXT, TEXT, TIMESTAMPTZ],
);

static BIND: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_threads AS t (thread_id, tenant, graph) VALUES ($1, $2, $3)
     ON CONFLICT (thread_id, tenant) DO UPDATE SET graph = $3, blocked_until = NULL",
    &[TEXT, TEXT, TEXT],
);

static BLOCK: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_threads AS t (thread_id, tenant, blocked_until) VALUES ($1, $2, $3 @+ $4)
     ON CONFLICT (thread_id, tenant) DO UPDATE SET graph = NULL, blocked_until = GREATEST(t.blocked_until, $3 @+ $4)",
    &[TEXT, TEXT, TIMESTAMPTZ, INTERVAL],
);

static FORGET: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_threads t
     WHERE t.thread_id @= $1 AND t.tenant @= $2 AND (t.blocked_until IS NULL OR t.blocked_until @<= $3)",
    &[TEXT, TEXT, TIMESTAMPTZ],
);

// Those that others look at just now are left to the next one.
static SWEEP: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_threads t
     WHERE t.ctid @= ANY (ARRAY(SELECT s.ctid FROM @s.checkpoint_threads s
                                WHERE s.blocked_until @<= $1 AND s.blocked_until IS NOT NULL
                                ORDER BY s.blocked_until LIMIT 100 FOR UPDATE SKIP LOCKED))",
    &[TIMESTAMPTZ],
);

// What a thread consists of: its namespaces, and its log.
static PARTS: Statement = Statement::new(
    "SELECT h.checkpoint_ns, false FROM @s.checkpoint_heads h WHERE h.thread_id @= $1 AND h.tenant @= $2
     UNION ALL
     SELECT '', true FROM @s.checkpoint_logs l WHERE l.thread_id @= $1 AND l.tenant @= $2",
    &[TEXT, TEXT],
);

/// What is set for a thread.
struct Setting {
    graph: Option<String>,
    blocked_until: Option<TimestampWithTimeZone>,
    is_blocked: bool,
}

/// Asks, once the row is there that begins a namespace or a log, whether it may, and which graph the thread is bound to. `rows`
/// counts the rows that this transaction sees under its key.
///
/// Errors: 55000 the thread is blocked; 40001 it is being deleted, or was since this transaction's snapshot.
pub fn first_touch(db: &Db, thread_id: &str, rows: impl FnOnce() -> Result<Option<i64>>) -> Result<Option<String>> {
    try_shared(db, thread_id)?;
    let setting = find(db, thread_id)?;
    if let Some(Setting { is_blocked: true, blocked_until, .. }) = &setting {
        return Err(blocked(thread_id, blocked_until.as_ref()));
    }
    // A snapshot that is older than the deletion still has values that are gone.
    if has_one_snapshot() && rows()?.unwrap_or_default() > 1 {
        return Err(Error::deleted_meanwhile(thread_id));
    }
    Ok(setting.and_then(|setting| setting.graph))
}

fn try_shared(db: &Db, thread_id: &str) -> Result<()> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(BETWEEN_ATTEMPTS);
            check_for_interrupts!();
        }
        if db.write_one(&TRY_SHARED, &[param(lock_key(db, thread_id))], |row| row.must(1))? == Some(true) {
            return Ok(());
        }
    }
    Err(Error::lost_race(format!("thread \"{thread_id}\" is being deleted, copied or bound"))
        .detail("Nothing was stored.")
        .hint("Retry when that is done."))
}

/// Keeps first touches of a thread away until the end of the transaction, and waits for those that have begun. The caller
/// holds no lock of the thread yet.
///
/// Errors: 40001 the thread has namespaces or a log that this transaction, whose snapshot is older, does not see.
pub fn lock(db: &Db, thread_id: &str) -> Result<()> {
    db.execute(&EXCLUSIVE, &[param(lock_key(db, thread_id))])?;
    if has_one_snapshot() {
        let args = [param(thread_id), param(db.tenant.as_str())];
        let seen: BTreeSet<(String, bool)> =
            db.write(&PARTS, &args, |row| Ok((row.must(1)?, row.must(2)?)))?.into_iter().collect();
        let there = parts(db, thread_id)?;
        if there != seen {
            return Err(Error::lost_race(format!("thread \"{thread_id}\" has changed meanwhile"))
                .detail("Another session began or deleted a part of it. Nothing was changed.")
                .hint("Retry in a new transaction."));
        }
    }
    Ok(())
}

/// Whether a thread has anything now. The caller has called [`lock`].
pub fn is_empty(db: &Db, thread_id: &str) -> Result<bool> {
    Ok(parts(db, thread_id)?.is_empty())
}

fn parts(db: &Db, thread_id: &str) -> Result<BTreeSet<(String, bool)>> {
    let args = [param(thread_id), param(db.tenant.as_str())];
    Ok(db.read_now(&PARTS, &args, |row| Ok((row.must(1)?, row.must(2)?)))?.into_iter().collect())
}

/// Refuses a thread that was deleted and is still blocked. The caller has called [`lock`].
pub fn check_not_blocked(db: &Db, thread_id: &str) -> Result<()> {
    match find(db, thread_id)? {
        Some(Setting { is_blocked: true, blocked_until, .. }) => Err(blocked(thread_id, blocked_until.as_ref())),
        _ => Ok(()),
    }
}

/// The graph that a thread is bound to.
pub fn graph(db: &Db, thread_id: &str) -> Result<Option<String>> {
    Ok(find(db, thread_id)?.and_then(|setting| setting.graph))
}

/// Binds a thread to a graph. The caller has called [`lock`].
pub fn bind(db: &Db, thread_id: &str, graph: &str) -> Result<()> {
    db.execute(&BIND, &[param(thread_id), param(db.tenant.as_str()), param(graph)])?;
    Ok(())
}

/// Forgets what was set for a thread, and keeps it from beginning anew for a while; a block that lasts longer stays. The caller
/// has called [`lock`].
pub fn forget(db: &Db, thread_id: &str, block_for: Option<Interval>) -> Result<()> {
    let now = guc::now()?;
    let Some(block_for) = block_for else {
        db.execute(&FORGET, &[param(thread_id), param(db.tenant.as_str()), param(now)])?;
        return Ok(());
    };
    db.execute(&BLOCK, &[param(thread_id), param(db.tenant.as_str()), param(now), param(block_for)])?;
    db.execute(&SWEEP, &[param(now)])?;
    Ok(())
}

fn find(db: &Db, thread_id: &str) -> Result<Option<Setting>> {
    let args = [param(thread_id), param(db.tenant.as_str()), param(guc::now()?)];
    let found = db.read_now(&FIND, &args, |row| {
        Ok(Setting { graph: row.get(1)?, blocked_until: row.get(2)?, is_blocked: row.get(3)?.unwrap_or_default() })
    })?;
    Ok(found.into_iter().next())
}

fn blocked(thread_id: &str, until: Option<&TimestampWithTimeZone>) -> Error {
    let until = until.map(|until| until.to_iso_string()).unwrap_or_default();
    Error::wrong_state(format!("thread \"{thread_id}\" was deleted"))
        .detail(format!("Until {until} nothing can be written to it, so that a late worker does not bring it back."))
        .hint("Use another thread id, or wait.")
}

/// The key of a thread's advisory lock.
fn lock_key(db: &Db, thread_id: &str) -> i64 {
    let mut hasher = blake3::Hasher::new_derive_key("checkpointer 2026 advisory lock of a thread");
    for part in [db.quoted_schema().as_str(), db.tenant.as_str(), thread_id] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut key = [0; 8];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    i64::from_le_bytes(key)
}
