//! Channel values: small ones in the manifest, large ones as recipes over the log of their channel, each once per thread and
//! namespace under its digest.

use super::Namespace;
use super::reader::{self, Stored, recipes};
use super::segments::{Appender, Logs};
use crate::error::Result;
use crate::guc;
use crate::model::delta::{Plan, Value};
use crate::model::growth::Grown;
use crate::model::manifest::{Channel, Digest, Manifest, Place};
use crate::model::payload::Payload;
use crate::model::recipe::{Recipe, SHORT};
use crate::spi::{BYTESES, Db, Statement, TEXT, TEXTS, param};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

// As for RECIPES in reader.rs.
static KNOWN: Statement = Statement::new(
    "SELECT b.digest
     FROM pg_catalog.unnest($4) AS wanted (digest)
     JOIN LATERAL (SELECT s.digest FROM @s.checkpoint_blobs s
                   WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3
                     AND s.digest @>= wanted.digest AND s.digest @<= wanted.digest
                   ORDER BY s.digest LIMIT 1) AS b ON true",
    &[TEXT, TEXT, TEXT, BYTESES],
);

static STORE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_blobs (thread_id, tenant, checkpoint_ns, digest, log, recipe)
     SELECT $1, $2, $3, new.digest, new.log, new.recipe
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6)) AS new (digest, log, recipe)
     ON CONFLICT DO NOTHING",
    &[TEXT, TEXT, TEXT, BYTESES, TEXTS, BYTESES],
);

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
        let mut stored = recipes(db, ns, before.iter().flatten().copied())?;
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
        // A list whose new elements are in the log already needs nothing but its recipe, which is stored where it is not yet.
        let to_append = self.grown.iter().filter(|(_, grown)| !grown.log_bytes.is_empty());
        let digests = self.new.iter().map(|new| &new.value.digest);
        let mut known = known(db, ns, digests.chain(to_append.map(|(_, grown)| &grown.digest)))?;
        let logs = Logs::new(db, ns);
        let mut planned = Vec::new();
        for new in self.new.iter().filter(|new| known.insert(new.value.digest)) {
            let (log, plan) = new.plan(&logs)?;
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
    fn plan(&self, logs: &Logs<'_>) -> Result<(&str, Plan<'a>)> {
        let value = self.value.clone();
        let Some(before) = &self.before else {
            return Ok((&self.channel, Plan::whole(value)));
        };
        if let Some(plan) = self.goes_on.and_then(|from| Plan::append(value.clone(), &before.recipe, from)) {
            // A pending write may have brought these bytes.
            let found = match plan.ahead() {
                Some((start, bytes)) => logs.has_ahead(&before.log, start, bytes)?,
                None => 0,
            };
            return Ok((&before.log, plan.found_ahead(found)));
        }
        if Plan::worth_comparing(&before.recipe, &value)
            && let Some(bytes) = logs.assemble(&before.log, &before.recipe.pieces, 0)?
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
    let known =
        db.write(&KNOWN, &[thread_id, tenant, checkpoint_ns, param(digests)], |row| reader::digest(row.bytes(1)?))?;
    Ok(known.into_iter().collect())
}
