//! Pattern A: the state of a thread. Checkpoints, pending writes, replay.

use crate::args;
use crate::error::Result;
use crate::spi::{Db, param};
use pgrx::datum::DatumWithOid;

mod apply;
mod checkpoint;
mod collect;
mod copy;
mod delete;
mod fork;
mod graph;
mod head;
mod prune;
mod put;
mod read;
mod reader;
mod removal;
mod segments;
mod typed;
mod typed_read;
mod values;
mod writes;

/// A thread's namespace: what every key of the state begins with, beside the tenant.
#[derive(Debug, Clone, Copy)]
struct Namespace<'a> {
    thread_id: &'a str,
    checkpoint_ns: &'a str,
}

impl<'a> Namespace<'a> {
    /// The namespace that a function's arguments name.
    fn of_args(thread_id: Option<&'a str>, checkpoint_ns: Option<&'a str>) -> Result<Namespace<'a>> {
        Ok(Namespace { thread_id: args::thread_id(thread_id)?, checkpoint_ns: args::checkpoint_ns(checkpoint_ns)? })
    }

    /// The first three parameters of most statements.
    fn args<'d>(self, db: &Db) -> [DatumWithOid<'d>; 3] {
        [param(self.thread_id), param(db.tenant.as_str()), param(self.checkpoint_ns)]
    }

    /// The same and more.
    fn args_with<'d>(self, db: &Db, more: impl IntoIterator<Item = DatumWithOid<'d>>) -> Vec<DatumWithOid<'d>> {
        self.args(db).into_iter().chain(more).collect()
    }
}
