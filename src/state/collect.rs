//! What nothing refers to any more is removed: values no checkpoint and no pending write has, and the stretches of the log that
//! no value is made of.

use super::Namespace;
use super::checkpoint::decode_manifest;
use super::segments;
use crate::error::{Error, Result};
use crate::model::manifest::Digest;
use crate::model::recipe::{Ranges, Recipe};
use crate::spi::{BYTESES, Db, Statement, TEXT, TEXTS, param};
use std::collections::{HashMap, HashSet};

static MANIFESTS: Statement = Statement::new(
    "SELECT c.manifest FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT],
);

static WRITTEN: Statement = Statement::new(
    "SELECT w.digest FROM @s.checkpoint_writes w
     WHERE w.thread_id @= $1 AND w.tenant @= $2 AND w.checkpoint_ns @= $3 AND w.digest IS NOT NULL",
    &[TEXT, TEXT, TEXT],
);

static REMOVE: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_blobs b
     WHERE b.thread_id @= $1 AND b.tenant @= $2 AND b.checkpoint_ns @= $3 AND b.digest @= ANY ($4)
     RETURNING b.log",
    &[TEXT, TEXT, TEXT, BYTESES],
);

static RECIPES: Statement = Statement::new(
    "SELECT b.log, b.recipe FROM @s.checkpoint_blobs b
     WHERE b.thread_id @= $1 AND b.tenant @= $2 AND b.checkpoint_ns @= $3 AND b.log @= ANY ($4)",
    &[TEXT, TEXT, TEXT, TEXTS],
);

static SEGMENTS: Statement = Statement::new(
    "SELECT s.start, s.len FROM @s.checkpoint_segments s
     WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3 AND s.log @= $4",
    &[TEXT, TEXT, TEXT, TEXT],
);

/// A segment of which less than half is needed and this much is not is cut down to what is.
const WASTE: u64 = 8 << 10;

/// Removes those of `candidates` that nothing of the namespace refers to any more. The caller holds the lock of the head, so
/// nothing can begin to refer to one meanwhile.
pub fn remove_unreferenced(db: &Db, ns: Namespace<'_>, candidates: Vec<Digest>) -> Result<()> {
    let mut unreferenced: HashSet<Digest> = candidates.into_iter().collect();
    if unreferenced.is_empty() {
        return Ok(());
    }
    db.each(&MANIFESTS, &ns.args(db), |row| {
        for (_, digest) in decode_manifest(ns.thread_id, row.bytes(1)?)?.stored() {
            unreferenced.remove(&digest);
        }
        Ok(())
    })?;
    db.each(&WRITTEN, &ns.args(db), |row| {
        unreferenced.remove(row.bytes(1)?);
        Ok(())
    })?;
    if unreferenced.is_empty() {
        return Ok(());
    }
    let digests: Vec<&[u8]> = unreferenced.iter().map(Digest::as_slice).collect();
    let logs = db.write(&REMOVE, &ns.args_with(db, [param(digests)]), |row| row.must::<String>(1))?;
    let mut live: HashMap<String, Ranges> = logs.into_iter().map(|log| (log, Ranges::default())).collect();
    let logs: Vec<String> = live.keys().cloned().collect();
    db.each(&RECIPES, &ns.args_with(db, [param(logs)]), |row| {
        let recipe = Recipe::decode(row.bytes(2)?).ok_or_else(|| {
            Error::corrupted(format!("a recipe of a value of thread \"{}\" is damaged", ns.thread_id))
        })?;
        if let Some(live) = live.get_mut(row.text(1)?) {
            live.extend(recipe.extents());
        }
        Ok(())
    })?;
    live.into_iter().try_for_each(|(log, mut live)| {
        live.settle();
        trim(db, ns, &log, &live)
    })
}

/// Removes the segments of a log that are not live, and cuts down those that are to a small part. Offsets stay as they are, so
/// no recipe changes.
fn trim(db: &Db, ns: Namespace<'_>, log: &str, live: &Ranges) -> Result<()> {
    let mut dead = Vec::new();
    let segments: Vec<(i64, i32)> =
        db.read(&SEGMENTS, &ns.args_with(db, [param(log)]), |row| Ok((row.must(1)?, row.must(2)?)))?;
    for (start, len) in segments {
        let segment = start as u64..start as u64 + len as u64;
        let kept = live.within(&segment);
        let needed: u64 = kept.iter().map(|range| range.end - range.start).sum();
        let waste = len as u64 - needed;
        if needed == 0 {
            dead.push(start);
        } else if waste > WASTE && waste > needed {
            segments::cut(db, ns, log, &segment, &kept)?;
        }
    }
    if !dead.is_empty() {
        segments::remove(db, ns, log, dead)?;
    }
    Ok(())
}
