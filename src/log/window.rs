//! `ckpt_window`: what the model should read. It is declared in `sql/row_functions.sql`.

use super::markup::{self, Rules};
use super::read::Stored;
use super::summary;
use super::walk::{Cleaned, Frame, Said, Walk};
use super::{message_error, parse_message, parse_messages};
use crate::args;
use crate::error::{Error, Result};
use crate::json::quote;
use crate::json_types::JsonText;
use crate::model::cleaning::{self, Clean};
use crate::model::message::{Message, Speaker};
use crate::model::window::{Groups, newest_within};
use crate::model::{notes, tokens};
use crate::row_sink::{RowSink, datum};
use crate::spi::Db;
use pgrx::pg_sys::Datum;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::rc::Rc;

/// The preamble, a summary of what lies before, the last whole exchanges of at most `size` messages, a marker, and the final turn;
/// with `max_tokens` so much of that as fits.
///
/// Errors: 22004, 22023, 54000 for arguments; 54000 where preamble, marker and final turn alone are over `max_tokens`.
#[pg_extern(sql = false)]
fn ckpt_window(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    size: Option<i32>,
    max_tokens: Option<i32>,
    current: Option<JsonText<'_>>,
    preamble: Option<JsonText<'_>>,
    strip: Option<bool>,
    marker: Option<bool>,
) -> std::result::Result<(), ErrorReport> {
    let thread_id = args::thread_id(thread_id)?;
    let options = Options::of_args(size, max_tokens, current, preamble, strip, marker)?;
    let db = Db::of_call(fcinfo)?;
    let shaper = Shaper::new(&db, options.strip)?;
    let walk = Walk::new(&db, Some(thread_id), options.size, shaper.rules());
    let lines = window(&db, Some(thread_id), walk, options, &shaper)?;
    let mut sink = RowSink::of_call(fcinfo);
    for (line, ordinal) in lines.iter().zip(1..) {
        sink.put(|| line.columns(ordinal));
    }
    Ok(())
}

/// How a window is to be made.
pub struct Options<'a> {
    pub size: usize,
    max_tokens: Option<u64>,
    pub current: Vec<(&'a str, Message)>,
    preamble: Vec<(&'a str, Message)>,
    pub strip: bool,
    marker: bool,
}

impl<'a> Options<'a> {
    pub fn of_args(
        size: Option<i32>,
        max_tokens: Option<i32>,
        current: Option<JsonText<'a>>,
        preamble: Option<JsonText<'a>>,
        strip: Option<bool>,
        marker: Option<bool>,
    ) -> Result<Options<'a>> {
        let max_tokens = max_tokens.map(|most| match u64::try_from(most) {
            Ok(most) if most > 0 => Ok(most),
            _ => Err(Error::invalid(format!("max_tokens must be positive: {most}"))
                .detail("It is the most tokens that the whole window may have.")
                .hint("Leave it out, or pass NULL, for no limit.")),
        });
        Ok(Options {
            size: self::size(size)?,
            max_tokens: max_tokens.transpose()?,
            current: current.map(|current| one_or_more("current", current)).transpose()?.unwrap_or_default(),
            preamble: preamble.map(|preamble| one_or_more("preamble", preamble)).transpose()?.unwrap_or_default(),
            strip: args::required("strip", strip)?,
            marker: args::required("marker", marker)?,
        })
    }
}

pub fn size(size: Option<i32>) -> Result<usize> {
    let size = args::required("size", size)?;
    usize::try_from(size).map_err(|_| {
        Error::invalid(format!("size must not be negative: {size}"))
            .detail("It is the most messages to show before the final turn.")
            .hint("Pass 0 for none of them.")
    })
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

/// A row of the window.
pub struct Line {
    kind: &'static str,
    role: String,
    content: Option<String>,
    msg_id: Option<String>,
    seq: Option<i64>,
    tokens: u64,
    pub message: String,
}

impl Line {
    fn columns(&self, ordinal: i32) -> [Option<Datum>; 8] {
        [
            datum(ordinal),
            datum(self.kind),
            datum(self.role.as_str()),
            self.content.as_deref().and_then(datum),
            self.msg_id.as_deref().and_then(datum),
            self.seq.and_then(datum),
            datum(self.tokens as i32),
            // A json datum has the layout of a text datum.
            datum(self.message.as_str()),
        ]
    }

    /// A message that the window itself writes.
    fn note(kind: &'static str, role: &str, content: String) -> Line {
        let message = format!("{{\"role\": {}, \"content\": {}}}", quote(role), quote(&content));
        let tokens = tokens::OF_THE_LOG.count(&content) as u64;
        Line { kind, role: role.to_owned(), content: Some(content), msg_id: None, seq: None, tokens, message }
    }
}

/// Makes the lines of messages.
pub struct Shaper {
    /// `None` where markup stays.
    rules: Option<Rc<Rules>>,
}

impl Shaper {
    pub fn new(db: &Db, strip: bool) -> Result<Shaper> {
        Ok(Shaper { rules: if strip { Some(markup::rules(db)?) } else { None } })
    }

    /// The rules by which messages are cleaned.
    pub fn rules(&self) -> Option<i64> {
        self.rules.as_ref().map(|rules| rules.fingerprint)
    }

    fn line(&self, kind: &'static str, said: Said) -> Result<Line> {
        let Said { text, message, clean, stored, .. } = said;
        let (text, message, tokens) = match (clean, &self.rules) {
            (Cleaned::Text(clean), Some(_)) => (clean.json, message, clean.tokens as u64),
            (Cleaned::NotYet, Some(rules)) => {
                match cleaning::clean(&text, Speaker::of_role(&message.role), &rules.cleaner) {
                    Some(Clean { json, tokens }) => {
                        let message = Message::parse(&json).map_err(|error| message_error(kind, "$", error))?;
                        (json, message, tokens as u64)
                    }
                    None => as_given(kind, text, message, stored.as_ref())?,
                }
            }
            _ => as_given(kind, text, message, stored.as_ref())?,
        };
        let msg_id = stored.as_ref().map(|stored| stored.msg_id.clone()).or(message.own_id);
        let seq = stored.map(|stored| stored.seq);
        let message_text = trimmed(text);
        Ok(Line { kind, role: message.role, content: message.content, msg_id, seq, tokens, message: message_text })
    }

    /// A text that a note quotes.
    fn quotable(&self, text: &str) -> String {
        self.rules.as_ref().map_or_else(|| text.to_owned(), |rules| rules.cleaner.clean_data(text).into_owned())
    }
}

fn as_given(kind: &str, text: String, message: Message, stored: Option<&Stored>) -> Result<(String, Message, u64)> {
    let tokens = match stored {
        Some(stored) => stored.tokens as u64,
        None => counted(kind, &text)?,
    };
    Ok((text, message, tokens))
}

fn trimmed(text: String) -> String {
    if text.trim().len() == text.len() { text } else { text.trim().to_owned() }
}

fn counted(argument: &str, text: &str) -> Result<u64> {
    let count = tokens::of_message(text).map_err(|error| Error::json(argument, text, &error))?;
    Ok(count as u64)
}

/// The lines of the window of a conversation; `thread_id` is the log that it begins with.
pub fn window(
    db: &Db,
    thread_id: Option<&str>,
    walk: Walk<'_>,
    options: Options<'_>,
    shaper: &Shaper,
) -> Result<Vec<Line>> {
    let Options { max_tokens, current, preamble, marker, .. } = options;
    let said_before = walk.openings();
    let frame = walk.frame(current)?;
    let summary = match frame.before {
        0 => None,
        _ => Some(Line::note("summary", "system", before(db, thread_id, &frame, &said_before, shaper)?)),
    };
    let Frame { exchanges, opening, final_turn, .. } = frame;
    let mut exchanges = exchanges
        .into_iter()
        .map(|exchange| {
            let group = |group: Vec<Said>| group.into_iter().map(|said| shaper.line("message", said)).collect();
            exchange.into_iter().map(group).collect::<Result<Groups<Line>>>()
        })
        .collect::<Result<Vec<_>>>()?;
    let opening = opening.filter(|_| marker);
    let marker = opening.map(|opening| Line::note("marker", "user", notes::marker(&shaper.quotable(&opening))));
    let final_turn = final_turn.into_iter().map(|said| shaper.line("final", said)).collect::<Result<Vec<_>>>()?;
    let mut lines = Vec::with_capacity(preamble.len() + final_turn.len() + 2);
    for (text, message) in preamble {
        let tokens = counted("preamble", text)?;
        let Message { role, content, own_id, .. } = message;
        let message = text.trim().to_owned();
        lines.push(Line { kind: "preamble", role, content, msg_id: own_id, seq: None, tokens, message });
    }
    let mut summary = summary;
    if let Some(most) = max_tokens {
        let fixed = total(lines.iter().chain(&marker).chain(&final_turn));
        let room = most.checked_sub(fixed).ok_or_else(|| over_budget(most, fixed))?;
        if total(summary.iter().chain(exchanges.iter().flatten().flatten())) > room {
            summary = None;
            exchanges = newest_within(exchanges, room, |line| line.tokens);
        }
    }
    lines.extend(summary);
    lines.extend(exchanges.into_iter().flatten().flatten());
    lines.extend(marker);
    lines.extend(final_turn);
    Ok(lines)
}

fn total<'l>(lines: impl Iterator<Item = &'l Line>) -> u64 {
    lines.map(|line| line.tokens).sum()
}

fn over_budget(most: u64, fixed: u64) -> Error {
    Error::limit(format!("the window needs {} tokens more than max_tokens", fixed - most))
        .detail(format!(
            "Preamble, marker and final turn have {fixed} tokens, and max_tokens is {most}. They are never left out."
        ))
        .hint("Raise max_tokens, or send a shorter preamble or current message.")
}

/// What stands in the place of the messages before the window: the newest summary, and an extract of what it does not cover.
fn before(
    db: &Db,
    thread_id: Option<&str>,
    frame: &Frame,
    said_before: &[(i64, String)],
    shaper: &Shaper,
) -> Result<String> {
    let kept = match thread_id {
        Some(thread_id) => summary::newest(db, thread_id, frame.final_seq)?,
        None => None,
    };
    let (covered, covered_seq) = kept.as_ref().map_or((0, 0), |kept| (kept.message_count, kept.seq));
    let missing = frame.before - covered;
    if missing <= 0 {
        return Ok(kept.map(|kept| kept.summary).unwrap_or_default());
    }
    let mut openings = match thread_id {
        Some(thread_id) => summary::openings_between(db, thread_id, covered_seq, frame.first_seq)?,
        None => Vec::new(),
    };
    openings.extend(said_before.iter().filter(|(place, _)| *place <= frame.before).map(|(_, text)| text.clone()));
    let newest = openings.len().saturating_sub(notes::MOST_OPENINGS);
    let quoted: Vec<String> = openings[newest..].iter().map(|text| shaper.quotable(text)).collect();
    let extract = notes::extract(missing as u64, &quoted);
    Ok(match kept {
        Some(kept) => format!("{}\n\n{extract}", kept.summary),
        None => extract,
    })
}
