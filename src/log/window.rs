//! `ckpt_window`: what the model should read. Reads the final turn and about as many messages before it as are asked for,
//! however long the log is.

use super::read::{Stored, said};
use super::{message_error, parse_message, parse_messages};
use crate::args;
use crate::error::{Error, Result};
use crate::json::quote;
use crate::json_types::{JsonResult, JsonText};
use crate::model::message::Message;
use crate::model::window::{Entry, Selection, marker_text};
use crate::spi::{BIGINT, Db, Statement, TEXT, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// Newest first, from below a seq.
static BACKWARD: Statement = Statement::new(
    "SELECT m.seq, m.msg_id, m.message::pg_catalog.text FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @< $3
     ORDER BY m.seq DESC LIMIT $4",
    &[TEXT, TEXT, BIGINT, BIGINT],
);

static OPENING_BEFORE: Statement = Statement::new(
    "SELECT m.seq, m.msg_id, m.message::pg_catalog.text FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @< $3 AND m.opens_exchange
     ORDER BY m.seq DESC LIMIT 1",
    &[TEXT, TEXT, BIGINT],
);

static OLDEST_BEFORE: Statement = Statement::new(
    "SELECT m.seq, m.msg_id, m.message::pg_catalog.text FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @< $3
     ORDER BY m.seq LIMIT 1",
    &[TEXT, TEXT, BIGINT],
);

/// How many messages one query of the walk fetches at least.
const PAGE: usize = 32;

type WindowRow = (i32, String, String, Option<String>, Option<String>, Option<i64>, JsonResult);

/// The preamble, the last whole exchanges of at most `size` messages, a marker, and the final turn.
///
/// Errors: 22004, 22023, 54000 for arguments.
#[pg_extern(stable, parallel_safe)]
fn ckpt_window(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    size: default!(Option<i32>, "60"),
    current: default!(Option<JsonText<'_>>, "NULL"),
    preamble: default!(Option<JsonText<'_>>, "NULL"),
    marker: default!(Option<bool>, "true"),
) -> std::result::Result<
    TableIterator<
        'static,
        (
            name!(ordinal, i32),
            name!(kind, String),
            name!(role, String),
            name!(content, Option<String>),
            name!(msg_id, Option<String>),
            name!(seq, Option<i64>),
            name!(message, JsonResult),
        ),
    >,
    ErrorReport,
> {
    let thread_id = args::thread_id(thread_id)?;
    let size = args::required("size", size)?;
    if size < 0 {
        return Err(Error::invalid(format!("size must not be negative: {size}"))
            .detail("It is the most messages to show before the final turn.")
            .hint("Pass 0 for none of them.")
            .into());
    }
    let current = current.map(|current| one_or_more("current", current)).transpose()?.unwrap_or_default();
    let preamble = preamble.map(|preamble| one_or_more("preamble", preamble)).transpose()?.unwrap_or_default();
    let marker = args::required("marker", marker)?;
    let db = Db::of_call(fcinfo)?;
    let mut log = Backward { db: &db, thread_id, below: i64::MAX, page: Vec::new(), size: size as usize };
    let rows = window(&mut log, size as usize, current, preamble, marker)?;
    Ok(TableIterator::new(rows))
}

fn one_or_more<'a>(argument: &str, json: JsonText<'a>) -> Result<Vec<(&'a str, Message)>> {
    let text = args::json(argument, Some(json))?;
    if text.trim_start().starts_with('[') {
        parse_messages(argument, text)
    } else {
        args::split(argument, text)?;
        Ok(vec![parse_message(argument, "$", text)?])
    }
}

fn window(
    log: &mut Backward<'_>,
    size: usize,
    current: Vec<(&str, Message)>,
    preamble: Vec<(&str, Message)>,
    marker: bool,
) -> Result<Vec<WindowRow>> {
    let final_turn = final_turn(log, &current)?;
    let current = &current[final_turn.known..];
    let mut selection = Selection::new(size);
    let mut opening = None;
    while let Some(exchange) = log.exchange(&selection)? {
        if opening.is_none() {
            opening = exchange.messages.first().map(|stored| stored.message.content.clone().unwrap_or_default());
        }
        selection.offer(exchange.messages.into_iter().map(entry).collect(), exchange.whole);
        if selection.is_full() {
            break;
        }
    }
    let mut rows = Vec::new();
    for (text, message) in &preamble {
        push(&mut rows, "preamble", message, text, None, None);
    }
    for Stored { seq, msg_id, text, message } in &selection.into_messages() {
        push(&mut rows, "message", message, text, Some(msg_id.clone()), Some(*seq));
    }
    if let (true, Some(opening)) = (marker, opening) {
        let content = marker_text(&opening);
        let text = format!("{{\"role\": \"user\", \"content\": {}}}", quote(&content));
        let ordinal = rows.len() as i32 + 1;
        rows.push((ordinal, "marker".to_owned(), "user".to_owned(), Some(content), None, None, JsonResult(text)));
    }
    for Stored { seq, msg_id, text, message } in &final_turn.stored {
        push(&mut rows, "final", message, text, Some(msg_id.clone()), Some(*seq));
    }
    for (text, message) in current {
        push(&mut rows, "final", message, text, message.own_id.clone(), None);
    }
    Ok(rows)
}

/// What of the final turn the log has.
struct FinalTurn {
    /// In the order of the log.
    stored: Vec<Stored>,
    /// How many messages of `current`, from its first on, are among those.
    known: usize,
}

/// The final turn is the log's last exchange, or `current`. Of that the log's tail may have a beginning already, or all; and
/// where it begins with the result of a tool the exchange that called it is in the log, without which no model provider takes
/// it.
fn final_turn(log: &mut Backward<'_>, current: &[(&str, Message)]) -> Result<FinalTurn> {
    let Some((_, first)) = current.first() else {
        return Ok(FinalTurn { stored: log.last_exchange()?, known: 0 });
    };
    let known = known_beginning(log, current)?;
    let mut stored = log.take_in_order(known);
    if !first.answers.is_empty() {
        stored.splice(0..0, log.last_exchange()?);
    }
    Ok(FinalTurn { stored, known })
}

/// How many messages the log ends with that `current` begins with.
fn known_beginning(log: &mut Backward<'_>, current: &[(&str, Message)]) -> Result<usize> {
    log.fill(current.len())?;
    let mut said_last = Vec::new();
    for stored in log.page.iter().take(current.len()) {
        said_last.push((stored.msg_id.as_str(), said(log.thread_id, &stored.text)?));
    }
    let mut said_now = Vec::new();
    for (text, message) in current {
        let body = message.body(text).map_err(|error| message_error("current", "$", error))?;
        said_now.push((message.own_id.as_deref(), (message.role.clone(), body)));
    }
    let same = |(last, now): (&(&str, _), &(Option<&str>, _))| now.0.is_none_or(|id| id == last.0) && last.1 == now.1;
    let begins = |count: &usize| said_last[..*count].iter().rev().zip(&said_now).all(same);
    Ok((1..=said_last.len()).rev().find(begins).unwrap_or(0))
}

fn entry(stored: Stored) -> Entry<Stored> {
    Entry { calls: stored.message.calls.clone(), answers: stored.message.answers.clone(), item: stored }
}

fn push(
    rows: &mut Vec<WindowRow>,
    kind: &str,
    message: &Message,
    text: &str,
    msg_id: Option<String>,
    seq: Option<i64>,
) {
    let ordinal = rows.len() as i32 + 1;
    let (role, content) = (message.role.clone(), message.content.clone());
    rows.push((ordinal, kind.to_owned(), role, content, msg_id, seq, JsonResult(text.trim().to_owned())));
}

struct Exchange {
    /// In the order of the log.
    messages: Vec<Stored>,
    whole: bool,
}

/// A walk through the log from its end.
struct Backward<'a> {
    db: &'a Db,
    thread_id: &'a str,
    /// What was fetched last ends above this seq.
    below: i64,
    /// Fetched and not yet taken, newest first.
    page: Vec<Stored>,
    size: usize,
}

impl Backward<'_> {
    /// The newest exchange that was not taken yet, whole.
    fn last_exchange(&mut self) -> Result<Vec<Stored>> {
        let exchange = self.exchange(&Selection::new(usize::MAX))?;
        Ok(exchange.map(|exchange| exchange.messages).unwrap_or_default())
    }

    /// The next older exchange, in the order of the log. Of one that cannot fit in `selection` and will be left out or cut, only
    /// the opening message and enough of the newest ones are read.
    fn exchange(&mut self, selection: &Selection<Stored>) -> Result<Option<Exchange>> {
        let mut known = 0;
        loop {
            let opening = self.page[known..].iter().position(|stored| stored.message.opens_exchange);
            if let Some(at) = opening {
                let messages = self.take_in_order(known + at + 1);
                return Ok(Some(Exchange { messages, whole: true }));
            }
            known = self.page.len();
            // Twice the size, because calls without answers are not shown and do not count.
            if known > 2 * self.size.max(PAGE) && selection.cannot_hold(known) {
                let mut messages = self.take_in_order(known);
                let opening = self.opening()?;
                let whole = opening.is_none();
                messages.splice(0..0, opening);
                return Ok(Some(Exchange { messages, whole }));
            }
            self.fill(known + self.size.clamp(PAGE, 1_000))?;
            if self.page.len() == known {
                let messages = self.take_in_order(known);
                return Ok((known > 0).then_some(Exchange { messages, whole: true }));
            }
        }
    }

    /// The message that opened the exchange of which all that was fetched is the end: before the first user message, that is the
    /// first of the log.
    fn opening(&mut self) -> Result<Option<Stored>> {
        for statement in [&OPENING_BEFORE, &OLDEST_BEFORE] {
            let args = [param(self.thread_id), param(self.db.tenant.as_str()), param(self.below)];
            let opening = self.db.read_one(statement, &args, |row| Stored::from_row(self.thread_id, row))?;
            if let Some(opening) = opening {
                self.below = opening.seq;
                return Ok(Some(opening));
            }
        }
        Ok(None)
    }

    /// Fetches until so many messages are at hand, or all there are.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.page.len() >= wanted {
            return Ok(());
        }
        let missing = (wanted - self.page.len()) as i64;
        let args = [param(self.thread_id), param(self.db.tenant.as_str()), param(self.below), param(missing)];
        let mut fetched = self.db.read(&BACKWARD, &args, |row| Stored::from_row(self.thread_id, row))?;
        if let Some(oldest) = fetched.last() {
            self.below = oldest.seq;
        }
        self.page.append(&mut fetched);
        Ok(())
    }

    fn take(&mut self, count: usize) -> Vec<Stored> {
        self.page.drain(..count).collect()
    }

    fn take_in_order(&mut self, count: usize) -> Vec<Stored> {
        let mut taken = self.take(count);
        taken.reverse();
        taken
    }
}
