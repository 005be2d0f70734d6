//! Reading the state: `ckpt_latest`, `ckpt_channel`, `ckpt_state`, `ckpt_history`, `ckpt_list`.

use super::Namespace;
use super::checkpoint::{Checkpoint, checkpoint_columns};
use super::head::Head;
use super::reader::Reader;
use crate::args;
use crate::error::Result;
use crate::json::quote;
use crate::json_types::{JsonResult, JsonbText};
use crate::spi::{BIGINT, Db, Statement, TEXT, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::HashSet;

type CheckpointColumns = (
    name!(thread_id, String),
    name!(checkpoint_ns, String),
    name!(checkpoint_id, String),
    name!(parent_checkpoint_id, Option<String>),
    name!(next, Vec<String>),
    name!(channels, JsonResult),
    name!(metadata, JsonResult),
    name!(pending_writes, i32),
    name!(created_at, Option<TimestampWithTimeZone>),
);

fn columns(checkpoint: Checkpoint) -> CheckpointColumns {
    (
        checkpoint.thread_id,
        checkpoint.checkpoint_ns,
        checkpoint.checkpoint_id,
        checkpoint.parent_checkpoint_id,
        checkpoint.next,
        JsonResult(checkpoint.manifest.summary_json()),
        JsonResult(checkpoint.metadata),
        checkpoint.pending_writes,
        checkpoint.created_at,
    )
}

/// The latest checkpoint of a namespace: one row, or none. Reads no blob.
#[pg_extern(stable, parallel_safe)]
fn ckpt_latest(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_ns: default!(Option<&str>, "''"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(checkpoint_id, String),
            name!(parent_checkpoint_id, Option<String>),
            name!(next, Vec<String>),
            name!(channels, JsonResult),
            name!(metadata, JsonResult),
            name!(pending_writes, i32),
            name!(created_at, Option<TimestampWithTimeZone>),
        ),
    >,
    ErrorReport,
> {
    let latest = Checkpoint::latest_counted(&Db::of_call(fcinfo)?, Namespace::of_args(thread_id, checkpoint_ns)?)?;
    Ok(TableIterator::new(latest.into_iter().map(|checkpoint| {
        let (_, _, id, parent, next, channels, metadata, pending, created) = columns(checkpoint);
        (id, parent, next, channels, metadata, pending, created)
    })))
}

/// The value of one channel, reading only its own blob. SQL NULL where the checkpoint has no such channel.
///
/// Errors: P0002 unknown thread or checkpoint.
#[pg_extern(stable, parallel_safe)]
fn ckpt_channel(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    channel: Option<&str>,
    checkpoint_id: default!(Option<&str>, "NULL"),
    checkpoint_ns: default!(Option<&str>, "''"),
) -> std::result::Result<Option<JsonResult>, ErrorReport> {
    let ns = Namespace::of_args(thread_id, checkpoint_ns)?;
    let channel = args::name("channel", channel)?;
    let checkpoint_id = checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?;
    let db = Db::of_call(fcinfo)?;
    let checkpoint = Checkpoint::required(&db, ns, checkpoint_id)?;
    let values = Reader::of_channels(&db, &checkpoint, |name| name == channel)?
        .load_json(&checkpoint, |name| name == channel)?;
    Ok(values.into_iter().next().map(|(_, value)| JsonResult(value)))
}

/// The whole state, or the named channels of it, in the order in which they were put.
///
/// Errors: P0002 unknown thread or checkpoint; 54000 where the state is over 1 GB.
#[pg_extern(stable, parallel_safe)]
fn ckpt_state(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_id: default!(Option<&str>, "NULL"),
    checkpoint_ns: default!(Option<&str>, "''"),
    channels: default!(Option<Vec<Option<String>>>, "NULL"),
) -> std::result::Result<JsonResult, ErrorReport> {
    let ns = Namespace::of_args(thread_id, checkpoint_ns)?;
    let checkpoint_id = checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?;
    let channels = channels.map(|names| args::names("channels", names)).transpose()?;
    let db = Db::of_call(fcinfo)?;
    let checkpoint = Checkpoint::required(&db, ns, checkpoint_id)?;
    let channels: Option<HashSet<String>> = channels.map(|names| names.into_iter().collect());
    let wanted = |name: &str| channels.as_ref().is_none_or(|names| names.contains(name));
    let values = Reader::of_channels(&db, &checkpoint, wanted)?.load_json(&checkpoint, wanted)?;
    let members: Vec<String> = values.iter().map(|(name, value)| format!("{}: {value}", quote(name))).collect();
    Ok(JsonResult(format!("{{{}}}", members.join(", "))))
}

// The depth bounds the walk, so that the newest few of a long thread are read without the rest.
static HISTORY: Statement = Statement::new(
    concat!(
        "WITH RECURSIVE chain (id, parent, depth) AS (
             SELECT c.checkpoint_id, c.parent_checkpoint_id, 1::pg_catalog.int8
             FROM @s.checkpoints c
             WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4
           UNION ALL
             SELECT c.checkpoint_id, c.parent_checkpoint_id, chain.depth @+ 1
             FROM chain JOIN @s.checkpoints c
               ON c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= chain.parent
             WHERE $5 IS NULL OR chain.depth @< $5
         )
         SELECT ",
        checkpoint_columns!(counted),
        " FROM chain JOIN @s.checkpoints c
           ON c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= chain.id
         ORDER BY chain.depth
         LIMIT $5"
    ),
    &[TEXT, TEXT, TEXT, TEXT, BIGINT],
);

/// The chain of parents from a checkpoint (the latest by default), newest first. Ends at a gap.
#[pg_extern(stable, parallel_safe)]
fn ckpt_history(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_id: default!(Option<&str>, "NULL"),
    checkpoint_ns: default!(Option<&str>, "''"),
    max_rows: default!(Option<i32>, "NULL"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(thread_id, String),
            name!(checkpoint_ns, String),
            name!(checkpoint_id, String),
            name!(parent_checkpoint_id, Option<String>),
            name!(next, Vec<String>),
            name!(channels, JsonResult),
            name!(metadata, JsonResult),
            name!(pending_writes, i32),
            name!(created_at, Option<TimestampWithTimeZone>),
        ),
    >,
    ErrorReport,
> {
    let ns = Namespace::of_args(thread_id, checkpoint_ns)?;
    let checkpoint_id = checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?;
    let max_rows = args::max_rows(max_rows)?;
    let rows = history(&Db::of_call(fcinfo)?, ns, checkpoint_id, max_rows)?;
    Ok(TableIterator::new(rows.into_iter().map(columns)))
}

fn history(db: &Db, ns: Namespace<'_>, checkpoint_id: Option<&str>, max_rows: Option<i64>) -> Result<Vec<Checkpoint>> {
    let start = match checkpoint_id {
        Some(id) => Some(id.to_owned()),
        None => Head::latest_id(db, ns)?,
    };
    let args = ns.args_with(db, [param(start), param(max_rows)]);
    db.read(&HISTORY, &args, Checkpoint::from_row)
}

/// The four shapes of a list are statements of their own, so that each has a plan with the index that fits it.
macro_rules! list_statement {
    ($condition:literal) => {
        Statement::depending(
            concat!(
                "SELECT ",
                checkpoint_columns!(counted),
                " FROM @s.checkpoints c WHERE c.tenant @= $1 AND ",
                $condition,
                " AND c.checkpoint_id @> '' AND ($2 IS NULL OR c.checkpoint_ns @= $2) AND ($3 IS NULL OR c.checkpoint_id @< $3)
                 ORDER BY c.checkpoint_id DESC, c.thread_id, c.checkpoint_ns LIMIT $4"
            ),
            &[TEXT, TEXT, TEXT, BIGINT, TEXT, TEXT],
        )
    };
}
static LIST: Statement = list_statement!("$5 IS NULL AND $6 IS NULL");
static LIST_THREAD: Statement = list_statement!("c.thread_id @= $5 AND $6 IS NULL");
static LIST_FILTER: Statement = list_statement!("c.metadata_filter @@> $6::pg_catalog.jsonb AND $5 IS NULL");
static LIST_THREAD_FILTER: Statement =
    list_statement!("c.thread_id @= $5 AND c.metadata_filter @@> $6::pg_catalog.jsonb");

/// Checkpoints across threads and namespaces, by id descending.
#[pg_extern(stable, parallel_safe)]
fn ckpt_list(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: default!(Option<&str>, "NULL"),
    checkpoint_ns: default!(Option<&str>, "NULL"),
    filter: default!(Option<JsonbText>, "NULL"),
    before: default!(Option<&str>, "NULL"),
    max_rows: default!(Option<i32>, "NULL"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(thread_id, String),
            name!(checkpoint_ns, String),
            name!(checkpoint_id, String),
            name!(parent_checkpoint_id, Option<String>),
            name!(next, Vec<String>),
            name!(channels, JsonResult),
            name!(metadata, JsonResult),
            name!(pending_writes, i32),
            name!(created_at, Option<TimestampWithTimeZone>),
        ),
    >,
    ErrorReport,
> {
    let list = List::of_args(thread_id, checkpoint_ns, filter, before, max_rows)?;
    let rows = list.run(&Db::of_call(fcinfo)?)?;
    Ok(TableIterator::new(rows.into_iter().map(columns)))
}

/// Which checkpoints a list has.
pub struct List<'a> {
    thread_id: Option<&'a str>,
    checkpoint_ns: Option<&'a str>,
    filter: Option<String>,
    before: Option<&'a str>,
    max_rows: Option<i64>,
}

impl<'a> List<'a> {
    pub fn of_args(
        thread_id: Option<&'a str>,
        checkpoint_ns: Option<&'a str>,
        filter: Option<JsonbText>,
        before: Option<&'a str>,
        max_rows: Option<i32>,
    ) -> Result<List<'a>> {
        let filter = filter.map(|filter| filter.0).filter(|filter| filter != "{}");
        if let Some(filter) = &filter {
            args::object_text("filter", filter)?;
        }
        Ok(List {
            thread_id: thread_id.map(|id| args::thread_id(Some(id))).transpose()?,
            checkpoint_ns: checkpoint_ns.map(|ns| args::checkpoint_ns(Some(ns))).transpose()?,
            filter,
            before: before.map(|id| args::name_or_empty("before", Some(id))).transpose()?,
            max_rows: args::max_rows(max_rows)?,
        })
    }

    pub fn run(&self, db: &Db) -> Result<Vec<Checkpoint>> {
        let statement = match (self.thread_id, &self.filter) {
            (None, None) => &LIST,
            (Some(_), None) => &LIST_THREAD,
            (None, Some(_)) => &LIST_FILTER,
            (Some(_), Some(_)) => &LIST_THREAD_FILTER,
        };
        let args = [
            param(db.tenant.as_str()),
            param(self.checkpoint_ns),
            param(self.before),
            param(self.max_rows),
            param(self.thread_id),
            param(self.filter.as_deref()),
        ];
        db.read(statement, &args, Checkpoint::from_row)
    }
}
