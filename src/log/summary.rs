//! `ckpt_summary_due` and `ckpt_put_summary`: the summary of what no longer fits in the window, by the caller's model, made once.
//!
//! Whoever asks first gets the job, under a lease in the log's row; nobody holds a lock while the model thinks. A summary is bound
//! to the last message that it covers: an edit or a rewind of what it covers takes it away, and with the number of edits that the job
//! was handed out with a summary of what was there before is told from one of what is there now.

use super::markup::rules;
use super::read::parse_stored;
use super::walk::Walk;
use super::window;
use crate::args;
use crate::error::{Error, Result};
use crate::guc;
use crate::json_types::JsonResult;
use crate::model::cleaning::cleaned;
use crate::model::message::Speaker;
use crate::model::notes::MOST_OPENINGS;
use crate::spi::{BIGINT, Db, INTERVAL, Statement, TEXT, TIMESTAMPTZ, param};
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

static NEWEST: Statement = Statement::new(
    "SELECT s.seq, s.message_count, s.summary FROM @s.checkpoint_summaries s
     WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.seq @< $3 AND (s.expires_at IS NULL OR s.expires_at @> $4)
     ORDER BY s.seq DESC LIMIT 1",
    &[TEXT, TEXT, BIGINT, TIMESTAMPTZ],
);

// The newest messages between two seqs that open an exchange; the second limit is for exchanges of a thousand messages.
static OPENINGS: Statement = Statement::new(
    "SELECT near.message::pg_catalog.text
     FROM (SELECT m.opens_exchange, m.message FROM @s.checkpoint_messages m
           WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @> $3 AND m.seq @< $4
           ORDER BY m.seq DESC LIMIT 500) AS near
     WHERE near.opens_exchange LIMIT $5",
    &[TEXT, TEXT, BIGINT, BIGINT, BIGINT],
);

// The messages of a job.
static UNCOVERED: Statement = Statement::new(
    "SELECT m.seq, m.message_count, m.opens_exchange, m.message::pg_catalog.text FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @> $3 AND m.message_count @<= $4
     ORDER BY m.seq LIMIT $5",
    &[TEXT, TEXT, BIGINT, BIGINT, BIGINT],
);

static LOCK: Statement = Statement::new(
    "SELECT l.edits, l.lease_until, l.lease_seq, l.message_count FROM @s.checkpoint_logs l
     WHERE l.thread_id @= $1 AND l.tenant @= $2 FOR NO KEY UPDATE",
    &[TEXT, TEXT],
);

static LEASE: Statement = Statement::new(
    "UPDATE @s.checkpoint_logs AS l SET lease_seq = $3, lease_until = $4 @+ $5
     WHERE l.thread_id @= $1 AND l.tenant @= $2 RETURNING l.lease_until",
    &[TEXT, TEXT, BIGINT, TIMESTAMPTZ, INTERVAL],
);

static RELEASE: Statement = Statement::new(
    "UPDATE @s.checkpoint_logs AS l SET lease_seq = NULL, lease_until = NULL
     WHERE l.thread_id @= $1 AND l.tenant @= $2 AND l.lease_seq @<= $3",
    &[TEXT, TEXT, BIGINT],
);

// From a seq on, where the message count is at least as far away as the seq.
static COUNT_FROM: Statement = Statement::new(
    "SELECT m.seq, m.message_count FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @>= $3 ORDER BY m.seq LIMIT 1",
    &[TEXT, TEXT, BIGINT],
);

static PUT: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_summaries AS s (thread_id, tenant, seq, message_count, summary, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6 @+ $7)
     ON CONFLICT (thread_id, tenant, seq) DO UPDATE
     SET summary = excluded.summary, expires_at = excluded.expires_at, created_at = excluded.created_at",
    &[TEXT, TEXT, BIGINT, BIGINT, TEXT, TIMESTAMPTZ, INTERVAL],
);

// An older one is there for a rewind; how many there are must not grow with the thread.
static TIDY: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_summaries s
     WHERE s.thread_id @= $1 AND s.tenant @= $2
       AND (s.expires_at @<= $3
            OR s.seq @< (SELECT n.seq FROM @s.checkpoint_summaries n WHERE n.thread_id @= $1 AND n.tenant @= $2
                         ORDER BY n.seq DESC OFFSET 3 LIMIT 1))",
    &[TEXT, TEXT, TIMESTAMPTZ],
);

static FORGET_FROM: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_summaries s WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.seq @>= $3",
    &[TEXT, TEXT, BIGINT],
);

// Whoever has the lease works on what is no longer there; the job can be handed out anew.
static RECALL: Statement = Statement::new(
    "UPDATE @s.checkpoint_logs AS l SET edits = l.edits @+ 1, lease_until = NULL
     WHERE l.thread_id @= $1 AND l.tenant @= $2 AND l.lease_seq @>= $3",
    &[TEXT, TEXT, BIGINT],
);

/// The most messages of one job: more than that are summarised in several.
const MOST_MESSAGES: usize = 500;

pub struct Summary {
    pub seq: i64,
    pub message_count: i64,
    pub summary: String,
}

/// The newest summary that ends before a seq.
pub fn newest(db: &Db, thread_id: &str, before_seq: i64) -> Result<Option<Summary>> {
    let args = [param(thread_id), param(db.tenant.as_str()), param(before_seq), param(guc::now()?)];
    db.read_one(&NEWEST, &args, |row| {
        Ok(Summary { seq: row.must(1)?, message_count: row.must(2)?, summary: row.must(3)? })
    })
}

/// The newest texts that open exchanges between two seqs, in order.
pub fn openings_between(db: &Db, thread_id: &str, after: i64, before: i64) -> Result<Vec<String>> {
    let bounds = [after, before, MOST_OPENINGS as i64].map(param);
    let args = [param(thread_id), param(db.tenant.as_str())].into_iter().chain(bounds).collect::<Vec<_>>();
    let mut openings =
        db.read(&OPENINGS, &args, |row| Ok(parse_stored(thread_id, row.text(1)?)?.content.unwrap_or_default()))?;
    openings.reverse();
    Ok(openings)
}

/// Takes away the summaries that cover a seq or what comes after it. The caller has the lock of the log.
pub fn forget_from(db: &Db, thread_id: &str, seq: i64) -> Result<()> {
    let args = || [param(thread_id), param(db.tenant.as_str()), param(seq)];
    db.execute(&FORGET_FROM, &args())?;
    db.execute(&RECALL, &args())?;
    Ok(())
}

/// Whether what lies before the window of `size` messages needs a summary: one row with the job, or none. The previous summary and
/// the messages that it does not cover, cleaned, are what to summarise; `message_count` and `edits` go to `ckpt_put_summary`. Until
/// `lease` is over nobody else gets the job.
///
/// Errors: 22004, 22023 for arguments.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_summary_due(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    size: default!(Option<i32>, "60"),
    every: default!(Option<i32>, "1"),
    lease: default!(Option<Interval>, "'1 minute'"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(message_count, i64),
            name!(previous_count, i64),
            name!(previous_summary, Option<String>),
            name!(messages, JsonResult),
            name!(edits, i64),
            name!(lease_until, Option<TimestampWithTimeZone>),
        ),
    >,
    ErrorReport,
> {
    let thread_id = args::thread_id(thread_id)?;
    let size = window::size(size)?;
    let every = args::required("every", every)?;
    if every < 1 {
        return Err(Error::invalid(format!("every must be positive: {every}"))
            .detail("It is how many messages must be without a summary before one is due.")
            .hint("Pass 1 for a summary as soon as there is something to summarise.")
            .into());
    }
    let lease = args::positive_interval("lease", lease)?;
    let db = Db::of_call(fcinfo)?;
    let job = Job { db: &db, thread_id, size, every: i64::from(every) }.hand_out(lease)?;
    Ok(TableIterator::new(job))
}

type JobRow = (i64, i64, Option<String>, JsonResult, i64, Option<TimestampWithTimeZone>);

struct Job<'a> {
    db: &'a Db,
    thread_id: &'a str,
    size: usize,
    every: i64,
}

/// What is to be summarised.
struct Uncovered {
    before: i64,
    previous: Option<Summary>,
}

impl Job<'_> {
    fn hand_out(&self, lease: Interval) -> Result<Option<JobRow>> {
        // Most calls end here, without a lock.
        if self.uncovered()?.is_none() {
            return Ok(None);
        }
        let now = guc::now()?;
        let state = self
            .db
            .write_one(&LOCK, &self.log(), |row| Ok((row.must::<i64>(1)?, row.get::<TimestampWithTimeZone>(2)?)))?;
        let Some((edits, None)) = state.map(|(edits, until)| (edits, until.filter(|until| *until > now))) else {
            return Ok(None);
        };
        // Again, under the lock: the summary may have come, or the messages gone.
        let Some(Uncovered { before, previous }) = self.uncovered()? else { return Ok(None) };
        let (covered, covered_seq) = previous.as_ref().map_or((0, 0), |known| (known.message_count, known.seq));
        let (messages, last) = self.messages(covered_seq, before)?;
        let Some((seq, message_count)) = last else { return Ok(None) };
        let [thread_id, tenant] = self.log();
        let args = [thread_id, tenant, param(seq), param(now), param(lease)];
        let until = self.db.write_one(&LEASE, &args, |row| row.get(1))?.flatten();
        let previous = previous.map(|previous| previous.summary);
        Ok(Some((message_count, covered, previous, JsonResult(messages), edits, until)))
    }

    fn log<'p>(&self) -> [pgrx::datum::DatumWithOid<'p>; 2] {
        [param(self.thread_id), param(self.db.tenant.as_str())]
    }

    fn uncovered(&self) -> Result<Option<Uncovered>> {
        let frame = Walk::new(self.db, Some(self.thread_id), self.size, None).frame(Vec::new())?;
        if frame.before < self.every {
            return Ok(None);
        }
        let previous = newest(self.db, self.thread_id, frame.final_seq)?;
        let missing = frame.before - previous.as_ref().map_or(0, |previous| previous.message_count);
        Ok((missing >= self.every).then_some(Uncovered { before: frame.before, previous }))
    }

    /// The messages after a seq, up to the message `until`, as a JSON list; and the last of them. Where they are too many for one
    /// job, whole exchanges.
    fn messages(&self, after_seq: i64, until: i64) -> Result<(String, Option<(i64, i64)>)> {
        let rules = rules(self.db)?;
        let [thread_id, tenant] = self.log();
        // One more tells whether the last exchange ends there.
        let args = [thread_id, tenant, param(after_seq), param(until), param(MOST_MESSAGES as i64 + 1)];
        let mut found: Vec<(i64, i64, bool, String)> = self.db.write(&UNCOVERED, &args, |row| {
            let text: String = row.must(4)?;
            let role = parse_stored(self.thread_id, &text)?.role;
            let text = cleaned(&text, Speaker::of_role(&role), &rules.cleaner).unwrap_or(text);
            Ok((row.must(1)?, row.must(2)?, row.must(3)?, text))
        })?;
        if found.len() > MOST_MESSAGES {
            let opening = found.iter().rposition(|(.., opens, _)| *opens).filter(|at| *at > 0);
            found.truncate(opening.unwrap_or(MOST_MESSAGES));
        }
        let last = found.last().map(|(seq, count, ..)| (*seq, *count));
        args::check_result_size("the job", found.iter().map(|(.., text)| text.len() as u64 + 2).sum())?;
        let texts: Vec<&str> = found.iter().map(|(.., text)| text.trim()).collect();
        Ok((format!("[{}]", texts.join(", ")), last))
    }
}

/// Keeps a summary of the first `message_count` messages of the log. With `ttl` it counts only so long. `edits` is what
/// `ckpt_summary_due` gave: a summary of messages that changed since then is refused.
///
/// Errors: 22004, 22023; P0002 no such log; 40001 the messages changed.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_put_summary(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    message_count: Option<i64>,
    summary: Option<&str>,
    ttl: default!(Option<Interval>, "NULL"),
    edits: default!(Option<i64>, "NULL"),
) -> std::result::Result<(), ErrorReport> {
    let thread_id = args::thread_id(thread_id)?;
    let message_count = args::required("message_count", message_count)?;
    let summary = args::required("summary", summary)?;
    if summary.trim().is_empty() {
        return Err(Error::invalid("summary must not be empty")
            .detail("An empty one would hide what it stands for.")
            .hint("If the model gave none, leave it: the window shows an extract until there is one.")
            .into());
    }
    let ttl = ttl.map(|ttl| args::positive_interval("ttl", Some(ttl))).transpose()?;
    let db = Db::of_call(fcinfo)?;
    Ok(put(&db, thread_id, message_count, summary, ttl, edits)?)
}

fn put(
    db: &Db,
    thread_id: &str,
    message_count: i64,
    summary: &str,
    ttl: Option<Interval>,
    edits: Option<i64>,
) -> Result<()> {
    let log = || [param(thread_id), param(db.tenant.as_str())];
    let state = db.write_one(&LOCK, &log(), |row| {
        let lease_until: Option<TimestampWithTimeZone> = row.get(2)?;
        Ok((row.must::<i64>(1)?, lease_until, row.get::<i64>(3)?, row.must::<i64>(4)?))
    })?;
    let Some((edits_now, lease_until, lease_seq, messages)) = state else {
        return Err(Error::no_log(thread_id));
    };
    if !(1..=messages).contains(&message_count) {
        return Err(Error::invalid(format!("message_count is {message_count}, and the log has {messages} messages"))
            .detail("It is how many messages, from the first on, the summary covers.")
            .hint("Pass the message_count that ckpt_summary_due gave."));
    }
    let seq = seq_of_count(db, thread_id, message_count)?;
    // Without `edits` only a lease that was called back tells it.
    let recalled = lease_seq == Some(seq) && lease_until.is_none();
    if edits.map_or(recalled, |edits| edits != edits_now) {
        return Err(Error::lost_race(format!(
            "messages of thread \"{thread_id}\" that the summary covers have changed"
        ))
        .detail("They were edited or rewound while it was made. Nothing was stored.")
        .hint("Call ckpt_summary_due again."));
    }
    let now = guc::now()?;
    let [thread, tenant] = log();
    let args = [thread, tenant, param(seq), param(message_count), param(summary), param(now), param(ttl)];
    db.execute(&PUT, &args)?;
    let [thread, tenant] = log();
    db.execute(&TIDY, &[thread, tenant, param(now)])?;
    let [thread, tenant] = log();
    db.execute(&RELEASE, &[thread, tenant, param(seq)])?;
    Ok(())
}

/// The seq of the message with which the log has so many. Without rewinds they are equal; after each the seq is ahead by more, so
/// the search never goes too far, and takes a step for each of them at most.
fn seq_of_count(db: &Db, thread_id: &str, message_count: i64) -> Result<i64> {
    let mut seq = message_count;
    loop {
        let args = [param(thread_id), param(db.tenant.as_str()), param(seq)];
        let found = db.write_one(&COUNT_FROM, &args, |row| Ok((row.must::<i64>(1)?, row.must::<i64>(2)?)))?;
        match found {
            Some((found, count)) if count < message_count => seq = found + (message_count - count),
            Some((found, _)) => return Ok(found),
            None => return Err(Error::no_log(thread_id)),
        }
    }
}
