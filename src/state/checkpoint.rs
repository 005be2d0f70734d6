//! A checkpoint's row: finding it, and adding one.

use super::Namespace;
use super::collect::remove_unreferenced;
use super::head::Head;
use crate::error::{Error, Result};
use crate::model::checkpoint_id::{as_uuid6, next_id};
use crate::model::manifest::{Manifest, ManifestError};
use crate::random::random_bytes;
use crate::spi::{BIGINT, BYTES, Db, JSON, Row, Statement, TEXT, TEXTS, json_param, optional_json_param, param};
use pgrx::datum::TimestampWithTimeZone;

/// A checkpoint as it is stored.
pub struct Checkpoint {
    pub thread_id: String,
    pub checkpoint_ns: String,
    pub checkpoint_id: String,
    pub parent_checkpoint_id: Option<String>,
    pub next: Vec<String>,
    pub manifest: Manifest,
    /// What a framework keeps of its checkpoint beside the channels, as JSON; none in a JSON state.
    pub body: Option<String>,
    pub metadata: String,
    /// Only counted where it is shown.
    pub pending_writes: i32,
    pub folded_into: Option<String>,
    pub created_at: Option<TimestampWithTimeZone>,
}

/// The columns that [`Checkpoint::from_row`] reads, of a table called `c`; with the number of pending writes, or 0 in its place.
macro_rules! checkpoint_columns {
    ($count:literal) => {
        concat!(
            "c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.next, c.manifest,
             c.metadata::pg_catalog.text, c.folded_into, c.created_at, c.body::pg_catalog.text, ",
            $count
        )
    };
    (counted) => {
        checkpoint_columns!(
            "(SELECT pg_catalog.count(*) FROM @s.checkpoint_writes w
              WHERE w.thread_id @= c.thread_id AND w.tenant @= c.tenant AND w.checkpoint_ns @= c.checkpoint_ns
                AND w.checkpoint_id @= c.checkpoint_id AND w.epoch @>= 0 AND c.folded_into IS NULL
                AND NOT EXISTS (SELECT 1 FROM @s.checkpoint_writes n
                                WHERE n.thread_id @= w.thread_id AND n.tenant @= w.tenant AND n.checkpoint_ns @= w.checkpoint_ns
                                  AND n.checkpoint_id @= w.checkpoint_id AND n.task_id @= w.task_id
                                  AND n.epoch @> w.epoch))::pg_catalog.int4"
        )
    };
    () => {
        checkpoint_columns!("0")
    };
}
pub(super) use checkpoint_columns;

macro_rules! latest {
    () => {
        " FROM @s.checkpoints c
         WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3
           AND c.checkpoint_id @= (SELECT h.latest_id FROM @s.checkpoint_heads h
                                   WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3)"
    };
}

static LATEST: Statement = Statement::new(concat!("SELECT ", checkpoint_columns!(), latest!()), &[TEXT, TEXT, TEXT]);

static LATEST_COUNTED: Statement =
    Statement::new(concat!("SELECT ", checkpoint_columns!(counted), latest!()), &[TEXT, TEXT, TEXT]);

static BY_ID: Statement = Statement::new(
    concat!(
        "SELECT ",
        checkpoint_columns!(),
        " FROM @s.checkpoints c
         WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4"
    ),
    &[TEXT, TEXT, TEXT, TEXT],
);

static INSERT: Statement = Statement::new(
    "INSERT INTO @s.checkpoints (thread_id, tenant, checkpoint_ns, checkpoint_id, parent_checkpoint_id, revision, next,
                                 manifest, metadata, metadata_filter, body)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::pg_catalog.jsonb, $11)
     ON CONFLICT DO NOTHING",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT, TEXTS, BYTES, JSON, TEXT, JSON],
);

static REPLACE: Statement = Statement::new(
    "UPDATE @s.checkpoints AS c
     SET next = $5, manifest = $6, metadata = $7, metadata_filter = $8::pg_catalog.jsonb, body = $9
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4",
    &[TEXT, TEXT, TEXT, TEXT, TEXTS, BYTES, JSON, TEXT, JSON],
);

static MANIFEST: Statement = Statement::new(
    "SELECT c.manifest FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4",
    &[TEXT, TEXT, TEXT, TEXT],
);

impl Checkpoint {
    pub(super) fn from_row(row: &mut Row<'_>) -> Result<Checkpoint> {
        let thread_id: String = row.must(1)?;
        Ok(Checkpoint {
            checkpoint_ns: row.must(2)?,
            checkpoint_id: row.must(3)?,
            parent_checkpoint_id: row.get(4)?,
            next: row.must(5)?,
            manifest: decode_manifest(&thread_id, row.bytes(6)?)?,
            metadata: row.must(7)?,
            folded_into: row.get(8)?,
            created_at: row.get(9)?,
            pending_writes: row.must(11)?,
            body: row.get(10)?,
            thread_id,
        })
    }

    pub fn namespace(&self) -> Namespace<'_> {
        Namespace { thread_id: &self.thread_id, checkpoint_ns: &self.checkpoint_ns }
    }

    /// The latest checkpoint of a namespace.
    pub fn latest(db: &Db, ns: Namespace<'_>) -> Result<Option<Checkpoint>> {
        db.read_one(&LATEST, &ns.args(db), Checkpoint::from_row)
    }

    /// The same with the number of its pending writes.
    pub fn latest_counted(db: &Db, ns: Namespace<'_>) -> Result<Option<Checkpoint>> {
        db.read_one(&LATEST_COUNTED, &ns.args(db), Checkpoint::from_row)
    }

    /// The checkpoint with this id.
    pub fn find(db: &Db, ns: Namespace<'_>, checkpoint_id: &str) -> Result<Option<Checkpoint>> {
        db.read_one(&BY_ID, &ns.args_with(db, [param(checkpoint_id)]), Checkpoint::from_row)
    }

    /// The checkpoint with this id, or the latest; P0002 where there is none.
    pub fn required(db: &Db, ns: Namespace<'_>, checkpoint_id: Option<&str>) -> Result<Checkpoint> {
        match checkpoint_id {
            None => Checkpoint::latest(db, ns)?.ok_or_else(|| Error::no_thread(ns.thread_id, ns.checkpoint_ns)),
            Some(id) => {
                Checkpoint::find(db, ns, id)?.ok_or_else(|| Error::no_checkpoint(ns.thread_id, ns.checkpoint_ns, id))
            }
        }
    }

    /// The same under the lock of the head, with all that was committed before it.
    pub fn locked(db: &Db, ns: Namespace<'_>, checkpoint_id: &str) -> Result<Option<Checkpoint>> {
        db.write_one(&BY_ID, &ns.args_with(db, [param(checkpoint_id)]), Checkpoint::from_row)
    }
}

/// The manifest of a checkpoint, under the lock of the head.
pub fn locked_manifest(db: &Db, ns: Namespace<'_>, checkpoint_id: &str) -> Result<Option<Manifest>> {
    let args = ns.args_with(db, [param(checkpoint_id)]);
    db.write_one(&MANIFEST, &args, |row| decode_manifest(ns.thread_id, row.bytes(1)?))
}

pub(super) fn decode_manifest(thread_id: &str, bytes: &[u8]) -> Result<Manifest> {
    Manifest::decode(bytes).map_err(|error| match error {
        ManifestError::UnknownVersion(version) => Error::wrong_state(format!(
            "thread \"{thread_id}\" was written by a later version of checkpointer: manifest version {version}"
        ))
        .hint("Update the extension's files and run ALTER EXTENSION checkpointer UPDATE."),
        ManifestError::Damaged => {
            Error::corrupted(format!("the manifest of a checkpoint of thread \"{thread_id}\" is damaged"))
        }
    })
}

/// What a checkpoint's row holds besides its place.
pub struct Content<'a> {
    pub manifest: &'a Manifest,
    pub body: Option<&'a str>,
    pub metadata: &'a str,
    pub metadata_filter: Option<&'a str>,
    pub next: &'a [String],
}

impl Content<'_> {
    /// Adds a checkpoint's row; false where the id is taken.
    pub fn insert(&self, db: &Db, ns: Namespace<'_>, id: &str, parent: Option<&str>, revision: i64) -> Result<bool> {
        let args = ns.args_with(
            db,
            [
                param(id),
                param(parent),
                param(revision),
                param(self.next.to_vec()),
                param(self.manifest.encode()),
                json_param(self.metadata),
                param(self.metadata_filter),
                optional_json_param(self.body),
            ],
        );
        Ok(db.execute(&INSERT, &args)? > 0)
    }

    /// Puts this content in the place of a checkpoint's; its parent, order and `created_at` stay.
    pub fn replace(&self, db: &Db, old: &Checkpoint) -> Result<()> {
        let args = old.namespace().args_with(
            db,
            [
                param(old.checkpoint_id.as_str()),
                param(self.next.to_vec()),
                param(self.manifest.encode()),
                json_param(self.metadata),
                param(self.metadata_filter),
                optional_json_param(self.body),
            ],
        );
        db.execute(&REPLACE, &args)?;
        remove_unreferenced(db, old.namespace(), old.manifest.stored().map(|(_, digest)| digest).collect())
    }

    /// Whether a checkpoint has this content already.
    pub fn is_of(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.manifest.same_content(self.manifest)
            && checkpoint.body.as_deref() == self.body
            && checkpoint.metadata == self.metadata
            && checkpoint.next == self.next
    }
}

/// Adds a checkpoint under the lock of `head` and returns its id, a new one where none is given. It becomes the latest if its
/// parent is the latest or its id sorts after the latest's: a clock that stepped back does not hide the newest, and a late put
/// of a cancelled worker does not roll the thread back.
pub fn add(
    db: &Db,
    head: &mut Head,
    ns: Namespace<'_>,
    checkpoint_id: Option<&str>,
    parent: Option<&str>,
    content: &Content<'_>,
) -> Result<String> {
    let id = match checkpoint_id {
        Some(id) => id.to_owned(),
        None => new_id(head.newest_uuid.as_deref())?,
    };
    content.insert(db, ns, &id, parent, head.revision)?;
    if let Some(uuid) = as_uuid6(&id)
        && head.newest_uuid.as_ref().is_none_or(|newest| *newest < uuid)
    {
        head.newest_uuid = Some(uuid);
    }
    if head.latest_id.as_deref().is_none_or(|latest| parent == Some(latest) || id.as_str() > latest) {
        head.latest_id = Some(id.clone());
    }
    head.save(db, ns)?;
    Ok(id)
}

/// A new UUIDv6 that sorts after `newest_uuid`.
pub fn new_id(newest_uuid: Option<&str>) -> Result<String> {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ticks = u64::try_from(since_1970.as_nanos() / 100).unwrap_or(u64::MAX);
    next_id(ticks, newest_uuid, random_bytes()).ok_or_else(|| {
        Error::limit("no UUIDv6 sorts after those of this thread")
            .detail(format!("The greatest so far is {}.", newest_uuid.unwrap_or_default()))
            .hint("Pass checkpoint_id and choose the order yourself, or begin a new thread.")
    })
}
