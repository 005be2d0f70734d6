//! Large values, each stored once per thread and namespace under its digest.

use crate::args::check_result_size;
use crate::error::{Error, Result};
use crate::model::manifest::{Channel, Digest, JSON, Manifest, Place, digest};
use crate::spi::{BYTESES, Db, Statement, TEXT, param};
use std::collections::{HashMap, HashSet};

static STORE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_blobs (thread_id, tenant, checkpoint_ns, digest, value)
     SELECT $1, $2, $3, new.digest, new.value
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5)) AS new (digest, value)
     ON CONFLICT DO NOTHING",
    &[TEXT, TEXT, TEXT, BYTESES, BYTESES],
);

static LOAD: Statement = Statement::new(
    "SELECT b.digest, b.value FROM @s.checkpoint_blobs b
     WHERE b.thread_id @= $1 AND b.tenant @= $2 AND b.checkpoint_ns @= $3 AND b.digest @= ANY ($4)",
    &[TEXT, TEXT, TEXT, BYTESES],
);

static MANIFESTS: Statement = Statement::new(
    "SELECT c.manifest FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT],
);

static REMOVE: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_blobs b
     WHERE b.thread_id @= $1 AND b.tenant @= $2 AND b.checkpoint_ns @= $3 AND b.digest @= ANY ($4)",
    &[TEXT, TEXT, TEXT, BYTESES],
);

/// A manifest, and the values of it that do not stand in it.
#[derive(Default)]
pub struct Values<'a> {
    pub manifest: Manifest,
    pub large: Vec<(Digest, &'a [u8])>,
}

impl<'a> Values<'a> {
    /// Adds a JSON channel, in the manifest or beside it by its size.
    pub fn add(&mut self, name: String, value: &'a str, inline_limit: usize) {
        let bytes = value.as_bytes();
        let place = if bytes.len() <= inline_limit {
            Place::Inline(bytes.to_vec())
        } else {
            let digest = digest(bytes);
            self.large.push((digest, bytes));
            Place::Stored { digest, size: bytes.len() as u64 }
        };
        self.manifest.channels.push(Channel { name, value_type: JSON.to_owned(), place });
    }

    /// Stores the large values. The caller holds the lock of the head.
    pub fn store(&self, db: &Db, thread_id: &str, checkpoint_ns: &str) -> Result<()> {
        if self.large.is_empty() {
            return Ok(());
        }
        let (digests, values): (Vec<&[u8]>, Vec<&[u8]>) = self.large.iter().map(|(d, v)| (d.as_slice(), *v)).unzip();
        let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns), param(digests), param(values)];
        db.execute(&STORE, &args)?;
        Ok(())
    }
}

/// The JSON texts of the channels of `manifest` for which `wanted` holds, in the manifest's order.
///
/// Errors: XX001 where a stored value is missing or does not match its checksum.
pub fn load<'m>(
    db: &Db,
    thread_id: &str,
    checkpoint_ns: &str,
    manifest: &'m Manifest,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(&'m str, String)>> {
    let channels: Vec<&Channel> = manifest.channels.iter().filter(|channel| wanted(&channel.name)).collect();
    check_result_size("the state", channels.iter().map(|channel| channel.size()).sum())?;
    let digests: Vec<&[u8]> = channels
        .iter()
        .filter_map(|channel| match &channel.place {
            Place::Stored { digest, .. } => Some(digest.as_slice()),
            Place::Inline(_) => None,
        })
        .collect();
    let mut stored: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    if !digests.is_empty() {
        let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns), param(digests)];
        stored = db.read(&LOAD, &args, |row| Ok((row.must(1)?, row.must(2)?)))?.into_iter().collect();
    }
    let damaged = |channel: &str| {
        Error::corrupted(format!("channel \"{channel}\" of thread \"{thread_id}\" is damaged"))
            .detail("Its stored value is missing or does not match its checksum.")
    };
    let mut values = Vec::with_capacity(channels.len());
    for channel in channels {
        let bytes = match &channel.place {
            Place::Inline(bytes) => bytes.clone(),
            Place::Stored { digest: expected, .. } => match stored.get(expected.as_slice()) {
                Some(bytes) if digest(bytes) == *expected => bytes.clone(),
                _ => return Err(damaged(&channel.name)),
            },
        };
        let text = String::from_utf8(bytes).map_err(|_| damaged(&channel.name))?;
        values.push((channel.name.as_str(), text));
    }
    Ok(values)
}

/// Removes those of `candidates` that no checkpoint of the namespace refers to any more. The caller holds the lock of the
/// head, so no checkpoint can begin to refer to one meanwhile.
pub fn remove_unreferenced(db: &Db, thread_id: &str, checkpoint_ns: &str, candidates: Vec<Digest>) -> Result<()> {
    let mut unreferenced: HashSet<Digest> = candidates.into_iter().collect();
    if unreferenced.is_empty() {
        return Ok(());
    }
    let place = || [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns)];
    db.write(&MANIFESTS, &place(), |row| {
        let bytes: Vec<u8> = row.must(1)?;
        for digest in super::checkpoint::decode_manifest(thread_id, &bytes)?.digests() {
            unreferenced.remove(&digest);
        }
        Ok(())
    })?;
    if !unreferenced.is_empty() {
        let digests: Vec<&[u8]> = unreferenced.iter().map(|digest| digest.as_slice()).collect();
        let [thread_id, tenant, checkpoint_ns] = place();
        db.execute(&REMOVE, &[thread_id, tenant, checkpoint_ns, param(digests)])?;
    }
    Ok(())
}
