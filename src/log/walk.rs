//! A walk through a conversation from its end: the messages of a request that are not stored, and before them the log. It reads
//! about as many messages as are asked for, however long the log is.

use super::message_error;
use super::read::{Stored, parse_stored};
use crate::error::Result;
use crate::model::cleaning::Clean;
use crate::model::message::{Message, OwnedBody};
use crate::model::window::{Entry, Groups, Selection};
use crate::spi::{BIGINT, Db, Row, Statement, TEXT, param};

// Newest first, from below a seq.
static BACKWARD: Statement = Statement::new(
    "SELECT m.seq, m.msg_id, m.message::pg_catalog.text, m.message_count, m.tokens,
            m.rules, m.clean::pg_catalog.text, m.clean_tokens FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @< $3
     ORDER BY m.seq DESC LIMIT $4",
    &[TEXT, TEXT, BIGINT, BIGINT],
);

static OPENING_BEFORE: Statement = Statement::new(
    "SELECT m.seq, m.msg_id, m.message::pg_catalog.text, m.message_count, m.tokens,
            m.rules, m.clean::pg_catalog.text, m.clean_tokens FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @< $3 AND m.opens_exchange
     ORDER BY m.seq DESC LIMIT 1",
    &[TEXT, TEXT, BIGINT],
);

static OLDEST_BEFORE: Statement = Statement::new(
    "SELECT m.seq, m.msg_id, m.message::pg_catalog.text, m.message_count, m.tokens,
            m.rules, m.clean::pg_catalog.text, m.clean_tokens FROM @s.checkpoint_messages m
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @< $3
     ORDER BY m.seq LIMIT 1",
    &[TEXT, TEXT, BIGINT],
);

/// How many messages one query of the walk fetches at least, and at most.
const PAGE: usize = 32;
const MOST: usize = 1_000;

/// A message of the conversation.
pub struct Said {
    /// Its number in the conversation, from 1.
    pub place: i64,
    /// As it was given.
    pub text: String,
    /// As it is shown: without markup, where the log has that by the rules that are asked for.
    pub message: Message,
    pub clean: Cleaned,
    /// What the log knows of it; of a message that the log does not have, nothing.
    pub stored: Option<Stored>,
}

/// What is known of a message without its markup.
pub enum Cleaned {
    NotYet,
    HasNone,
    Text(Clean),
}

impl Said {
    fn new(place: i64, text: String, message: Message) -> Said {
        Said { place, text, message, clean: Cleaned::NotYet, stored: None }
    }

    /// From the columns `seq, msg_id, message::text, message_count, tokens, rules, clean::text, clean_tokens`.
    fn from_row(thread_id: &str, rules: Option<i64>, row: &mut Row<'_>) -> Result<Said> {
        let text: String = row.must(3)?;
        let clean = match rules {
            Some(rules) if rules == row.must::<i64>(6)? => match row.get(7)?.zip(row.get::<i32>(8)?) {
                Some((json, tokens)) => Cleaned::Text(Clean { json, tokens: tokens as usize }),
                None => Cleaned::HasNone,
            },
            _ => Cleaned::NotYet,
        };
        let shown = if let Cleaned::Text(clean) = &clean { &clean.json } else { &text };
        let message = parse_stored(thread_id, shown)?;
        let stored =
            Stored { seq: row.must(1)?, msg_id: row.must(2)?, message_count: row.must(4)?, tokens: row.must(5)? };
        Ok(Said { place: stored.message_count, text, message, clean, stored: Some(stored) })
    }
}

/// A conversation, cut for a window.
pub struct Frame {
    /// What is shown before the final turn, in order.
    pub exchanges: Vec<Groups<Said>>,
    /// The text that opened the exchange before the final turn.
    pub opening: Option<String>,
    pub final_turn: Vec<Said>,
    /// How many messages stand before the first that is shown.
    pub before: i64,
    /// The first seq of the log that belongs to the final turn; what a summary covers ends before it.
    pub final_seq: i64,
    /// The first seq of the log that is shown.
    pub first_seq: i64,
}

struct Exchange {
    /// In the order of the log.
    messages: Vec<Said>,
    whole: bool,
}

pub struct Walk<'a> {
    db: &'a Db,
    /// The log that the conversation begins with.
    thread_id: Option<&'a str>,
    /// The rules by which messages are cleaned; `None` where their markup stays.
    rules: Option<i64>,
    /// What was fetched last ends above this seq.
    below: i64,
    /// Fetched and not yet taken, newest first.
    page: Vec<Said>,
    /// How many messages are shown before the final turn, at most.
    size: usize,
}

impl<'a> Walk<'a> {
    pub fn new(db: &'a Db, thread_id: Option<&'a str>, size: usize, rules: Option<i64>) -> Walk<'a> {
        Walk { db, thread_id, rules, below: i64::MAX, page: Vec::new(), size }
    }

    /// Puts messages behind the log; those that it ends with already are not repeated. `argument` is where they come from.
    pub fn go_on_with(&mut self, argument: &str, messages: Vec<(String, Message)>) -> Result<()> {
        let borrowed: Vec<(&str, &Message)> = messages.iter().map(|(text, message)| (text.as_str(), message)).collect();
        let known = self.known_beginning(argument, &borrowed)?;
        let length = self.length();
        let new = messages.into_iter().skip(known).zip(length + 1..);
        let said = new.map(|((text, message), place)| Said::new(place, text, message));
        self.page.splice(0..0, said.collect::<Vec<_>>().into_iter().rev());
        Ok(())
    }

    /// The texts that open exchanges among the messages that are not stored, in order, each with its place.
    pub fn openings(&self) -> Vec<(i64, String)> {
        let new = self.page.iter().take_while(|said| said.stored.is_none()).filter(|said| said.message.opens_exchange);
        let mut openings: Vec<_> =
            new.map(|said| (said.place, said.message.content.clone().unwrap_or_default())).collect();
        openings.reverse();
        openings
    }

    /// The conversation's window. The final turn is its last exchange, or `current`. Of that its tail may have a beginning
    /// already, or all; and where it begins with the result of a tool the exchange that called it is in the log, without which no
    /// model provider takes it.
    pub fn frame(mut self, current: Vec<(&str, Message)>) -> Result<Frame> {
        self.fill(1)?;
        let length = self.length();
        let final_turn = self.final_turn(current, length)?;
        let mut selection = Selection::new(self.size);
        let mut opening = None;
        while let Some(exchange) = self.exchange(&selection)? {
            if opening.is_none() {
                opening = exchange.messages.first().map(|said| said.message.content.clone().unwrap_or_default());
            }
            selection.offer(exchange.messages.into_iter().map(entry).collect(), exchange.whole);
            if selection.is_full() {
                break;
            }
        }
        let exchanges = selection.into_exchanges();
        let seq_of = |said: &Said| said.stored.as_ref().map(|stored| stored.seq);
        let shown = || exchanges.iter().flatten().flatten().chain(&final_turn);
        Ok(Frame {
            before: shown().next().map_or(length, |first| first.place - 1),
            final_seq: final_turn.iter().find_map(seq_of).unwrap_or(i64::MAX),
            first_seq: shown().find_map(seq_of).unwrap_or(i64::MAX),
            exchanges,
            opening,
            final_turn,
        })
    }

    fn final_turn(&mut self, current: Vec<(&str, Message)>, length: i64) -> Result<Vec<Said>> {
        let Some((_, first)) = current.first() else {
            return self.last_exchange();
        };
        let is_result = !first.answers.is_empty();
        let borrowed: Vec<(&str, &Message)> = current.iter().map(|(text, message)| (*text, message)).collect();
        let known = self.known_beginning("current", &borrowed)?;
        let mut said = self.take_in_order(known);
        if is_result {
            said.splice(0..0, self.last_exchange()?);
        }
        let new = current.into_iter().skip(known).zip(length + 1..);
        said.extend(new.map(|((text, message), place)| Said::new(place, text.to_owned(), message)));
        Ok(said)
    }

    /// How many messages the conversation ends with that `messages` begin with.
    fn known_beginning(&mut self, argument: &str, messages: &[(&str, &Message)]) -> Result<usize> {
        self.fill(messages.len())?;
        let mut said_last = Vec::new();
        for last in self.page.iter().take(messages.len()) {
            let id = last.stored.as_ref().map(|stored| stored.msg_id.as_str()).or(last.message.own_id.as_deref());
            said_last.push((id, said_of(argument, &last.text, &last.message)?));
        }
        let mut said_now = Vec::new();
        for (text, message) in messages {
            said_now.push((message.own_id.as_deref(), said_of(argument, text, message)?));
        }
        let same = |(last, now): (&(Option<&str>, _), &(Option<&str>, _))| {
            now.0.is_none_or(|id| last.0.is_none_or(|last| id == last)) && last.1 == now.1
        };
        let begins = |count: &usize| said_last[..*count].iter().rev().zip(&said_now).all(same);
        Ok((1..=said_last.len()).rev().find(begins).unwrap_or(0))
    }

    /// How many messages the conversation has, before any is taken.
    fn length(&self) -> i64 {
        self.page.first().map_or(0, |newest| newest.place)
    }

    /// The newest exchange that was not taken yet, whole.
    fn last_exchange(&mut self) -> Result<Vec<Said>> {
        let exchange = self.exchange(&Selection::new(usize::MAX))?;
        Ok(exchange.map(|exchange| exchange.messages).unwrap_or_default())
    }

    /// The next older exchange, in the order of the log. Of one that cannot fit in `selection` and will be left out or cut, only
    /// the opening message and enough of the newest ones are read.
    fn exchange(&mut self, selection: &Selection<Said>) -> Result<Option<Exchange>> {
        let mut known = 0;
        loop {
            let opening = self.page[known..].iter().position(|said| said.message.opens_exchange);
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
            self.fill(known + 1)?;
            if self.page.len() == known {
                let messages = self.take_in_order(known);
                return Ok((known > 0).then_some(Exchange { messages, whole: true }));
            }
        }
    }

    /// The message that opened the exchange of which all that was fetched is the end: before the first user message, that is the
    /// first of the log.
    fn opening(&mut self) -> Result<Option<Said>> {
        let Some(thread_id) = self.thread_id else { return Ok(None) };
        for statement in [&OPENING_BEFORE, &OLDEST_BEFORE] {
            let args = [param(thread_id), param(self.db.tenant.as_str()), param(self.below)];
            let opening = self.db.read_one(statement, &args, |row| Said::from_row(thread_id, self.rules, row))?;
            if let Some(opening) = opening {
                self.below = opening.stored.as_ref().map_or(0, |stored| stored.seq);
                return Ok(Some(opening));
            }
        }
        Ok(None)
    }

    /// Fetches until so many messages are at hand, or all there are; as a rule all that a window needs at once.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        let Some(thread_id) = self.thread_id.filter(|_| self.page.len() < wanted) else { return Ok(()) };
        // In a chat the final turn has two messages, and where it has more the next page has the rest.
        let missing = (wanted - self.page.len()).max(self.size.clamp(PAGE, MOST) + 4) as i64;
        let args = [param(thread_id), param(self.db.tenant.as_str()), param(self.below), param(missing)];
        let fetched = self.db.read(&BACKWARD, &args, |row| Said::from_row(thread_id, self.rules, row))?;
        if let Some(oldest) = fetched.last().and_then(|said| said.stored.as_ref()) {
            self.below = oldest.seq;
        }
        self.page.extend(fetched);
        Ok(())
    }

    fn take_in_order(&mut self, count: usize) -> Vec<Said> {
        let mut taken: Vec<Said> = self.page.drain(..count).collect();
        taken.reverse();
        taken
    }
}

fn entry(said: Said) -> Entry<Said> {
    Entry { calls: said.message.calls.clone(), answers: said.message.answers.clone(), item: said }
}

fn said_of(argument: &str, text: &str, message: &Message) -> Result<(String, OwnedBody)> {
    let body = message.body(text).map_err(|error| message_error(argument, "$", error))?;
    Ok((message.role.clone(), body))
}
