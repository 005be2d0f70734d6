//! `ckpt_prune` and `ckpt_delete_runs`: of old checkpoints only what is still needed, and none of certain runs.

use super::Namespace;
use super::head::Head;
use super::removal::Checkpoints;
use crate::args;
use crate::error::{Error, Result};
use crate::model::retention::{Node, to_delete};
use crate::spi::{Db, Statement, TEXT, TEXTS, param};
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::{BTreeSet, HashSet};

// Which namespaces have checkpoints of a run. The condition on the tenant is one on the row, so that the index on the metadata is used.
static WITH_RUNS: Statement = Statement::new(
    "SELECT DISTINCT c.thread_id, c.checkpoint_ns
     FROM pg_catalog.unnest($2) AS wanted (run_id)
     JOIN LATERAL (SELECT d.thread_id, d.tenant, d.checkpoint_ns FROM @s.checkpoints d
                   WHERE d.metadata_filter @@> pg_catalog.jsonb_build_object('run_id', wanted.run_id)) AS c ON true
     WHERE c.tenant @= $1",
    &[TEXT, TEXTS],
);

/// Deletes all but the newest `keep` checkpoints of each namespace of these threads, or of those only what is older than
/// `older_than`; returns how many were deleted. What a kept checkpoint needs stays: its values, the history that its delta
/// channels are replayed from, a leaf that waits for the answer to an interrupt. Children of what is deleted get the nearest
/// kept ancestor as their parent.
///
/// Errors: 22004, 22023 for arguments.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_prune(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_ids: Option<Vec<Option<String>>>,
    keep: default!(Option<i32>, "1"),
    older_than: default!(Option<Interval>, "NULL"),
) -> std::result::Result<i64, ErrorReport> {
    let thread_ids = args::required("thread_ids", thread_ids)?;
    let mut threads = BTreeSet::new();
    for thread_id in &thread_ids {
        threads.insert(args::thread_id(thread_id.as_deref())?);
    }
    let keep = args::required("keep", keep)?;
    let keep = usize::try_from(keep).ok().filter(|keep| *keep > 0).ok_or_else(|| {
        Error::invalid(format!("keep must be at least 1, not {keep}"))
            .detail("The latest checkpoint of a namespace is always kept.")
            .hint("To delete a thread completely, call ckpt_delete_thread.")
    })?;
    if let Some(age) = &older_than
        && (age.months() < 0 || age.days() < 0 || age.micros() < 0)
    {
        return Err(Error::invalid("older_than must not be negative".to_owned())
            .detail("It is an age.")
            .hint("Pass an interval such as '30 days', or leave it out for any age.")
            .into());
    }
    let db = Db::of_call(fcinfo)?;
    let mut deleted = 0;
    // In the order of the threads, so that two of these cannot wait for each other.
    for thread_id in threads {
        for checkpoint_ns in Head::lock_all(&db, thread_id)? {
            let ns = Namespace { thread_id, checkpoint_ns: &checkpoint_ns };
            deleted += remove(&db, ns, older_than, |at, node| {
                at < keep || node.too_young || (node.interrupted && node.is_leaf)
            })?;
        }
    }
    Ok(deleted)
}

/// Deletes the checkpoints of these runs, told by the member `run_id` of their metadata, with their writes; returns how many were
/// deleted. What a kept checkpoint needs stays, as with `ckpt_prune`.
///
/// Errors: 22004 for arguments; 40001 a lost race.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_delete_runs(
    fcinfo: pg_sys::FunctionCallInfo,
    run_ids: Option<Vec<Option<String>>>,
) -> std::result::Result<i64, ErrorReport> {
    let run_ids = args::required("run_ids", run_ids)?;
    let run_ids = run_ids.into_iter().enumerate().map(|(at, id)| args::required(&format!("run_ids[{}]", at + 1), id));
    let run_ids: Vec<String> = run_ids.collect::<Result<_>>()?;
    Ok(delete_runs(&Db::of_call(fcinfo)?, &run_ids)?)
}

fn delete_runs(db: &Db, run_ids: &[String]) -> Result<i64> {
    let runs: HashSet<&str> = run_ids.iter().map(String::as_str).collect();
    let mut done: BTreeSet<(String, String)> = BTreeSet::new();
    let mut deleted = 0;
    // Looks again until there is nothing new: while this waited for a lock, a thread may have been copied.
    loop {
        let args = [param(db.tenant.as_str()), param(run_ids.to_vec())];
        let found = db.write(&WITH_RUNS, &args, |row| Ok((row.must::<String>(1)?, row.must::<String>(2)?)))?;
        let new: BTreeSet<(String, String)> = found.into_iter().filter(|namespace| !done.contains(namespace)).collect();
        if new.is_empty() {
            return Ok(deleted);
        }
        // In the order of the threads and namespaces, as above.
        if new.first() < done.last() {
            return Err(Error::lost_race("a thread with checkpoints of these runs came while they were deleted")
                .detail("Nothing was deleted.")
                .hint("Retry."));
        }
        for (thread_id, checkpoint_ns) in &new {
            let ns = Namespace { thread_id, checkpoint_ns };
            if Head::lock_existing(db, ns)?.is_some() {
                deleted += remove(db, ns, None, |_, node| !node.run_id.as_deref().is_some_and(|id| runs.contains(id)))?;
            }
        }
        done.extend(new);
    }
}

/// Removes the checkpoints of a namespace but for those that stay, and what these need. The caller has locked the head.
fn remove(
    db: &Db,
    ns: Namespace<'_>,
    older_than: Option<Interval>,
    stays: impl Fn(usize, &Node) -> bool,
) -> Result<i64> {
    let checkpoints = Checkpoints::of(db, ns, older_than)?;
    let deleted = to_delete(&checkpoints.nodes, stays);
    if !deleted.is_empty() {
        checkpoints.remove(&deleted)?;
    }
    Ok(deleted.len() as i64)
}
