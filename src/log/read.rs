//! `ckpt_messages`: the raw log.

use crate::args;
use crate::error::{Error, Result};
use crate::json_types::JsonResult;
use crate::model::message::{Message, OwnedBody};
use crate::spi::{BIGINT, Db, Statement, TEXT, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

static MESSAGES: Statement = Statement::new(
    "SELECT m.seq, m.msg_id, m.role, m.turn, m.message::pg_catalog.text, m.tokens, m.created_at FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2
       AND m.seq @> $3 AND m.seq @< $4
     ORDER BY m.seq LIMIT $5",
    &[TEXT, TEXT, BIGINT, BIGINT, BIGINT],
);

/// The messages between two seqs (exclusive), in order, at most so many.
#[pg_extern(stable, parallel_safe)]
fn ckpt_messages(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    after: default!(Option<i64>, "NULL"),
    before: default!(Option<i64>, "NULL"),
    max_rows: default!(Option<i32>, "NULL"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(seq, i64),
            name!(msg_id, String),
            name!(role, String),
            name!(content, Option<String>),
            name!(message, JsonResult),
            name!(turn, String),
            name!(tokens, i32),
            name!(created_at, Option<TimestampWithTimeZone>),
        ),
    >,
    ErrorReport,
> {
    let thread_id = args::thread_id(thread_id)?;
    let max_rows = args::max_rows(max_rows)?;
    let db = Db::of_call(fcinfo)?;
    let args = [
        param(thread_id),
        param(db.tenant.as_str()),
        param(after.unwrap_or(0)),
        param(before.unwrap_or(i64::MAX)),
        param(max_rows),
    ];
    let rows = db.read(&MESSAGES, &args, |row| {
        let text: String = row.must(5)?;
        let content = parse_stored(thread_id, &text)?.content;
        let (turn, tokens) = (row.must(4)?, row.must(6)?);
        Ok((row.must(1)?, row.must(2)?, row.must(3)?, content, JsonResult(text), turn, tokens, row.get(7)?))
    })?;
    Ok(TableIterator::new(rows))
}

/// What the log knows of a message that it holds.
pub struct Stored {
    pub seq: i64,
    pub msg_id: String,
    /// How many messages the log has up to this one.
    pub message_count: i64,
    pub tokens: i32,
}

pub fn parse_stored(thread_id: &str, text: &str) -> Result<Message> {
    Message::parse(text).map_err(|_| damaged(thread_id))
}

/// Who says what in a stored message.
pub fn said(thread_id: &str, text: &str) -> Result<(String, OwnedBody)> {
    let message = parse_stored(thread_id, text)?;
    let body = message.body(text).map_err(|_| damaged(thread_id))?;
    Ok((message.role, body))
}

fn damaged(thread_id: &str) -> Error {
    Error::corrupted(format!("a message of thread \"{thread_id}\" is damaged"))
}
