//! The head of a thread and namespace: which checkpoint is the latest. Its row is the lock that every writer takes first.

use crate::error::Result;
use crate::spi::{Db, Statement, TEXT, param};

pub struct Head {
    /// The number of this change, which gives a checkpoint its place in the order of acceptance.
    pub revision: i64,
    pub latest_id: Option<String>,
    pub newest_uuid: Option<String>,
}

// The row is changed, not only locked: a writer whose snapshot is older (REPEATABLE READ, SERIALIZABLE) then gets 40001
// instead of going on from what it no longer is.
static LOCK: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_heads AS h (thread_id, tenant, checkpoint_ns, revision)
     VALUES ($1, $2, $3, 1)
     ON CONFLICT (thread_id, tenant, checkpoint_ns) DO UPDATE SET revision = h.revision @+ 1
     RETURNING h.revision, h.latest_id, h.newest_uuid",
    &[TEXT, TEXT, TEXT],
);

static MOVE: Statement = Statement::new(
    "UPDATE @s.checkpoint_heads AS h SET latest_id = $4, newest_uuid = $5
     WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT, TEXT, TEXT],
);

// In the order of the namespaces, so that two of these cannot wait for each other.
static LOCK_ALL: Statement = Statement::new(
    "SELECT h.revision FROM @s.checkpoint_heads h
     WHERE h.thread_id @= $1 AND h.tenant @= $2
     ORDER BY h.checkpoint_ns
     FOR UPDATE",
    &[TEXT, TEXT],
);

static FIND: Statement = Statement::new(
    "SELECT h.revision, h.latest_id, h.newest_uuid FROM @s.checkpoint_heads h
     WHERE h.thread_id @= $1 AND h.tenant @= $2 AND h.checkpoint_ns @= $3",
    &[TEXT, TEXT, TEXT],
);

impl Head {
    /// Locks the head until the end of the transaction, making it at the first touch.
    pub fn lock(db: &Db, thread_id: &str, checkpoint_ns: &str) -> Result<Head> {
        let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns)];
        let head = db.write_one(&LOCK, &args, |row| {
            Ok(Head { revision: row.must(1)?, latest_id: row.get(2)?, newest_uuid: row.get(3)? })
        })?;
        Ok(head.unwrap_or(Head { revision: 1, latest_id: None, newest_uuid: None }))
    }

    /// Locks the heads of all namespaces of a thread.
    pub fn lock_all(db: &Db, thread_id: &str) -> Result<()> {
        db.execute(&LOCK_ALL, &[param(thread_id), param(db.tenant.as_str())])?;
        Ok(())
    }

    /// The latest checkpoint's id, without a lock.
    pub fn latest_id(db: &Db, thread_id: &str, checkpoint_ns: &str) -> Result<Option<String>> {
        let args = [param(thread_id), param(db.tenant.as_str()), param(checkpoint_ns)];
        Ok(db.read_one(&FIND, &args, |row| row.get(2))?.flatten())
    }

    /// Writes down a new latest checkpoint and the greatest UUIDv6 seen.
    pub fn save(&self, db: &Db, thread_id: &str, checkpoint_ns: &str) -> Result<()> {
        let args = [
            param(thread_id),
            param(db.tenant.as_str()),
            param(checkpoint_ns),
            param(self.latest_id.as_deref()),
            param(self.newest_uuid.as_deref()),
        ];
        db.execute(&MOVE, &args)?;
        Ok(())
    }
}
