//! The head of a thread and namespace: which checkpoint is the latest. Its row is the lock that every writer takes first.

use super::Namespace;
use crate::error::{Error, Result};
use crate::spi::{BIGINT, BOOL, Db, Row, Statement, TEXT, param};
use crate::threads;

pub struct Head {
    /// The number of this change, which gives a checkpoint its place in the order of acceptance.
    pub revision: i64,
    pub latest_id: Option<String>,
    pub newest_uuid: Option<String>,
    /// The graph that the thread is bound to.
    pub graph: Option<String>,
}

// The row is changed, not only locked: a writer whose snapshot is older (REPEATABLE READ, SERIALIZABLE) then gets 40001
// instead of going on from what it no longer is.
static LOCK: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_heads AS h (thread_id, tenant, checkpoint_ns, revision)
     VALUES ($1, $2, $3, 1)
     ON CONFLICT (thread_id, tenant, checkpoint_ns) DO UPDATE SET revision = h.revision @+ 1
     RETURNING h.revision, h.latest_id, h.newest_uuid, h.graph",
    &[TEXT, TEXT, TEXT],
);

// The same, and the move to a new checkpoint $4 with its parent $5 (NULL: the latest) at once. With $7 only if its UUIDv6 $6
// sorts after all others. The move is undone by `save` where the checkpoint turns out to be there already.
static ADVANCE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_heads AS h (thread_id, tenant, checkpoint_ns, revision, latest_id, newest_uuid)
     VALUES ($1, $2, $3, 1, $4, $6)
     ON CONFLICT (thread_id, tenant, checkpoint_ns) DO UPDATE
     SET revision = h.revision @+ 1, previous_id = h.latest_id, newest_uuid = GREATEST(h.newest_uuid, $6),
         latest_id = CASE WHEN $5 IS NULL OR h.latest_id IS NULL OR h.latest_id @= $5 OR h.latest_id @< $4 THEN $4
                          ELSE h.latest_id END
     WHERE NOT $7 OR h.newest_uuid IS NULL OR h.newest_uuid @< $6
     RETURNING h.revision, h.previous_id, h.newest_uuid, h.graph",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, BOOL],
);

static MOVE: Statement = Statement::new(
    "UPDATE @s.checkpoint_heads AS h SET latest_id = $4, newest_uuid = $5, revision = $6
     WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT],
);

// For one who may find nothing to change.
static LOCK_EXISTING: Statement = Statement::new(
    "SELECT h.revision, h.latest_id, h.newest_uuid, h.graph FROM @s.checkpoint_heads h
     WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3
     FOR UPDATE",
    &[TEXT, TEXT, TEXT],
);

// In the order of the namespaces, so that two of these cannot wait for each other.
static LOCK_ALL: Statement = Statement::new(
    "SELECT h.checkpoint_ns FROM @s.checkpoint_heads h
     WHERE h.thread_id @= $1 AND h.tenant @= $2
     ORDER BY h.checkpoint_ns
     FOR UPDATE",
    &[TEXT, TEXT],
);

// Those that a snapshot sees: after an insert more than one where the row was deleted since it was taken.
static COUNT: Statement = Statement::new(
    "SELECT pg_catalog.count(*) FROM @s.checkpoint_heads h
     WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT],
);

static BIND: Statement = Statement::new(
    "UPDATE @s.checkpoint_heads AS h SET graph = $4
     WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT, TEXT],
);

static BIND_ALL: Statement = Statement::new(
    "UPDATE @s.checkpoint_heads AS h SET graph = $3 WHERE h.thread_id @= $1 AND h.tenant @= $2",
    &[TEXT, TEXT, TEXT],
);

static TOUCH_ALL: Statement = Statement::new(
    "UPDATE @s.checkpoint_heads AS h SET revision = h.revision WHERE h.thread_id @= $1 AND h.tenant @= $2",
    &[TEXT, TEXT],
);

static REMOVE: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_heads h WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT],
);

static FIND: Statement = Statement::new(
    "SELECT h.revision, h.latest_id, h.newest_uuid, h.graph FROM @s.checkpoint_heads h
     WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT],
);

impl Head {
    fn from_row(row: &mut Row<'_>) -> Result<Head> {
        Ok(Head { revision: row.must(1)?, latest_id: row.get(2)?, newest_uuid: row.get(3)?, graph: row.get(4)? })
    }

    /// Locks the head until the end of the transaction, making it at the first touch.
    ///
    /// Errors: 55000 the thread was deleted and must not come back yet; 40001 a lost race.
    pub fn lock(db: &Db, ns: Namespace<'_>) -> Result<Head> {
        let head =
            db.write_one(&LOCK, &ns.args(db), Head::from_row)?.ok_or_else(|| Error::deleted_meanwhile(ns.thread_id))?;
        head.touched(db, ns)
    }

    /// What the first touch of a namespace does once its row is there: asks whether the thread may begin, and what it is bound to.
    fn touched(mut self, db: &Db, ns: Namespace<'_>) -> Result<Head> {
        if self.revision > 1 {
            return Ok(self);
        }
        let rows = || db.write_one(&COUNT, &ns.args(db), |row| row.must(1));
        self.graph = threads::first_touch(db, ns.thread_id, rows)?;
        if let Some(graph) = &self.graph {
            db.execute(&BIND, &ns.args_with(db, [param(graph.as_str())]))?;
        }
        Ok(self)
    }

    /// Locks the head where there is one, for a change that [`Head::save`] will write down: it has the next revision.
    pub fn lock_existing(db: &Db, ns: Namespace<'_>) -> Result<Option<Head>> {
        let head = db.write_one(&LOCK_EXISTING, &ns.args(db), Head::from_row)?;
        Ok(head.map(|head| Head { revision: head.revision + 1, ..head }))
    }

    /// Locks the head and moves it to a new checkpoint, whose parent is the latest or `parent`, in one statement. Gives the head
    /// as it was before; `None` where `uuid` must be the newest and is not (the lock is held then too).
    ///
    /// Errors: as those of [`Head::lock`].
    pub fn advance(
        db: &Db,
        ns: Namespace<'_>,
        id: &str,
        parent: Option<&str>,
        uuid: Option<&str>,
        must_be_newest: bool,
    ) -> Result<Option<Head>> {
        let args = ns.args_with(db, [param(id), param(parent), param(uuid), param(must_be_newest)]);
        let head = db.write_one(&ADVANCE, &args, Head::from_row)?;
        head.map(|head| head.touched(db, ns)).transpose()
    }

    /// Removes the row of a namespace of which nothing is left.
    pub fn remove(db: &Db, ns: Namespace<'_>) -> Result<()> {
        db.execute(&REMOVE, &ns.args(db))?;
        Ok(())
    }

    /// Locks the heads of all namespaces of a thread and returns these.
    pub fn lock_all(db: &Db, thread_id: &str) -> Result<Vec<String>> {
        db.write(&LOCK_ALL, &[param(thread_id), param(db.tenant.as_str())], |row| row.must(1))
    }

    /// Writes the heads of all namespaces of a thread as they are: a transaction with an older snapshot then gets 40001. The caller
    /// has locked them.
    pub fn touch_all(db: &Db, thread_id: &str) -> Result<()> {
        db.execute(&TOUCH_ALL, &[param(thread_id), param(db.tenant.as_str())])?;
        Ok(())
    }

    /// Writes down in all heads of a thread which graph it is bound to. The caller has called [`threads::lock`].
    pub fn bind_all(db: &Db, thread_id: &str, graph: &str) -> Result<()> {
        Head::lock_all(db, thread_id)?;
        db.execute(&BIND_ALL, &[param(thread_id), param(db.tenant.as_str()), param(graph)])?;
        Ok(())
    }

    /// The latest checkpoint's id, without a lock.
    pub fn latest_id(db: &Db, ns: Namespace<'_>) -> Result<Option<String>> {
        Ok(db.read_one(&FIND, &ns.args(db), |row| row.get(2))?.flatten())
    }

    /// Writes down another latest checkpoint and the greatest UUIDv6 seen.
    pub fn save(&self, db: &Db, ns: Namespace<'_>) -> Result<()> {
        let moved = [param(self.latest_id.as_deref()), param(self.newest_uuid.as_deref()), param(self.revision)];
        let args = ns.args_with(db, moved);
        db.execute(&MOVE, &args)?;
        Ok(())
    }
}
