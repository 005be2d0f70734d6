//! A checkpoint's row: finding it, and adding one.

use super::head::Head;
use crate::error::{Error, Result};
use crate::model::checkpoint_id::{as_uuid6, next_id};
use crate::model::manifest::{Manifest, ManifestError};
use crate::spi::{BIGINT, BYTES, Db, JSON, Row, Statement, TEXT, TEXTS, json_param, param};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;

/// A checkpoint as it is stored.
pub struct Checkpoint {
    pub thread_id: String,
    pub checkpoint_ns: String,
    pub checkpoint_id: String,
    pub parent_checkpoint_id: Option<String>,
    pub next: Vec<String>,
    pub manifest: Manifest,
    pub metadata: String,
    pub pending_writes: i32,
    pub folded_into: Option<String>,
    pub created_at: Option<TimestampWithTimeZone>,
}

/// The columns that [`Checkpoint::from_row`] reads, of a table called `c`.
macro_rules! checkpoint_columns {
    () => {
        "c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.next, c.manifest,
         c.metadata::pg_catalog.text, c.folded_into, c.created_at,
         (SELECT pg_catalog.count(*) FROM @s.checkpoint_writes w
          WHERE w.thread_id @= c.thread_id AND w.tenant @= c.tenant AND w.checkpoint_ns @= c.checkpoint_ns
            AND w.checkpoint_id @= c.checkpoint_id AND c.folded_into IS NULL)::pg_catalog.int4"
    };
}
pub(super) use checkpoint_columns;

static LATEST: Statement = Statement::new(
    concat!(
        "SELECT ",
        checkpoint_columns!(),
        " FROM @s.checkpoints c
         WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3
           AND c.checkpoint_id @= (SELECT h.latest_id FROM @s.checkpoint_heads h
                                   WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3)"
    ),
    &[TEXT, TEXT, TEXT],
);

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
                                 manifest, metadata, metadata_filter)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::pg_catalog.jsonb)",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT, TEXTS, BYTES, JSON, TEXT],
);

impl Checkpoint {
    pub(super) fn from_row(row: &Row<'_>) -> Result<Checkpoint> {
        let thread_id: String = row.must(1)?;
        let manifest: Vec<u8> = row.must(6)?;
        Ok(Checkpoint {
            checkpoint_ns: row.must(2)?,
            checkpoint_id: row.must(3)?,
            parent_checkpoint_id: row.get(4)?,
            next: row.must(5)?,
            manifest: decode_manifest(&thread_id, &manifest)?,
            metadata: row.must(7)?,
            folded_into: row.get(8)?,
            created_at: row.get(9)?,
            pending_writes: row.must(10)?,
            thread_id,
        })
    }

    /// The latest checkpoint of a namespace.
    pub fn latest(db: &Db, thread_id: &str, checkpoint_ns: &str) -> Result<Option<Checkpoint>> {
        let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns)];
        db.read_one(&LATEST, &args, Checkpoint::from_row)
    }

    /// The checkpoint with this id, or the latest; P0002 where there is none.
    pub fn required(db: &Db, thread_id: &str, checkpoint_ns: &str, checkpoint_id: Option<&str>) -> Result<Checkpoint> {
        let Some(id) = checkpoint_id else {
            return Checkpoint::latest(db, thread_id, checkpoint_ns)?
                .ok_or_else(|| Error::no_thread(thread_id, checkpoint_ns));
        };
        let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns), param(id)];
        db.read_one(&BY_ID, &args, Checkpoint::from_row)?
            .ok_or_else(|| Error::no_checkpoint(thread_id, checkpoint_ns, id))
    }

    /// The same under the lock of the head, with all that was committed before it.
    pub fn locked(db: &Db, thread_id: &str, checkpoint_ns: &str, checkpoint_id: &str) -> Result<Option<Checkpoint>> {
        let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns), param(checkpoint_id)];
        db.write_one(&BY_ID, &args, Checkpoint::from_row)
    }
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

/// What a new checkpoint's row holds besides its place.
pub struct Content<'a> {
    pub manifest: &'a Manifest,
    pub metadata: &'a str,
    pub metadata_filter: Option<&'a str>,
    pub next: &'a [String],
}

/// Adds a checkpoint under the lock of `head` and returns its id, a new one where none is given. It becomes the latest if its
/// parent is the latest or its id sorts after the latest's: a clock that stepped back does not hide the newest, and a late put
/// of a cancelled worker does not roll the thread back.
pub fn add(
    db: &Db,
    head: &mut Head,
    thread_id: &str,
    checkpoint_ns: &str,
    checkpoint_id: Option<&str>,
    parent: Option<&str>,
    content: &Content<'_>,
) -> Result<String> {
    let id = match checkpoint_id {
        Some(id) => id.to_owned(),
        None => new_id(head.newest_uuid.as_deref())?,
    };
    let args = [
        param(thread_id),
        param(db.tenant.as_str()),
        param(checkpoint_ns),
        param(id.as_str()),
        param(parent),
        param(head.revision),
        param(content.next.to_vec()),
        param(content.manifest.encode()),
        json_param(content.metadata),
        param(content.metadata_filter),
    ];
    db.execute(&INSERT, &args)?;
    if let Some(uuid) = as_uuid6(&id)
        && head.newest_uuid.as_ref().is_none_or(|newest| *newest < uuid)
    {
        head.newest_uuid = Some(uuid);
    }
    if head.latest_id.as_deref().is_none_or(|latest| parent == Some(latest) || id.as_str() > latest) {
        head.latest_id = Some(id.clone());
    }
    head.save(db, thread_id, checkpoint_ns)?;
    Ok(id)
}

fn new_id(newest_uuid: Option<&str>) -> Result<String> {
    let mut random = [0_u8; 8];
    // SAFETY: the buffer has the given length. A false return leaves it as it is: the id is then only less random.
    unsafe { pg_sys::pg_strong_random(random.as_mut_ptr().cast(), random.len()) };
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ticks = u64::try_from(since_1970.as_nanos() / 100).unwrap_or(u64::MAX);
    next_id(ticks, newest_uuid, random).ok_or_else(|| {
        Error::limit("no UUIDv6 sorts after those of this thread")
            .detail(format!("The greatest so far is {}.", newest_uuid.unwrap_or_default()))
            .hint("Pass checkpoint_id and choose the order yourself, or begin a new thread.")
    })
}
