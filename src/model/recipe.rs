//! The recipe of a large value: which stretches of its channel's log, and which few bytes between them, make it up.
//!
//! The bytes of a channel's values stand in a log that is only appended to. A value is a list of pieces over log offsets,
//! never over another value, so any version is read in one go, however many came before it.
//!
//! A value is seen as head, body and tail. Head and tail are the few bytes at the ends that change when a list grows (the
//! array length of msgpack, the closing bracket of JSON); they stand in the recipe. The body's hash is kept beside the value's
//! own, so that a value which goes on where its predecessor ended is recognised without reading the predecessor.
//!
//! Layout, version 1: the version byte, `varint(size) head_len tail_len misses sample[8] body_hash[32] varint(subtrees)
//! subtree[32]…`, then the pieces: `varint(2 * length) bytes`, or `varint(2 * length + 1) varint(zigzag(start - end of the extent before))`.

use super::body_hash::BodyTree;
use super::manifest::Digest;
use super::wire::{put_varint, take, take_array, take_varint};
use std::ops::Range;

const VERSION: u8 = 1;

/// The most that a head or a tail can have.
pub const FRAME: usize = 16;

/// Pieces shorter than this stand in the recipe; an extent in the log would cost more.
pub const SHORT: usize = 64;

pub const SAMPLE: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Literal(Vec<u8>),
    Extent { start: u64, len: u64 },
}

impl Piece {
    pub fn len(&self) -> u64 {
        match self {
            Piece::Literal(bytes) => bytes.len() as u64,
            Piece::Extent { len, .. } => *len,
        }
    }

    /// The stretch of the log, where it is one.
    pub fn extent(&self) -> Option<Range<u64>> {
        match self {
            Piece::Extent { start, len } => Some(*start..*start + *len),
            Piece::Literal(_) => None,
        }
    }
}

/// Appends a piece, joined with the last one where they touch.
pub fn push_piece(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), piece) {
        (_, piece) if piece.len() == 0 => {}
        (Some(Piece::Literal(last)), Piece::Literal(bytes)) => last.extend_from_slice(&bytes),
        (Some(Piece::Extent { start, len }), Piece::Extent { start: next, len: more }) if *start + *len == next => {
            *len += more;
        }
        (_, piece) => pieces.push(piece),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    pub size: u64,
    pub head_len: u8,
    pub tail_len: u8,
    /// How many values in a row, up to this one, were stored whole although there was a predecessor to compare with.
    pub misses: u8,
    /// The first bytes of the body: tells most values that do not go on from this one without hashing them.
    pub sample: [u8; SAMPLE],
    pub body_hash: Digest,
    /// For values that grow by the fold's own appends; else empty.
    pub tree: BodyTree,
    pub pieces: Vec<Piece>,
}

impl Recipe {
    /// Where the body stands within the value.
    pub fn body(&self) -> Range<u64> {
        u64::from(self.head_len)..self.size - u64::from(self.tail_len)
    }

    /// The stretches of the log, in the order of the value.
    pub fn extents(&self) -> impl Iterator<Item = Range<u64>> {
        self.pieces.iter().filter_map(Piece::extent)
    }

    /// The pieces that make up a part of the value.
    pub fn slice(&self, part: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for piece in &self.pieces {
            let from = part.start.max(at);
            let to = part.end.min(at + piece.len());
            if from < to {
                push_piece(
                    &mut pieces,
                    match piece {
                        Piece::Literal(bytes) => {
                            Piece::Literal(bytes[(from - at) as usize..(to - at) as usize].to_vec())
                        }
                        Piece::Extent { start, .. } => Piece::Extent { start: start + (from - at), len: to - from },
                    },
                );
            }
            at += piece.len();
        }
        pieces
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.size);
        out.extend([self.head_len, self.tail_len, self.misses]);
        out.extend(self.sample);
        out.extend(self.body_hash);
        put_varint(&mut out, self.tree.subtrees.len() as u64);
        out.extend(self.tree.subtrees.iter().flatten());
        let mut end = 0;
        for piece in &self.pieces {
            match piece {
                Piece::Literal(bytes) => {
                    put_varint(&mut out, 2 * bytes.len() as u64);
                    out.extend(bytes);
                }
                Piece::Extent { start, len } => {
                    put_varint(&mut out, 2 * len + 1);
                    put_varint(&mut out, zigzag(start.wrapping_sub(end) as i64));
                    end = start + len;
                }
            }
        }
        out
    }

    /// `None` where the bytes are no recipe.
    pub fn decode(bytes: &[u8]) -> Option<Recipe> {
        let mut rest = bytes;
        let [VERSION] = take_array(&mut rest)? else { return None };
        let size = take_varint(&mut rest)?;
        let [head_len, tail_len, misses] = take_array(&mut rest)?;
        let sample = take_array(&mut rest)?;
        let body_hash = take_array(&mut rest)?;
        let mut tree = BodyTree::default();
        for _ in 0..take_varint(&mut rest)? {
            tree.subtrees.push(take_array(&mut rest)?);
        }
        let mut pieces = Vec::new();
        let mut end = 0_u64;
        while !rest.is_empty() {
            let tag = take_varint(&mut rest)?;
            let len = tag / 2;
            if tag % 2 == 0 {
                pieces.push(Piece::Literal(take(&mut rest, usize::try_from(len).ok()?)?.to_vec()));
            } else {
                let start = end.wrapping_add(unzigzag(take_varint(&mut rest)?) as u64);
                pieces.push(Piece::Extent { start, len });
                end = start.checked_add(len)?;
            }
        }
        let whole = pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.len()))?;
        let sound = whole == size && u64::from(head_len) + u64::from(tail_len) <= size;
        sound.then_some(Recipe { size, head_len, tail_len, misses, sample, body_hash, tree, pieces })
    }
}

/// A set of stretches of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    ranges: Vec<Range<u64>>,
}

impl Ranges {
    pub fn extend(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        self.ranges.extend(ranges);
        // Versions of one list share most of their extents: settled now and then, the set stays small.
        if self.ranges.len() > 4096 {
            self.settle();
        }
    }

    /// Sorts the stretches and joins those that touch.
    pub fn settle(&mut self) {
        self.ranges.sort_by_key(|range| range.start);
        self.ranges.dedup_by(|next, last| {
            let joined = next.start <= last.end;
            if joined {
                last.end = last.end.max(next.end);
            }
            joined
        });
    }

    /// The parts of a stretch that are in the settled set.
    pub fn within(&self, part: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.ranges.partition_point(|range| range.end <= part.start);
        let reached = self.ranges[first..].iter().take_while(|range| range.start < part.end);
        reached.map(|range| range.start.max(part.start)..range.end.min(part.end)).collect()
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// How many bytes at the end of a value are its tail: the closing bracket of JSON with white space before it, the closing
/// opcodes of a pickle, the break of a CBOR list. msgpack and others end with their last element.
pub fn tail_len(value: &[u8]) -> usize {
    match value.last() {
        Some(b']' | b'}') => {
            let before = value[..value.len() - 1].iter().rev().take(FRAME - 1);
            1 + before.take_while(|byte| byte.is_ascii_whitespace()).count()
        }
        Some(b'.') => FRAME.min(value.len()),
        Some(0xff) => 1,
        _ => 0,
    }
}

/// The checksum of a value, and the key under which it is kept: blake3 over its size, the sizes and bytes of head and tail, and
/// the blake3 of its body.
pub fn value_digest(size: u64, head: &[u8], tail: &[u8], body_hash: &Digest) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes());
    hasher.update(&[head.len() as u8, tail.len() as u8]);
    hasher.update(head).update(tail).update(body_hash);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece() -> impl Strategy<Value = Piece> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..80).prop_map(Piece::Literal),
            (0..u64::MAX / 4, 1..1_u64 << 40).prop_map(|(start, len)| Piece::Extent { start, len }),
        ]
    }

    proptest! {
        #[test]
        fn comes_back_as_it_was(pieces in prop::collection::vec(piece(), 1..20), misses: u8, subtrees in 0..4_usize) {
            let size = pieces.iter().map(Piece::len).sum();
            let tree = BodyTree { subtrees: vec![[7; 32]; subtrees] };
            let recipe = Recipe { size, head_len: 1, tail_len: 0, misses, sample: [3; 8], body_hash: [9; 32], tree, pieces };
            prop_assert_eq!(Recipe::decode(&recipe.encode()), Some(recipe));
        }

        #[test]
        fn damaged_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Recipe::decode(&bytes);
            let _ = Recipe::decode(&[&[VERSION], bytes.as_slice()].concat());
        }
    }

    #[test]
    fn neighbours_join() {
        let mut pieces = vec![Piece::Extent { start: 0, len: 10 }];
        push_piece(&mut pieces, Piece::Extent { start: 10, len: 5 });
        push_piece(&mut pieces, Piece::Extent { start: 16, len: 1 });
        push_piece(&mut pieces, Piece::Literal(b"a".to_vec()));
        push_piece(&mut pieces, Piece::Literal(Vec::new()));
        push_piece(&mut pieces, Piece::Literal(b"b".to_vec()));
        assert_eq!(
            pieces,
            [Piece::Extent { start: 0, len: 15 }, Piece::Extent { start: 16, len: 1 }, Piece::Literal(b"ab".to_vec())]
        );
    }

    #[test]
    fn ranges_join_and_are_cut() {
        let mut ranges = Ranges::default();
        ranges.extend([10..20, 0..5, 15..30, 30..31, 40..50].into_iter());
        ranges.settle();
        assert_eq!(ranges.ranges, [0..5, 10..31, 40..50]);
        assert_eq!(ranges.within(&(3..45)), [3..5, 10..31, 40..45]);
        assert_eq!(ranges.within(&(5..10)), []);
        assert_eq!(ranges.within(&(31..40)), []);
    }

    #[test]
    fn tails() {
        assert_eq!(tail_len(b"[1, 2]"), 1);
        assert_eq!(tail_len(b"[\n  1\n]"), 2);
        assert_eq!(tail_len(b"\x92\x01\x02"), 0);
        assert_eq!(tail_len(b"\x80\x05K\x01."), 5);
        assert_eq!(tail_len(b""), 0);
    }
}
