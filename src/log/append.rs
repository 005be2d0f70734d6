//! `ckpt_append`: adds messages to the log, each once however often it is sent.

use super::markup::rules;
use super::read::said;
use super::summary;
use super::{message_error, parse_messages};
use crate::args;
use crate::error::{Error, Result};
use crate::json_types::JsonText;
use crate::model::cleaning::{self, Clean};
use crate::model::id::message_id;
use crate::model::markup::Cleaner;
use crate::model::message::{Message, OwnedBody, Speaker};
use crate::model::tokens;
use crate::model::writes::OnConflict;
use crate::spi::{
    BIGINT, BIGINTS, BOOL, BOOLS, Db, INT, INTS, JSON, Statement, TEXT, TEXTS, json_param, optional_json_param, param,
};
use crate::threads;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::HashMap;

// A range and an order, where an equality would do: only the index by id has them, also for a planner that knows nothing about the
// table yet.
static KNOWN: Statement = Statement::ordered(
    "SELECT wanted.id, m.seq, m.message::pg_catalog.text,
            (SELECT l.last_seq FROM @s.checkpoint_logs l WHERE l.thread_id @= $1 AND l.tenant @= $2),
            (SELECT l.created_at FROM @s.checkpoint_logs l WHERE l.thread_id @= $1 AND l.tenant @= $2)
     FROM pg_catalog.unnest($3) AS wanted (id)
     LEFT JOIN LATERAL (SELECT n.seq, n.msg_id, n.message FROM @s.checkpoint_messages n
                        WHERE n.thread_id @= $1 AND n.tenant @= $2 AND n.msg_id @> ''
                          AND n.msg_id @>= wanted.id AND n.msg_id @<= wanted.id
                        ORDER BY n.msg_id LIMIT 1) AS m ON true",
    &[TEXT, TEXT, TEXTS],
);

// Takes the lock of the log, making it at the first touch, and the numbers for so many messages.
static RESERVE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_logs AS l (thread_id, tenant, last_seq, message_count) VALUES ($1, $2, $3, $3)
     ON CONFLICT (thread_id, tenant) DO UPDATE
     SET last_seq = l.last_seq @+ $3, message_count = l.message_count @+ $3
     RETURNING l.last_seq, l.created_at, l.message_count, l.copied_from",
    &[TEXT, TEXT, BIGINT],
);

// Those that a snapshot sees: after an insert more than one where the log was deleted since it was taken.
static COUNT: Statement = Statement::new(
    "SELECT pg_catalog.count(*) FROM @s.checkpoint_logs l WHERE l.thread_id @= $1 AND l.tenant @= $2",
    &[TEXT, TEXT],
);

// Gives back numbers that are not used after all, in the transaction that took them.
static GIVE_BACK: Statement = Statement::new(
    "UPDATE @s.checkpoint_logs AS l SET last_seq = l.last_seq @- $3, message_count = l.message_count @- $3
     WHERE l.thread_id @= $1 AND l.tenant @= $2",
    &[TEXT, TEXT, BIGINT],
);

static INSERT: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_messages
         (thread_id, tenant, turn, seq, message_count, msg_id, role, opens_exchange, tokens, message, rules, clean, clean_tokens)
     SELECT $1, $2, $3, new.seq, new.seq @- $9, new.msg_id, new.role, new.opens_exchange, new.tokens, new.message::pg_catalog.json,
            $11, new.clean::pg_catalog.json, new.clean_tokens
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7),
                     pg_catalog.unnest($8), pg_catalog.unnest($10), pg_catalog.unnest($12), pg_catalog.unnest($13))
          AS new (seq, msg_id, role, opens_exchange, message, tokens, clean, clean_tokens)",
    &[TEXT, TEXT, TEXT, BIGINTS, TEXTS, TEXTS, BOOLS, TEXTS, BIGINT, INTS, BIGINT, TEXTS, INTS],
);

static REPLACE: Statement = Statement::new(
    "UPDATE @s.checkpoint_messages AS m
     SET role = $4, opens_exchange = $5, message = $6, tokens = $7, rules = $8, clean = $9, clean_tokens = $10
     WHERE m.thread_id @= $1 AND m.tenant @= $2 AND m.seq @= $3",
    &[TEXT, TEXT, BIGINT, TEXT, BOOL, JSON, INT, BIGINT, JSON, INT],
);

/// Appends messages in order, all or none. A message that the log has gives its `seq` and `inserted = false`; ephemeral ones
/// are dropped and give no row.
///
/// Errors: 22004, 22023, 54000 for arguments; 23505 the same id with other content; 55000 the thread was deleted and is blocked.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_append(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    messages: Option<JsonText<'_>>,
    turn: default!(Option<&str>, "NULL"),
    on_conflict: default!(Option<&str>, "'error'"),
) -> std::result::Result<
    TableIterator<'static, (name!(seq, i64), name!(msg_id, String), name!(inserted, bool))>,
    ErrorReport,
> {
    let thread_id = args::thread_id(thread_id)?;
    let messages = parse_messages("messages", args::json("messages", messages)?)?;
    let turn = args::name_or_empty("turn", Some(turn.unwrap_or_default()))?;
    let on_conflict = args::on_conflict(on_conflict)?;
    let db = Db::of_call(fcinfo)?;
    let append = Append { db: &db, thread_id, turn, on_conflict };
    Ok(TableIterator::new(append.run(messages)?))
}

struct Append<'a> {
    db: &'a Db,
    thread_id: &'a str,
    turn: &'a str,
    on_conflict: OnConflict,
}

/// A message to append, with its id.
struct New<'a> {
    id: String,
    /// Where it has no id of its own: how many messages before it in the call are equal to it.
    occurrence: Option<u64>,
    text: &'a str,
    message: Message,
    body: OwnedBody,
}

/// The last seq of a log and when it was begun: where both are the same, nothing was appended in between.
type LogState = (i64, Option<TimestampWithTimeZone>);

/// What the log, or an earlier message of the same call, has under an id.
struct Known {
    seq: i64,
    role: String,
    body: OwnedBody,
}

impl New<'_> {
    fn tokens(&self) -> Result<i32> {
        let count = tokens::of_message(self.text).map_err(|error| Error::json("messages", self.text, &error))?;
        Ok(as_int(count))
    }

    /// As it will be shown, unless the rules change.
    fn clean(&self, cleaner: &Cleaner) -> Option<Clean> {
        cleaning::clean(self.text, Speaker::of_role(&self.message.role), cleaner)
    }

    fn as_known(&self, seq: i64) -> Known {
        Known { seq, role: self.message.role.clone(), body: self.body.clone() }
    }
}

impl Known {
    fn says_the_same(&self, new: &New<'_>) -> bool {
        self.role == new.message.role && self.body == new.body
    }
}

fn as_int(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl Append<'_> {
    fn run(&self, messages: Vec<(&str, Message)>) -> Result<Vec<(i64, String, bool)>> {
        let mut new = self.with_ids(messages)?;
        if new.is_empty() {
            return Ok(Vec::new());
        }
        // Most retries end here: all is known, and nothing is locked or written.
        let (known, before) = self.known(&new)?;
        if new.iter().all(|new| known.get(&new.id).is_some_and(|known| known.says_the_same(new))) {
            return Ok(new.into_iter().map(|new| (known[&new.id].seq, new.id, false)).collect());
        }
        let reserved = new.len() as i64;
        let [thread_id, tenant] = self.log();
        let args = [thread_id, tenant, param(reserved)];
        let reservation = self.db.write_one(&RESERVE, &args, |row| {
            let copied_from: Option<Vec<String>> = row.get(4)?;
            Ok((row.must::<i64>(1)?, row.get(2)?, row.must::<i64>(3)?, copied_from.unwrap_or_default()))
        })?;
        let (last_seq, created_at, message_count, copied_from) =
            reservation.ok_or_else(|| Error::deleted_meanwhile(self.thread_id))?;
        if last_seq == reserved {
            threads::first_touch(self.db, self.thread_id, || {
                self.db.write_one(&COUNT, &self.log(), |row| row.must(1))
            })?;
        }
        // How many seqs were taken back by rewinds.
        let rewound = last_seq - message_count;
        // Again, under the lock: what was known may have been rewound or deleted, and what was not may have come. Where nothing
        // was known and nothing was appended since, nothing is known.
        let unchanged = before == (last_seq - reserved, created_at);
        let mut known = if known.is_empty() && unchanged { HashMap::new() } else { self.known(&new)?.0 };
        for source in &copied_from {
            self.take_ids_of(source, &mut new, &mut known)?;
        }
        let mut next_seq = last_seq - reserved + 1;
        let mut inserts: Vec<(i64, &New<'_>)> = Vec::new();
        let mut result = Vec::with_capacity(new.len());
        for new in &new {
            match known.get(&new.id) {
                None => {
                    inserts.push((next_seq, new));
                    known.insert(new.id.clone(), new.as_known(next_seq));
                    result.push((next_seq, new.id.clone(), true));
                    next_seq += 1;
                }
                Some(old) => {
                    let seq = old.seq;
                    if !old.says_the_same(new) {
                        match self.on_conflict {
                            OnConflict::Error => return Err(self.conflict(&new.id, seq)),
                            OnConflict::Keep => {}
                            OnConflict::Replace => {
                                self.insert(&std::mem::take(&mut inserts), rewound)?;
                                self.replace(seq, new)?;
                                known.insert(new.id.clone(), new.as_known(seq));
                            }
                        }
                    }
                    result.push((seq, new.id.clone(), false));
                }
            }
        }
        self.insert(&inserts, rewound)?;
        let unused = last_seq + 1 - next_seq;
        if unused > 0 {
            let [thread_id, tenant] = self.log();
            self.db.execute(&GIVE_BACK, &[thread_id, tenant, param(unused)])?;
        }
        Ok(result)
    }

    /// The ids of all messages that are to be kept. Equal ones are told apart by their occurrence.
    fn with_ids<'m>(&self, messages: Vec<(&'m str, Message)>) -> Result<Vec<New<'m>>> {
        let mut occurrences: HashMap<String, u64> = HashMap::new();
        let mut new = Vec::with_capacity(messages.len());
        for (at, (text, message)) in messages.into_iter().enumerate() {
            if message.ephemeral {
                continue;
            }
            let body = message.body(text).map_err(|error| message_error("messages", &format!("$[{at}]"), error))?;
            let (id, occurrence) = match &message.own_id {
                Some(id) => (id.clone(), None),
                None => {
                    let id =
                        |occurrence| message_id(self.thread_id, &message.role, body.as_body(), self.turn, occurrence);
                    let first = id(0);
                    let equal = occurrences.entry(first.clone()).or_insert(0);
                    let occurrence = *equal;
                    *equal += 1;
                    (if occurrence == 0 { first } else { id(occurrence) }, Some(occurrence))
                }
            };
            new.push(New { id, occurrence, text, message, body });
        }
        Ok(new)
    }

    /// In a log that was copied from another thread: messages that it had there keep the ids that they got there.
    fn take_ids_of(&self, source: &str, new: &mut [New<'_>], known: &mut HashMap<String, Known>) -> Result<()> {
        let mut places = Vec::new();
        let mut ids = Vec::new();
        for (at, new) in new.iter().enumerate().filter(|(_, new)| !known.contains_key(&new.id)) {
            if let Some(occurrence) = new.occurrence {
                places.push(at);
                ids.push(message_id(source, &new.message.role, new.body.as_body(), self.turn, occurrence));
            }
        }
        let (mut known_there, _) = self.known_ids(ids.iter().map(String::as_str))?;
        for (at, id) in places.into_iter().zip(ids) {
            if let Some(there) = known_there.remove(&id) {
                known.insert(id.clone(), there);
                new[at].id = id;
            }
        }
        Ok(())
    }

    fn log<'p>(&self) -> [pgrx::datum::DatumWithOid<'p>; 2] {
        [param(self.thread_id), param(self.db.tenant.as_str())]
    }

    /// The messages that the log has already, its last seq, and when it was begun.
    fn known(&self, new: &[New<'_>]) -> Result<(HashMap<String, Known>, LogState)> {
        self.known_ids(new.iter().map(|new| new.id.as_str()))
    }

    fn known_ids<'i>(&self, ids: impl Iterator<Item = &'i str>) -> Result<(HashMap<String, Known>, LogState)> {
        let ids: Vec<&str> = ids.collect();
        let [thread_id, tenant] = self.log();
        let mut known = HashMap::new();
        let mut log = (0, None);
        self.db.write(&KNOWN, &[thread_id, tenant, param(ids)], |row| {
            log = (row.get(4)?.unwrap_or_default(), row.get(5)?);
            if let Some(seq) = row.get(2)? {
                let text: String = row.must(3)?;
                let (role, body) = said(self.thread_id, &text)?;
                known.insert(row.must(1)?, Known { seq, role, body });
            }
            Ok(())
        })?;
        Ok((known, log))
    }

    fn insert(&self, inserts: &[(i64, &New<'_>)], rewound: i64) -> Result<()> {
        if inserts.is_empty() {
            return Ok(());
        }
        let rules = rules(self.db)?;
        let clean: Vec<Option<Clean>> = inserts.iter().map(|(_, new)| new.clean(&rules.cleaner)).collect();
        let [thread_id, tenant] = self.log();
        let args = [
            thread_id,
            tenant,
            param(self.turn),
            param(inserts.iter().map(|(seq, _)| *seq).collect::<Vec<_>>()),
            param(inserts.iter().map(|(_, new)| new.id.as_str()).collect::<Vec<_>>()),
            param(inserts.iter().map(|(_, new)| new.message.role.as_str()).collect::<Vec<_>>()),
            param(inserts.iter().map(|(_, new)| new.message.opens_exchange).collect::<Vec<_>>()),
            param(inserts.iter().map(|(_, new)| new.text).collect::<Vec<_>>()),
            param(rewound),
            param(inserts.iter().map(|(_, new)| new.tokens()).collect::<Result<Vec<_>>>()?),
            param(rules.fingerprint),
            param(clean.iter().map(|clean| clean.as_ref().map(|clean| clean.json.as_str())).collect::<Vec<_>>()),
            param(clean.iter().map(|clean| clean.as_ref().map(|clean| as_int(clean.tokens))).collect::<Vec<_>>()),
        ];
        self.db.execute(&INSERT, &args)?;
        Ok(())
    }

    fn replace(&self, seq: i64, new: &New<'_>) -> Result<()> {
        let rules = rules(self.db)?;
        let clean = new.clean(&rules.cleaner);
        let [thread_id, tenant] = self.log();
        let args = [
            thread_id,
            tenant,
            param(seq),
            param(new.message.role.as_str()),
            param(new.message.opens_exchange),
            json_param(new.text),
            param(new.tokens()?),
            param(rules.fingerprint),
            optional_json_param(clean.as_ref().map(|clean| clean.json.as_str())),
            param(clean.as_ref().map(|clean| as_int(clean.tokens))),
        ];
        self.db.execute(&REPLACE, &args)?;
        summary::forget_from(self.db, self.thread_id, seq)
    }

    fn conflict(&self, id: &str, seq: i64) -> Error {
        Error::conflict(format!("thread \"{}\" has another message with the id \"{id}\"", self.thread_id))
            .detail(format!("It is message {seq} of the log; nothing was appended."))
            .hint("Pass on_conflict => 'keep' to let the first one stand, or 'replace' to edit it in place.")
    }
}
