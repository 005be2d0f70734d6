//! Taking checkpoints out of a namespace: what they leave behind goes to the right ones of those that stay.

use super::Namespace;
use super::checkpoint::decode_manifest;
use super::collect::remove_unreferenced;
use super::head::Head;
use super::reader;
use crate::error::{Error, Result};
use crate::json::{Shallow, shallow, unquote};
use crate::model::manifest::{Digest, Place};
use crate::model::retention::{Delta, Node, batches_of, new_parents};
use crate::model::writes::{INTERRUPT, SENDS};
use crate::spi::{BIGINTS, Db, INTERVAL, Row, Statement, TEXT, TEXTS, param};
use pgrx::datum::{DatumWithOid, Interval};
use std::collections::{HashMap, HashSet};

// The latest first, then by acceptance.
static CHECKPOINTS: Statement = Statement::new(
    "SELECT c.checkpoint_id, c.parent_checkpoint_id, c.manifest, c.metadata::pg_catalog.text,
            $4 IS NOT NULL AND c.created_at @> (pg_catalog.clock_timestamp() @- $4), c.revision, c.adopted
     FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3
     ORDER BY c.checkpoint_id @= (SELECT h.latest_id FROM @s.checkpoint_heads h
                                  WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3) DESC,
              c.revision DESC",
    &[TEXT, TEXT, TEXT, INTERVAL],
);

// With whether it is an interrupt $4 of a task that waits: one that has neither results nor an error (idx -1).
static WRITTEN: Statement = Statement::new(
    "SELECT DISTINCT w.checkpoint_id, w.channel,
            w.channel @= $4
            AND NOT EXISTS (SELECT 1 FROM @s.checkpoint_writes o
                            WHERE o.thread_id @= $1 AND o.tenant @= $2 AND o.checkpoint_ns @= $3
                              AND o.checkpoint_id @= w.checkpoint_id AND o.task_id @= w.task_id AND o.epoch @= w.epoch
                              AND o.idx @>= -1)
     FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.epoch @>= 0",
    &[TEXT, TEXT, TEXT, TEXT],
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

// Of each parent $4 the batches after an epoch $5 up to another $6.
static DELETE_BATCHES: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_writes w
     USING ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6)) AS consumed (parent, after, upto)
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= consumed.parent
       AND w.epoch @> consumed.after AND w.epoch @<= consumed.upto AND w.epoch @>= 0
     RETURNING w.digest",
    &[TEXT, TEXT, TEXT, TEXTS, BIGINTS, BIGINTS],
);

// The queued sends that a child $4 had of a parent $5, which are of the newest batch of each task that it saw.
static KEEP_SENDS: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_writes (thread_id, tenant, checkpoint_ns, checkpoint_id, task_id, epoch, task_path, idx, channel,
                                       value_type, value, digest, created_at)
     SELECT w.thread_id, w.tenant, w.checkpoint_ns, moved.child, w.task_id, -1, w.task_path, w.idx, w.channel, w.value_type,
            w.value, w.digest, w.created_at
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7))
          AS moved (child, parent, after, upto)
     JOIN @s.checkpoint_writes w
       ON w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.checkpoint_id @= moved.parent
     WHERE w.channel @= $8 AND w.epoch @> moved.after AND w.epoch @<= moved.upto AND w.epoch @>= 0
       AND w.epoch @= (SELECT pg_catalog.max(n.epoch) FROM @s.checkpoint_writes n
                       WHERE n.thread_id @= $1 AND n.tenant @= $2 AND n.checkpoint_ns @= $3 AND n.checkpoint_id @= moved.parent
                         AND n.task_id @= w.task_id AND n.epoch @> moved.after AND n.epoch @<= moved.upto)",
    &[TEXT, TEXT, TEXT, TEXTS, TEXTS, BIGINTS, BIGINTS, TEXT],
);

static REPARENT: Statement = Statement::new(
    "UPDATE @s.checkpoints AS c SET parent_checkpoint_id = moved.parent, adopted = true
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5)) AS moved (id, parent)
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= moved.id",
    &[TEXT, TEXT, TEXT, TEXTS, TEXTS],
);

// A fold that is gone can be made again.
static UNFOLD: Statement = Statement::new(
    "UPDATE @s.checkpoints AS c SET folded_into = NULL
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.folded_into @= ANY ($4)",
    &[TEXT, TEXT, TEXT, TEXTS],
);

static HAS_WRITES: Statement = Statement::new(
    "SELECT 1 FROM @s.checkpoint_writes w WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 LIMIT 1",
    &[TEXT, TEXT, TEXT],
);

/// All checkpoints of a namespace, the latest first, then by acceptance, newest first.
pub struct Checkpoints<'a> {
    db: &'a Db,
    ns: Namespace<'a>,
    pub nodes: Vec<Node>,
    digests: HashMap<String, Vec<Digest>>,
}

impl<'a> Checkpoints<'a> {
    /// Reads them. The caller has locked the head.
    pub fn of(db: &'a Db, ns: Namespace<'a>, older_than: Option<Interval>) -> Result<Checkpoints<'a>> {
        let mut digests: HashMap<String, Vec<Digest>> = HashMap::new();
        let mut nodes = db.write(&CHECKPOINTS, &ns.args_with(db, [param(older_than)]), |row| {
            let manifest = decode_manifest(ns.thread_id, row.bytes(3)?)?;
            let metadata = shallow(row.text(4)?).ok();
            let declared = metadata.as_ref().map(declared_delta_channels).unwrap_or_default();
            let run_id = metadata.as_ref().and_then(|metadata| metadata.member("run_id"));
            let run_id = run_id.filter(|id| id.starts_with('"')).and_then(|id| unquote(id).ok());
            let run_id = run_id.map(|id| id.into_owned());
            let mut node = Node {
                id: row.must(1)?,
                parent: row.get(2)?,
                too_young: row.must(5)?,
                revision: row.must(6)?,
                adopted: row.must(7)?,
                is_leaf: true,
                run_id,
                ..Node::default()
            };
            digests.insert(node.id.clone(), manifest.stored().map(|(_, digest)| digest).collect());
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
        let place_of: HashMap<String, usize> =
            nodes.iter().enumerate().map(|(at, node)| (node.id.clone(), at)).collect();
        let parents: Vec<usize> =
            nodes.iter().filter_map(|node| place_of.get(node.parent.as_deref()?).copied()).collect();
        for at in parents {
            nodes[at].is_leaf = false;
        }
        let args = ns.args_with(db, [param(INTERRUPT)]);
        for (checkpoint_id, channel, interrupted) in
            db.write(&WRITTEN, &args, |row| Ok((row.must::<String>(1)?, row.must::<String>(2)?, row.must::<bool>(3)?)))?
        {
            if let Some(&at) = place_of.get(&checkpoint_id) {
                nodes[at].interrupted |= interrupted;
                nodes[at].written.insert(channel);
            }
        }
        Ok(Checkpoints { db, ns, nodes, digests })
    }

    /// Removes those with these ids, their writes, and what nothing else refers to then. Their children get the nearest kept
    /// ancestor as parent, of which they see no writes; queued sends that they had go with them. A parent that stays loses the
    /// writes that a removed child consumed: no one else sees them.
    pub fn remove(&self, deleted: &HashSet<&str>) -> Result<()> {
        let (db, ns) = (self.db, self.ns);
        let ids: Vec<&str> = deleted.iter().copied().collect();
        let mut candidates: Vec<Digest> =
            ids.iter().filter_map(|id| self.digests.get(*id)).flatten().copied().collect();
        let mut head = Head::lock_existing(db, ns)?.ok_or_else(|| Error::deleted_meanwhile(ns.thread_id))?;
        self.reparent(deleted)?;
        let mut freed = db.write(&DELETE_BATCHES, &self.args_of_batches(deleted), digest_of_row)?;
        db.execute(&DELETE, &ns.args_with(db, [param(ids.clone())]))?;
        freed.extend(db.write(&DELETE_WRITES, &ns.args_with(db, [param(ids.clone())]), digest_of_row)?);
        db.execute(&UNFOLD, &ns.args_with(db, [param(ids)]))?;
        candidates.extend(freed.into_iter().flatten());
        remove_unreferenced(db, ns, candidates)?;
        if head.latest_id.as_deref().is_some_and(|latest| deleted.contains(latest)) {
            head.latest_id = self.next_latest(&head, deleted);
        }
        // Written also where the latest stays: a transaction with an older snapshot must not go on from what is gone.
        head.save(db, ns)?;
        if head.latest_id.is_none() && db.write_one(&HAS_WRITES, &ns.args(db), |row| row.must::<i32>(1))?.is_none() {
            Head::remove(db, ns)?;
        }
        Ok(())
    }

    /// Where the latest is deleted: its nearest kept ancestor, else the newest accepted.
    fn next_latest(&self, head: &Head, deleted: &HashSet<&str>) -> Option<String> {
        let by_id: HashMap<&str, &Node> = self.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let mut at = head.latest_id.as_deref().and_then(|id| by_id.get(id));
        while let Some(node) = at.filter(|node| deleted.contains(node.id.as_str())) {
            at = node.parent.as_deref().and_then(|id| by_id.get(id));
        }
        let newest = || {
            let kept = self.nodes.iter().filter(|node| !deleted.contains(node.id.as_str()));
            kept.max_by_key(|node| node.revision)
        };
        at.copied().or_else(newest).map(|node| node.id.clone())
    }

    /// Gives the kept children of deleted checkpoints their nearest kept ancestor as parent, and the queued sends they had.
    fn reparent(&self, deleted: &HashSet<&str>) -> Result<()> {
        let (db, ns) = (self.db, self.ns);
        let moved = new_parents(&self.nodes, deleted);
        if moved.is_empty() {
            return Ok(());
        }
        let batches = batches_of(&self.nodes);
        let mut of_sends = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (child, _) in &moved {
            if let Some(batch) = batches.get(child) {
                of_sends.0.push(*child);
                of_sends.1.push(batch.parent);
                of_sends.2.push(batch.after);
                of_sends.3.push(batch.upto);
            }
        }
        let (children, parents, after, upto) = of_sends;
        let args = [param(children), param(parents), param(after), param(upto), param(SENDS)];
        db.execute(&KEEP_SENDS, &ns.args_with(db, args))?;
        let (ids, parents): (Vec<&str>, Vec<Option<&str>>) = moved.into_iter().unzip();
        db.execute(&REPARENT, &ns.args_with(db, [param(ids), param(parents)]))?;
        Ok(())
    }

    /// The batches that deleted children consumed of parents that stay.
    fn args_of_batches<'d>(&'d self, deleted: &HashSet<&str>) -> Vec<DatumWithOid<'d>> {
        let batches = batches_of(&self.nodes);
        let gone = deleted.iter().filter_map(|id| batches.get(id)).filter(|batch| !deleted.contains(batch.parent));
        let gone: Vec<_> = gone.collect();
        let args = [
            param(gone.iter().map(|batch| batch.parent).collect::<Vec<_>>()),
            param(gone.iter().map(|batch| batch.after).collect::<Vec<_>>()),
            param(gone.iter().map(|batch| batch.upto).collect::<Vec<_>>()),
        ];
        self.ns.args_with(self.db, args)
    }
}

fn digest_of_row(row: &mut Row<'_>) -> Result<Option<Digest>> {
    row.optional_bytes(1)?.map(reader::digest).transpose()
}

/// The channels of which the metadata of a LangGraph checkpoint says that only their changes are kept.
fn declared_delta_channels(metadata: &Shallow<'_>) -> HashSet<String> {
    let counters = metadata.member("counters_since_delta_snapshot");
    match counters.and_then(|counters| shallow(counters).ok()) {
        Some(Shallow::Object(members)) => members.into_iter().map(|member| member.key.into_owned()).collect(),
        _ => HashSet::new(),
    }
}
