//! `ckpt_prune`: of old checkpoints only what is still needed.

use super::Namespace;
use super::checkpoint::decode_manifest;
use super::collect::remove_unreferenced;
use super::head::Head;
use super::reader;
use crate::args;
use crate::error::{Error, Result};
use crate::json::{Shallow, shallow};
use crate::model::manifest::{Digest, Place};
use crate::model::retention::{Delta, Node, to_delete};
use crate::model::writes::INTERRUPT;
use crate::spi::{Db, INTERVAL, Statement, TEXT, TEXTS, param};
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::{BTreeSet, HashMap, HashSet};

// The latest first, then by acceptance.
static CHECKPOINTS: Statement = Statement::new(
    "SELECT c.checkpoint_id, c.parent_checkpoint_id, c.manifest, c.metadata::pg_catalog.text,
            $4 IS NOT NULL AND c.created_at @> (pg_catalog.clock_timestamp() @- $4)
     FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3
     ORDER BY c.checkpoint_id @= (SELECT h.latest_id FROM @s.checkpoint_heads h
                                  WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3) DESC,
              c.revision DESC",
    &[TEXT, TEXT, TEXT, INTERVAL],
);

static WRITTEN: Statement = Statement::new(
    "SELECT DISTINCT w.checkpoint_id, w.channel FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT],
);

static DELETE: Statement = Statement::new(
    "DELETE FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= ANY ($4)",
    &[TEXT, TEXT, TEXT, TEXTS],
);

static DELETE_WRITES: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= ANY ($4)
     RETURNING w.digest",
    &[TEXT, TEXT, TEXT, TEXTS],
);

static REPARENT: Statement = Statement::new(
    "UPDATE @s.checkpoints AS c SET parent_checkpoint_id = moved.parent
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5)) AS moved (id, parent)
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= moved.id",
    &[TEXT, TEXT, TEXT, TEXTS, TEXTS],
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
            deleted += prune(&db, ns, keep, older_than)?;
        }
    }
    Ok(deleted)
}

fn prune(db: &Db, ns: Namespace<'_>, keep: usize, older_than: Option<Interval>) -> Result<i64> {
    let mut digests: HashMap<String, Vec<Digest>> = HashMap::new();
    let mut nodes = db.write(&CHECKPOINTS, &ns.args_with(db, [param(older_than)]), |row| {
        let manifest = decode_manifest(ns.thread_id, row.bytes(3)?)?;
        let mut node = Node { id: row.must(1)?, parent: row.get(2)?, too_young: row.must(5)?, ..Node::default() };
        digests.insert(node.id.clone(), manifest.stored().map(|(_, digest)| digest).collect());
        let declared = declared_delta_channels(row.text(4)?);
        for channel in manifest.channels {
            let declared = declared.contains(&channel.name);
            if channel.place != Place::Absent {
                node.with_value.insert(channel.name);
            } else if channel.version.is_some() {
                node.without_value.push(Delta { channel: channel.name, declared });
            }
        }
        Ok(node)
    })?;
    let place_of: HashMap<String, usize> = nodes.iter().enumerate().map(|(at, node)| (node.id.clone(), at)).collect();
    for (checkpoint_id, channel) in
        db.write(&WRITTEN, &ns.args(db), |row| Ok((row.must::<String>(1)?, row.must::<String>(2)?)))?
    {
        if let Some(&at) = place_of.get(&checkpoint_id) {
            nodes[at].interrupted |= channel == INTERRUPT;
            nodes[at].written.insert(channel);
        }
    }
    let deleted = to_delete(&nodes, keep);
    if deleted.is_empty() {
        return Ok(0);
    }
    let ids: Vec<&str> = deleted.iter().copied().collect();
    reparent(db, ns, &nodes, &deleted)?;
    db.execute(&DELETE, &ns.args_with(db, [param(ids.clone())]))?;
    let mut candidates: Vec<Digest> = ids.iter().filter_map(|id| digests.remove(*id)).flatten().collect();
    let written = db.write(&DELETE_WRITES, &ns.args_with(db, [param(ids)]), |row| {
        row.optional_bytes(1)?.map(reader::digest).transpose()
    })?;
    candidates.extend(written.into_iter().flatten());
    remove_unreferenced(db, ns, candidates)?;
    Ok(deleted.len() as i64)
}

/// Gives the kept children of deleted checkpoints their nearest kept ancestor as parent.
fn reparent(db: &Db, ns: Namespace<'_>, nodes: &[Node], deleted: &HashSet<&str>) -> Result<()> {
    let parent_of: HashMap<&str, Option<&str>> =
        nodes.iter().map(|node| (node.id.as_str(), node.parent.as_deref())).collect();
    let mut ids = Vec::new();
    let mut parents = Vec::new();
    for node in nodes.iter().filter(|node| !deleted.contains(node.id.as_str())) {
        let mut parent = node.parent.as_deref();
        while let Some(id) = parent.filter(|id| deleted.contains(id)) {
            parent = parent_of[id];
        }
        if parent != node.parent.as_deref() {
            ids.push(node.id.as_str());
            parents.push(parent);
        }
    }
    if !ids.is_empty() {
        db.execute(&REPARENT, &ns.args_with(db, [param(ids), param(parents)]))?;
    }
    Ok(())
}

/// The channels of which the metadata of a LangGraph checkpoint says that only their changes are kept.
fn declared_delta_channels(metadata: &str) -> HashSet<String> {
    let top = shallow(metadata).ok();
    let counters = top.as_ref().and_then(|top| top.member("counters_since_delta_snapshot"));
    match counters.and_then(|counters| shallow(counters).ok()) {
        Some(Shallow::Object(members)) => members.into_iter().map(|member| member.key.into_owned()).collect(),
        _ => HashSet::new(),
    }
}
