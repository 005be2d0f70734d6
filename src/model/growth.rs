//! A JSON list that grows at its end without being read: from the recipe of the list and the open end of its body follow the
//! recipe, the hash and the checksum of the longer one.

use super::body_hash::{BodyTree, closed_len};
use super::manifest::Digest;
use super::recipe::{FRAME, Piece, Recipe, SHORT, push_piece, value_digest};
use std::ops::Range;

/// With more pieces a value is made anew by reading it.
const MAX_PIECES: usize = 48;

/// A list that can grow.
#[derive(Debug)]
pub struct Growing<'r> {
    recipe: &'r Recipe,
    /// Where in the body the part begins that its hash still has to be told.
    closed: u64,
}

/// The list with more elements.
#[derive(Debug)]
pub struct Grown {
    pub digest: Digest,
    pub size: u64,
    /// What goes to the end of the log.
    pub log_bytes: Vec<u8>,
    recipe: Recipe,
    tail: Vec<u8>,
}

impl<'r> Growing<'r> {
    /// `None` where the value is not a list with elements, or has come to be in too many pieces.
    pub fn of(recipe: &'r Recipe) -> Option<Growing<'r>> {
        let Some(Piece::Literal(head)) = recipe.pieces.first() else { return None };
        let Some(Piece::Literal(tail)) = recipe.pieces.last() else { return None };
        let first_element = head[1..].iter().find(|byte| !byte.is_ascii_whitespace())?;
        let is_list = recipe.head_len as usize == FRAME && head[0] == b'[' && *first_element != b']';
        let ends = recipe.tail_len == 1 && tail.last() == Some(&b']');
        let affordable = recipe.pieces.len() <= MAX_PIECES;
        let len = recipe.body().end - recipe.body().start;
        let has_tree = recipe.tree.subtrees.len() as u32 == BodyTree::size_for(len);
        let closed = if has_tree { closed_len(len) } else { 0 };
        (is_list && ends && affordable).then_some(Growing { recipe, closed })
    }

    /// The part of the value that [`Growing::append`] has to be given: the open end of the body.
    pub fn open(&self) -> Range<u64> {
        self.recipe.body().start + self.closed..self.recipe.body().end
    }

    /// The list with `elements`, a JSON text of what stands between the brackets of a list, behind its own.
    pub fn append(&self, mut open: Vec<u8>, elements: &str) -> Grown {
        let recipe = self.recipe;
        let body = recipe.body();
        open.extend_from_slice(b", ");
        open.extend_from_slice(elements.as_bytes());
        let tree = if self.closed == 0 { &BodyTree::default() } else { &recipe.tree };
        let (tree, body_hash) = tree.extend(self.closed, &open);
        let size = recipe.size + 2 + elements.len() as u64;
        let mut pieces = recipe.slice(0..body.end);
        // What is too short for the log waits in the recipe until something is appended to it; the head always does.
        let waiting = match pieces.last() {
            Some(Piece::Literal(bytes)) if pieces.len() > 1 => bytes.len(),
            _ => 0,
        };
        if waiting > 0 {
            pieces.pop();
        }
        let added = open.split_off(open.len() - waiting - 2 - elements.len());
        let mut log_bytes = added;
        if log_bytes.len() < SHORT {
            push_piece(&mut pieces, Piece::Literal(std::mem::take(&mut log_bytes)));
        }
        let head = match pieces.first() {
            Some(Piece::Literal(head)) => &head[..FRAME],
            _ => &[],
        };
        let digest = value_digest(size, head, b"]", &body_hash);
        let recipe = Recipe { size, misses: 0, body_hash, tree, pieces, ..*recipe };
        Grown { digest, size, log_bytes, recipe, tail: b"]".to_vec() }
    }
}

impl Grown {
    /// Where the log would have to go on, right behind what this takes from it, to have `log_bytes` already.
    pub fn ahead(&self) -> Option<u64> {
        match self.recipe.pieces.last() {
            Some(Piece::Extent { start, len }) if !self.log_bytes.is_empty() => Some(start + len),
            _ => None,
        }
    }

    /// The same where it does.
    pub fn found_ahead(mut self) -> Grown {
        if let Some(start) = self.ahead() {
            push_piece(&mut self.recipe.pieces, Piece::Extent { start, len: self.log_bytes.len() as u64 });
            self.log_bytes.clear();
        }
        self
    }

    /// The recipe, where `log_bytes` stand in the log from `start` on.
    pub fn recipe(&self, start: u64) -> Recipe {
        let mut recipe = self.recipe.clone();
        push_piece(&mut recipe.pieces, Piece::Extent { start, len: self.log_bytes.len() as u64 });
        push_piece(&mut recipe.pieces, Piece::Literal(self.tail.clone()));
        recipe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::delta::{Plan, Value};
    use proptest::prelude::*;

    fn read(log: &[u8], pieces: &[Piece]) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
                Piece::Extent { start, len } => out.extend_from_slice(&log[*start as usize..(start + len) as usize]),
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn a_list_grows_as_if_it_were_read(first in 80_usize..40_000, added in prop::collection::vec(1_usize..30_000, 1..8)) {
            let mut value = format!("[\"{}\"]", "a".repeat(first));
            let plan = Plan::whole(Value::new(value.as_bytes()));
            let mut log: Vec<u8> = plan.log_bytes().concat();
            let mut recipe = plan.recipe(0);
            for (round, len) in added.into_iter().enumerate() {
                let elements = format!("\"{}\"", char::from(b'b' + round as u8).to_string().repeat(len));
                value = format!("{}, {elements}]", &value[..value.len() - 1]);
                let growing = Growing::of(&recipe).expect("a list");
                let open = read(&log, &recipe.slice(growing.open()));
                let grown = growing.append(open, &elements);
                prop_assert_eq!(grown.size, value.len() as u64);
                prop_assert_eq!(grown.digest, Value::new(value.as_bytes()).digest);
                let next = grown.recipe(log.len() as u64);
                log.extend_from_slice(&grown.log_bytes);
                recipe = Recipe::decode(&next.encode()).expect("a recipe comes back");
                prop_assert_eq!(read(&log, &recipe.pieces), value.as_bytes());
                prop_assert!(recipe.pieces.len() <= 4);
                // And a client that sends the whole goes on from here.
                let (_, from) = Value::after(value.as_bytes(), &recipe);
                prop_assert_eq!(from, Some(FRAME));
            }
        }
    }

    #[test]
    fn what_is_no_list_with_elements_does_not_grow() {
        for value in [
            format!("[{}]", " ".repeat(100)),
            format!("\"{}\"", "a".repeat(100)),
            format!("{{\"a\":\"{}\"}}", "b".repeat(99)),
        ] {
            assert!(Growing::of(&Plan::whole(Value::new(value.as_bytes())).recipe(0)).is_none(), "{value}");
        }
        let spaced = format!("[\"{}\" ]", "a".repeat(100));
        assert!(Growing::of(&Plan::whole(Value::new(spaced.as_bytes())).recipe(0)).is_none());
    }
}
