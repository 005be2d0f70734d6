//! Stored values on their way into memory: by their digest the recipe, by the recipe the bytes, checked against the digest.

use super::Namespace;
use super::checkpoint::Checkpoint;
use super::segments::Logs;
use crate::args::check_result_size;
use crate::error::{Error, Result};
use crate::model::growth::{Growing, Grown};
use crate::model::manifest::{Channel, Digest, Place};
use crate::model::recipe::{Piece, Recipe, value_digest};
use crate::spi::{BYTESES, Db, Statement, TEXT, param};
use std::collections::HashMap;

// Not `digest = ANY ($4)`: on a table that it knows nothing about the planner takes that for a filter over all of the
// namespace. A range and an order leave no doubt about what the index is good for; that the range ends where it begins
// keeps the index from looking at what follows on its page.
static RECIPES: Statement = Statement::new(
    "SELECT b.digest, b.log, b.recipe
     FROM pg_catalog.unnest($4) AS wanted (digest)
     JOIN LATERAL (SELECT s.digest, s.log, s.recipe FROM @s.checkpoint_blobs s
                   WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3
                     AND s.digest @>= wanted.digest AND s.digest @<= wanted.digest
                   ORDER BY s.digest LIMIT 1) AS b ON true",
    &[TEXT, TEXT, TEXT, BYTESES],
);

/// A large value that is stored: which log its recipe reads.
pub struct Stored {
    pub log: String,
    pub recipe: Recipe,
}

pub fn digest(bytes: &[u8]) -> Result<Digest> {
    bytes.try_into().map_err(|_| Error::corrupted("a key of checkpoint_blobs is not a digest".to_owned()))
}

/// The recipes of these values, as far as they are stored.
pub fn recipes(db: &Db, ns: Namespace<'_>, digests: impl Iterator<Item = Digest>) -> Result<HashMap<Digest, Stored>> {
    let digests: Vec<Digest> = digests.collect();
    let mut stored = HashMap::new();
    if digests.is_empty() {
        return Ok(stored);
    }
    let digests: Vec<&[u8]> = digests.iter().map(Digest::as_slice).collect();
    db.each(&RECIPES, &ns.args_with(db, [param(digests)]), |row| {
        if let Some(recipe) = Recipe::decode(row.bytes(3)?) {
            stored.insert(digest(row.bytes(1)?)?, Stored { log: row.must(2)?, recipe });
        }
        Ok(())
    })?;
    Ok(stored)
}

/// Values of a namespace whose recipes were looked up.
pub struct Reader<'a> {
    logs: Logs<'a>,
    stored: HashMap<Digest, Stored>,
}

impl<'a> Reader<'a> {
    /// For the values with these digests.
    pub fn new(db: &'a Db, ns: Namespace<'a>, digests: impl Iterator<Item = Digest>) -> Result<Reader<'a>> {
        Ok(Reader { stored: recipes(db, ns, digests)?, logs: Logs::new(db, ns) })
    }

    /// For the channels of a checkpoint for which `wanted` holds.
    pub fn of_channels(db: &'a Db, checkpoint: &'a Checkpoint, wanted: impl Fn(&str) -> bool) -> Result<Reader<'a>> {
        let stored = checkpoint.manifest.stored().filter(|(name, _)| wanted(name));
        Reader::new(db, checkpoint.namespace(), stored.map(|(_, digest)| digest))
    }

    /// The bytes of a value behind `headroom` zeros, checked against its digest; `None` where they are damaged or not there.
    pub fn read(&self, expected: &Digest, headroom: usize) -> Result<Option<Vec<u8>>> {
        let Some(Stored { log, recipe }) = self.stored.get(expected) else {
            return Ok(None);
        };
        let bytes = self.logs.assemble(log, &recipe.pieces, headroom)?;
        Ok(bytes.filter(|bytes| {
            let bytes = &bytes[headroom..];
            let body = recipe.body();
            let (head, body, tail) = (
                &bytes[..body.start as usize],
                &bytes[body.start as usize..body.end as usize],
                &bytes[body.end as usize..],
            );
            value_digest(bytes.len() as u64, head, tail, blake3::hash(body).as_bytes()) == *expected
        }))
    }

    /// The channels of a checkpoint for which `wanted` holds, with their bytes, in the manifest's order; without those that have no
    /// value.
    ///
    /// Errors: XX001 where a stored value is missing or does not match its checksum.
    fn load<'c>(
        &self,
        checkpoint: &'c Checkpoint,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(&'c Channel, Vec<u8>)>> {
        let mut values = Vec::new();
        for channel in checkpoint.manifest.channels.iter().filter(|channel| wanted(&channel.name)) {
            let bytes = match &channel.place {
                Place::Absent => continue,
                Place::Inline(bytes) => bytes.clone(),
                Place::Stored { digest, .. } => self
                    .read(digest, 0)?
                    .ok_or_else(|| Error::damaged(&channel.name, &checkpoint.checkpoint_id, &checkpoint.thread_id))?,
            };
            values.push((channel, bytes));
        }
        Ok(values)
    }

    /// The same for JSON values, as text.
    pub fn load_json<'c>(
        &self,
        checkpoint: &'c Checkpoint,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(&'c str, String)>> {
        let channels = checkpoint.manifest.channels.iter().filter(|channel| wanted(&channel.name));
        check_result_size("the state", channels.map(Channel::size).sum())?;
        self.load(checkpoint, wanted)?
            .into_iter()
            .map(|(channel, bytes)| {
                let text = String::from_utf8(bytes)
                    .map_err(|_| Error::damaged(&channel.name, &checkpoint.checkpoint_id, &checkpoint.thread_id))?;
                Ok((channel.name.as_str(), text))
            })
            .collect()
    }

    /// Takes into memory what [`Reader::grow`] will look at: the open end of a list, and behind it the elements that `writes`
    /// have brought to the same log. One stretch, where they stand side by side, as they do when nothing else came between.
    pub fn keep_open_end(&mut self, channel: &Channel, writes: impl Iterator<Item = Digest>) -> Result<()> {
        let Some(list) = channel.place.digest().and_then(|digest| self.stored.get(&digest)) else {
            return Ok(());
        };
        let Some(growing) = Growing::of(&list.recipe) else {
            return Ok(());
        };
        let open = list.recipe.slice(growing.open());
        let open = open.iter().filter_map(Piece::extent).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let Some(open) = open else {
            return Ok(());
        };
        let written = writes.filter_map(|digest| self.stored.get(&digest)).filter(|write| write.log == list.log);
        let end = written.flat_map(|write| write.recipe.extents()).map(|extent| extent.end).max();
        let stretch = open.start..end.unwrap_or_default().max(open.end);
        if stretch.end - stretch.start <= NEAR {
            self.logs.keep(&list.log, stretch)?;
        }
        Ok(())
    }

    /// The list that a channel has, with `elements` behind its own, without reading more of it than its end; `None` where that
    /// cannot be.
    pub fn grow(&self, channel: &Channel, elements: &str) -> Result<Option<(String, Grown)>> {
        let Some(Stored { log, recipe }) = channel.place.digest().and_then(|digest| self.stored.get(&digest)) else {
            return Ok(None);
        };
        let Some(growing) = Growing::of(recipe) else {
            return Ok(None);
        };
        let Some(open) = self.logs.assemble(log, &recipe.slice(growing.open()), 0)? else {
            return Ok(None);
        };
        let grown = growing.append(open, elements);
        // Pending writes may have brought these bytes.
        let found = match grown.ahead() {
            Some(start) => self.logs.has_ahead(log, start, &grown.log_bytes)? == grown.log_bytes.len(),
            None => false,
        };
        Ok(Some((log.clone(), if found { grown.found_ahead() } else { grown })))
    }
}

/// The longest stretch that is taken into memory at once.
const NEAR: u64 = 1 << 20;
