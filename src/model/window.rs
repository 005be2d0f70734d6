//! Which messages a model reads: whole exchanges, newest first, as many as fit.
//!
//! An exchange is a message that opens one and all that follows up to the next opening message. Within it, a message that
//! makes tool calls and the messages that answer them are one group: a window never shows half of it. Calls that were never
//! answered (a cancelled run) and answers without a call are left out, because no model provider takes them.

use std::collections::HashMap;

/// What the selection needs to know of a message; `item` is the caller's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    pub item: T,
    pub calls: Vec<String>,
    pub answers: Vec<String>,
}

/// An exchange as far as it is shown, in its groups.
pub type Groups<T> = Vec<Vec<T>>;

/// Gathers exchanges from the newest to the oldest until one does not fit.
pub struct Selection<T> {
    size: usize,
    taken: usize,
    /// Newest first.
    exchanges: Vec<Groups<T>>,
    full: bool,
}

impl<T> Selection<T> {
    pub fn new(size: usize) -> Self {
        Selection { size, taken: 0, exchanges: Vec::new(), full: size == 0 }
    }

    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether an exchange of which `length` messages are known already can no longer fit whole.
    pub fn cannot_hold(&self, length: usize) -> bool {
        self.taken + length > self.size
    }

    /// Offers the next older exchange, in its own order. Of one that is not `whole`, the opening message and the newest ones are
    /// given, which is all that can be shown of it.
    pub fn offer(&mut self, exchange: Vec<Entry<T>>, whole: bool) {
        if self.full {
            return;
        }
        let groups = complete_groups(exchange);
        let length: usize = groups.iter().map(Vec::len).sum();
        if length == 0 {
            return;
        }
        if whole && !self.cannot_hold(length) {
            self.taken += length;
            self.exchanges.push(groups);
            self.full = self.taken == self.size;
        } else {
            if self.exchanges.is_empty() {
                self.exchanges.push(cut(groups, self.size as u64, |_| 1));
            }
            self.full = true;
        }
    }

    /// The exchanges taken, in the order of the log.
    pub fn into_exchanges(self) -> Vec<Groups<T>> {
        self.exchanges.into_iter().rev().collect()
    }
}

/// Of exchanges in the order of the log the newest that weigh no more than `room` together; the newest is cut where it is too heavy
/// by itself.
pub fn newest_within<T>(exchanges: Vec<Groups<T>>, room: u64, weight: impl Fn(&T) -> u64) -> Vec<Groups<T>> {
    let mut kept: Vec<Groups<T>> = Vec::new();
    let mut left = room;
    for exchange in exchanges.into_iter().rev() {
        let heavy: u64 = exchange.iter().flatten().map(&weight).sum();
        if heavy <= left {
            left -= heavy;
            kept.push(exchange);
        } else {
            if kept.is_empty() {
                kept.push(cut(exchange, room, weight));
            }
            break;
        }
    }
    kept.reverse();
    kept
}

/// The opening group of an exchange and as many of its newest groups as fit beside it.
fn cut<T>(groups: Groups<T>, room: u64, weight: impl Fn(&T) -> u64) -> Groups<T> {
    let weight_of = |group: &Vec<T>| group.iter().map(&weight).sum::<u64>();
    let mut groups = groups.into_iter();
    let Some(opening) = groups.next().filter(|opening| weight_of(opening) <= room) else {
        return Vec::new();
    };
    let mut left = room - weight_of(&opening);
    let mut kept = vec![opening];
    let mut newest: Groups<T> = Vec::new();
    for group in groups.rev() {
        match left.checked_sub(weight_of(&group)) {
            Some(rest) => left = rest,
            None => break,
        }
        newest.push(group);
    }
    kept.extend(newest.into_iter().rev());
    kept
}

/// Splits an exchange into groups, without the calls that lack an answer and the answers that lack a call.
fn complete_groups<T>(exchange: Vec<Entry<T>>) -> Groups<T> {
    let mut groups: Groups<T> = Vec::new();
    let mut open: Vec<T> = Vec::new();
    let mut awaited: HashMap<String, usize> = HashMap::new();
    for entry in exchange {
        if !entry.answers.is_empty() {
            if !open.is_empty() && answer(&mut awaited, &entry.answers) {
                open.push(entry.item);
                if awaited.is_empty() {
                    groups.push(std::mem::take(&mut open));
                }
            }
            continue;
        }
        open.clear();
        if entry.calls.is_empty() {
            groups.push(vec![entry.item]);
        } else {
            open.push(entry.item);
            awaited.clear();
            for id in entry.calls {
                *awaited.entry(id).or_default() += 1;
            }
        }
    }
    groups
}

/// Crosses off the answered calls; false, and nothing crossed off, where one of them was not awaited.
fn answer(awaited: &mut HashMap<String, usize>, answers: &[String]) -> bool {
    for (at, id) in answers.iter().enumerate() {
        match awaited.get_mut(id) {
            Some(1) => drop(awaited.remove(id)),
            Some(times) => *times -= 1,
            None => {
                for id in &answers[..at] {
                    *awaited.entry(id.clone()).or_default() += 1;
                }
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
