//! Channel values: small ones in the manifest, large ones as recipes over the log of their channel, each once per thread and
//! namespace under its digest.

use super::Namespace;
use super::checkpoint::Checkpoint;
use super::segments::{Appender, assemble, has_ahead};
use crate::args::check_result_size;
use crate::error::{Error, Result};
use crate::guc;
use crate::model::delta::{Plan, Value};
use crate::model::growth::{Growing, Grown};
use crate::model::manifest::{Channel, Digest, Manifest, Place};
use crate::model::payload::Payload;
use crate::model::recipe::{Recipe, SHORT, value_digest};
use crate::spi::{BYTESES, Db, Statement, TEXT, TEXTS, param};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

// Not `digest = ANY ($4)`: on a table that it knows nothing about the planner takes that for a filter over all of the
// namespace. A range and an order leave no doubt about what the index is good for.
static RECIPES: Statement = Statement::new(
    "SELECT b.digest, b.log, b.recipe
     FROM pg_catalog.unnest($4) AS wanted (digest)
     JOIN LATERAL (SELECT s.digest, s.log, s.recipe FROM @s.checkpoint_blobs s
                   WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3 AND s.digest @>= wanted.digest
                   ORDER BY s.digest LIMIT 1) AS b ON b.digest @= wanted.digest",
    &[TEXT, TEXT, TEXT, BYTESES],
);

static KNOWN: Statement = Statement::new(
    "SELECT b.digest
     FROM pg_catalog.unnest($4) AS wanted (digest)
     JOIN LATERAL (SELECT s.digest FROM @s.checkpoint_blobs s
                   WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3 AND s.digest @>= wanted.digest
                   ORDER BY s.digest LIMIT 1) AS b ON b.digest @= wanted.digest",
    &[TEXT, TEXT, TEXT, BYTESES],
);

static STORE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_blobs (thread_id, tenant, checkpoint_ns, digest, log, recipe)
     SELECT $1, $2, $3, new.digest, new.log, new.recipe
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6)) AS new (digest, log, recipe)",
    &[TEXT, TEXT, TEXT, BYTESES, TEXTS, BYTESES],
);

/// A large value that is stored: which log its recipe reads.
pub struct Stored {
    pub log: String,
    pub recipe: Recipe,
}

/// The channels that a new checkpoint is given, before the large ones among them are hashed.
#[derive(Default)]
pub struct Given<'a> {
    channels: Vec<Channel>,
    /// The bytes of large values, by their place among the channels.
    large: Vec<(usize, &'a [u8])>,
    grown: Vec<(String, Grown)>,
}

impl<'a> Given<'a> {
    /// Adds a channel with this value: in the manifest, or beside it, by its size.
    pub fn add(&mut self, name: String, version: Option<String>, value_type: String, bytes: &'a [u8]) {
        let mut place = Place::Absent;
        if bytes.len() <= guc::inline_limit() {
            place = Place::Inline(bytes.to_vec());
        } else {
            self.large.push((self.channels.len(), bytes));
        }
        self.channels.push(Channel { name, version, value_type, place });
    }

    /// Adds a channel that is stored already, or has no value.
    pub fn keep(&mut self, channel: Channel) {
        self.channels.push(channel);
    }

    /// Adds a channel with a list that grew, and the log it stands in.
    pub fn add_grown(&mut self, channel: &Channel, log: String, grown: Grown) {
        let place = Place::Stored { digest: grown.digest, size: grown.size };
        self.channels.push(Channel { place, ..channel.clone() });
        self.grown.push((log, grown));
    }

    pub fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    /// Hashes the large values, each beside the value that its channel has in `base`.
    pub fn hash(mut self, db: &Db, ns: Namespace<'_>, base: Option<&Manifest>) -> Result<Values<'a>> {
        let digest_of: HashMap<&str, Digest> = base.map(Manifest::stored).into_iter().flatten().collect();
        let before: Vec<Option<Digest>> =
            self.large.iter().map(|(at, _)| digest_of.get(self.channels[*at].name.as_str()).copied()).collect();
        let mut stored = recipes(db, ns, before.iter().flatten().copied().collect())?;
        let mut values = Vec::with_capacity(self.large.len());
        for ((at, bytes), digest) in self.large.iter().zip(before) {
            let before = digest.and_then(|digest| stored.remove(&digest));
            let (value, goes_on) = match &before {
                Some(before) => Value::after(bytes, &before.recipe),
                None => (Value::new(bytes), None),
            };
            let channel = &mut self.channels[*at];
            channel.place = Place::Stored { digest: value.digest, size: bytes.len() as u64 };
            if digest != Some(value.digest) {
                values.push(New { value, goes_on, channel: channel.name.clone(), before });
            }
        }
        Ok(Values { manifest: Manifest { channels: self.channels }, new: values, grown: self.grown })
    }
}

/// The channels of a new checkpoint, and those large values of it that differ from its predecessor's.
pub struct Values<'a> {
    pub manifest: Manifest,
    new: Vec<New<'a>>,
    grown: Vec<(String, Grown)>,
}

struct New<'a> {
    value: Value<'a>,
    channel: String,
    /// The value before it, and where in the new one its body goes on.
    before: Option<Stored>,
    goes_on: Option<usize>,
}

impl Values<'_> {
    /// Stores the large values that are not stored yet. The caller holds the lock of the head.
    pub fn store(&self, db: &Db, ns: Namespace<'_>) -> Result<()> {
        let digests = self.new.iter().map(|new| &new.value.digest);
        let mut known = known(db, ns, digests.chain(self.grown.iter().map(|(_, grown)| &grown.digest)))?;
        let mut planned = Vec::new();
        for new in self.new.iter().filter(|new| known.insert(new.value.digest)) {
            let (log, plan) = new.plan(db, ns)?;
            planned.push((log, Planned::Value(plan)));
        }
        for (log, grown) in self.grown.iter().filter(|(_, grown)| known.insert(grown.digest)) {
            planned.push((log.as_str(), Planned::Grown(grown)));
        }
        store(db, ns, &planned)
    }
}

impl<'a> New<'a> {
    /// How to store the value, and in which log.
    fn plan(&self, db: &Db, ns: Namespace<'_>) -> Result<(&str, Plan<'a>)> {
        let value = self.value.clone();
        let Some(before) = &self.before else {
            return Ok((&self.channel, Plan::whole(value)));
        };
        if let Some(plan) = self.goes_on.and_then(|from| Plan::append(value.clone(), &before.recipe, from)) {
            // A pending write may have brought these bytes.
            let found = match plan.ahead() {
                Some((start, bytes)) => has_ahead(db, ns, &before.log, start, bytes)?,
                None => 0,
            };
            return Ok((&before.log, plan.found_ahead(found)));
        }
        if Plan::worth_comparing(&before.recipe, &value)
            && let Some(bytes) = assemble(db, ns, &before.log, &before.recipe.pieces, 0)?
            && let Some(plan) = Plan::difference(value.clone(), &before.recipe, &bytes)
        {
            return Ok((&before.log, plan));
        }
        Ok((&self.channel, Plan::whole(value).missed(&before.recipe)))
    }
}

/// The log of the values of pending writes. No channel has an empty name.
const WRITES_LOG: &str = "";

/// Stores large values of pending writes that are not stored yet. The caller holds the lock of the head.
pub fn store_writes(db: &Db, ns: Namespace<'_>, values: &[LargeWrite<'_>]) -> Result<()> {
    let mut known = known(db, ns, values.iter().map(|write| &write.value.digest))?;
    let mut planned = Vec::with_capacity(values.len());
    for LargeWrite { channel, value_type, value } in values {
        if !known.insert(value.digest) {
            continue;
        }
        let payload = Payload::of(value_type, value.bytes).filter(|payload| payload.elements.len() >= SHORT);
        planned.push(match payload {
            Some(payload) => {
                (channel.as_str(), Planned::Payload(Plan::payload(value.clone(), &payload), payload.separator))
            }
            None => (WRITES_LOG, Planned::Value(Plan::whole(value.clone()))),
        });
    }
    store(db, ns, &planned)
}

/// A write whose value does not stand in its row.
pub struct LargeWrite<'a> {
    pub channel: String,
    pub value_type: String,
    pub value: Value<'a>,
}

/// What is going to be stored of a value.
enum Planned<'a> {
    Value(Plan<'a>),
    Grown(&'a Grown),
    /// With what goes to the log before it.
    Payload(Plan<'a>, &'static [u8]),
}

impl<'a> Planned<'a> {
    fn digest(&self) -> Digest {
        match self {
            Planned::Value(plan) | Planned::Payload(plan, _) => plan.digest(),
            Planned::Grown(grown) => grown.digest,
        }
    }

    fn log_bytes(&self) -> Vec<Cow<'a, [u8]>> {
        match self {
            Planned::Value(plan) => plan.log_bytes().into_iter().map(Cow::Borrowed).collect(),
            Planned::Payload(plan, b"") => plan.log_bytes().into_iter().map(Cow::Borrowed).collect(),
            Planned::Payload(plan, separator) => {
                vec![Cow::Owned([separator, plan.log_bytes().concat().as_slice()].concat())]
            }
            Planned::Grown(grown) => vec![Cow::Borrowed(&grown.log_bytes)],
        }
    }

    fn recipe(&self, start: u64) -> Recipe {
        match self {
            Planned::Value(plan) => plan.recipe(start),
            Planned::Payload(plan, separator) => plan.recipe(start + separator.len() as u64),
            Planned::Grown(grown) => grown.recipe(start),
        }
    }
}

/// Appends what is new to the logs, and stores the recipes.
fn store(db: &Db, ns: Namespace<'_>, planned: &[(&str, Planned<'_>)]) -> Result<()> {
    if planned.is_empty() {
        return Ok(());
    }
    let bytes: Vec<Vec<Cow<'_, [u8]>>> = planned.iter().map(|(_, plan)| plan.log_bytes()).collect();
    let mut appender = Appender::default();
    let mut rels = Vec::with_capacity(planned.len());
    for ((log, _), bytes) in planned.iter().zip(&bytes) {
        let mut rel = None;
        for bytes in bytes {
            let at = appender.add(log, bytes);
            rel.get_or_insert(at);
        }
        rels.push(rel.unwrap_or_default());
    }
    let ends = appender.run(db, ns)?;
    let recipes: Vec<Vec<u8>> = planned
        .iter()
        .zip(rels)
        .map(|((log, plan), rel)| plan.recipe((ends.get(*log).copied().unwrap_or_default() + rel) as u64).encode())
        .collect();
    let digests: Vec<Digest> = planned.iter().map(|(_, plan)| plan.digest()).collect();
    let [thread_id, tenant, checkpoint_ns] = ns.args(db);
    let args = [
        thread_id,
        tenant,
        checkpoint_ns,
        param(digests.iter().map(Digest::as_slice).collect::<Vec<_>>()),
        param(planned.iter().map(|(log, _)| *log).collect::<Vec<_>>()),
        param(recipes.iter().map(Vec::as_slice).collect::<Vec<_>>()),
    ];
    db.execute(&STORE, &args)?;
    Ok(())
}

/// Which of these values are stored.
fn known<'d>(db: &Db, ns: Namespace<'_>, digests: impl Iterator<Item = &'d Digest>) -> Result<HashSet<Digest>> {
    let digests: Vec<&[u8]> = digests.map(Digest::as_slice).collect();
    if digests.is_empty() {
        return Ok(HashSet::new());
    }
    let [thread_id, tenant, checkpoint_ns] = ns.args(db);
    let known = db.write(&KNOWN, &[thread_id, tenant, checkpoint_ns, param(digests)], |row| digest(row.bytes(1)?))?;
    Ok(known.into_iter().collect())
}

pub fn digest(bytes: &[u8]) -> Result<Digest> {
    bytes.try_into().map_err(|_| Error::corrupted("a key of checkpoint_blobs is not a digest".to_owned()))
}

/// The recipes of these values, as far as they are stored.
pub fn recipes(db: &Db, ns: Namespace<'_>, digests: Vec<Digest>) -> Result<HashMap<Digest, Stored>> {
    if digests.is_empty() {
        return Ok(HashMap::new());
    }
    let [thread_id, tenant, checkpoint_ns] = ns.args(db);
    let digests: Vec<&[u8]> = digests.iter().map(Digest::as_slice).collect();
    let mut stored = HashMap::new();
    db.each(&RECIPES, &[thread_id, tenant, checkpoint_ns, param(digests)], |row| {
        if let Some(recipe) = Recipe::decode(row.bytes(3)?) {
            stored.insert(digest(row.bytes(1)?)?, Stored { log: row.must(2)?, recipe });
        }
        Ok(())
    })?;
    Ok(stored)
}

/// The bytes of a stored value behind `headroom` zeros, checked against its digest; `None` where they are damaged or not there.
pub fn read(
    db: &Db,
    ns: Namespace<'_>,
    expected: &Digest,
    stored: Option<&Stored>,
    headroom: usize,
) -> Result<Option<Vec<u8>>> {
    let Some(Stored { log, recipe }) = stored else {
        return Ok(None);
    };
    let bytes = assemble(db, ns, log, &recipe.pieces, headroom)?.filter(|bytes| {
        let bytes = &bytes[headroom..];
        let body = recipe.body();
        let (head, body, tail) = (
            &bytes[..body.start as usize],
            &bytes[body.start as usize..body.end as usize],
            &bytes[body.end as usize..],
        );
        value_digest(bytes.len() as u64, head, tail, blake3::hash(body).as_bytes()) == *expected
    });
    Ok(bytes)
}

/// The list that a channel has, with `elements` behind its own, without reading more of it than its end; `None` where that
/// cannot be.
pub fn grow(db: &Db, ns: Namespace<'_>, channel: &Channel, elements: &str) -> Result<Option<(String, Grown)>> {
    let Some(digest) = channel.place.digest() else {
        return Ok(None);
    };
    let Some(Stored { log, recipe }) = recipes(db, ns, vec![digest])?.remove(&digest) else {
        return Ok(None);
    };
    let Some(growing) = Growing::of(&recipe) else {
        return Ok(None);
    };
    let open = assemble(db, ns, &log, &recipe.slice(growing.open()), 0)?;
    let Some(open) = open else {
        return Ok(None);
    };
    let grown = growing.append(open, elements);
    // Pending writes may have brought these bytes.
    let found = match grown.ahead() {
        Some(start) => has_ahead(db, ns, &log, start, &grown.log_bytes)? == grown.log_bytes.len(),
        None => false,
    };
    Ok(Some((log, if found { grown.found_ahead() } else { grown })))
}

/// The channels of a checkpoint for which `wanted` holds, with their bytes, in the manifest's order; without those that have no
/// value.
///
/// Errors: XX001 where a stored value is missing or does not match its checksum.
pub fn load<'m>(
    db: &Db,
    checkpoint: &'m Checkpoint,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(&'m Channel, Vec<u8>)>> {
    let ns = checkpoint.namespace();
    let channels: Vec<&Channel> = checkpoint.manifest.channels.iter().filter(|channel| wanted(&channel.name)).collect();
    let digests = channels.iter().filter_map(|channel| channel.place.digest()).collect();
    let stored = recipes(db, ns, digests)?;
    let mut values = Vec::with_capacity(channels.len());
    for channel in channels {
        let bytes = match &channel.place {
            Place::Absent => continue,
            Place::Inline(bytes) => bytes.clone(),
            Place::Stored { digest, .. } => read(db, ns, digest, stored.get(digest), 0)?
                .ok_or_else(|| Error::damaged(&channel.name, &checkpoint.checkpoint_id, &checkpoint.thread_id))?,
        };
        values.push((channel, bytes));
    }
    Ok(values)
}

/// The same for JSON values, as text.
pub fn load_json<'m>(
    db: &Db,
    checkpoint: &'m Checkpoint,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(&'m str, String)>> {
    let wanted_size =
        checkpoint.manifest.channels.iter().filter(|channel| wanted(&channel.name)).map(Channel::size).sum();
    check_result_size("the state", wanted_size)?;
    load(db, checkpoint, wanted)?
        .into_iter()
        .map(|(channel, bytes)| {
            let text = String::from_utf8(bytes)
                .map_err(|_| Error::damaged(&channel.name, &checkpoint.checkpoint_id, &checkpoint.thread_id))?;
            Ok((channel.name.as_str(), text))
        })
        .collect()
}
