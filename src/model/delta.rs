//! What of a new value is not in its channel's log yet.
//!
//! A value that goes on where its predecessor ended is recognised by the hash of the predecessor's body, without reading it.
//! Any other value is compared with the predecessor's bytes: stretches of at least [`MIN_COPY`] bytes that are there already
//! are taken from the log, the rest is new. Where that saves little, or would leave a value in too many pieces, it is stored
//! whole.
//!
//! The search is the block-matching of rsync (Tridgell 1999, chapter 3) with sparse blocks: some block of the predecessor lies
//! within any stretch that is long enough to be taken.

use super::body_hash::BodyTree;
use super::manifest::Digest;
use super::payload::Payload;
use super::recipe::{FRAME, Piece, Recipe, SAMPLE, SHORT, push_piece, tail_len, value_digest};
use blake3::Hasher;
use std::ops::Range;

/// The shortest stretch that is taken from the log. Shorter ones, such as the keys that all elements of a list share, would
/// tear the value to pieces.
pub const MIN_COPY: usize = 512;

const BLOCK: usize = 64;
const STRIDE: usize = MIN_COPY - BLOCK;

/// A longer value is compared with its predecessor by hash only.
const MAX_COMPARED: usize = 64 << 20;

/// By how much a list's header can grow or shrink as the list does: 1, 3 or 5 bytes in msgpack.
const SHIFTS: [isize; 5] = [0, 2, 4, -2, -4];

/// A value with its checksum.
#[derive(Debug, Clone)]
pub struct Value<'a> {
    pub bytes: &'a [u8],
    pub digest: Digest,
    body: Range<usize>,
    body_hash: Digest,
}

impl<'a> Value<'a> {
    pub fn new(bytes: &'a [u8]) -> Value<'a> {
        let body = body_of(bytes);
        let hash = *blake3::hash(&bytes[body.clone()]).as_bytes();
        Value::with_hash(bytes, body, hash)
    }

    fn with_hash(bytes: &'a [u8], body: Range<usize>, body_hash: Digest) -> Value<'a> {
        let digest = value_digest(bytes.len() as u64, &bytes[..body.start], &bytes[body.end..], &body_hash);
        Value { bytes, digest, body, body_hash }
    }

    /// The value, and where in it the body of `base` begins if the value contains that whole and goes on behind it. One pass
    /// over the bytes gives both hashes where the header did not grow.
    pub fn after(bytes: &'a [u8], base: &Recipe) -> (Value<'a>, Option<usize>) {
        let body = body_of(bytes);
        let base_len = (base.body().end - base.body().start) as usize;
        let head = usize::from(base.head_len);
        let candidate = |shift: isize| {
            let from = head.checked_add_signed(shift)?;
            let fits = base_len >= SAMPLE && from + base_len <= body.end;
            (fits && bytes[from..from + SAMPLE] == base.sample).then_some(from)
        };
        if body.start == head && candidate(0).is_some() {
            let mut hasher = Hasher::new();
            hasher.update(&bytes[head..head + base_len]);
            let goes_on = *hasher.finalize().as_bytes() == base.body_hash;
            hasher.update(&bytes[head + base_len..body.end]);
            let value = Value::with_hash(bytes, body.clone(), *hasher.finalize().as_bytes());
            if goes_on {
                return (value, Some(head));
            }
            return (value, shifted(bytes, base, base_len, &SHIFTS[1..], candidate));
        }
        let from = shifted(bytes, base, base_len, &SHIFTS, candidate);
        (Value::new(bytes), from)
    }
}

fn shifted(
    bytes: &[u8],
    base: &Recipe,
    base_len: usize,
    shifts: &[isize],
    candidate: impl Fn(isize) -> Option<usize>,
) -> Option<usize> {
    let mut places = shifts.iter().filter_map(|shift| candidate(*shift));
    places.find(|from| *blake3::hash(&bytes[*from..*from + base_len]).as_bytes() == base.body_hash)
}

/// Where head and tail leave off. A value too short for them is all body.
fn body_of(bytes: &[u8]) -> Range<usize> {
    if bytes.len() < 4 * FRAME { 0..bytes.len() } else { FRAME..bytes.len() - tail_len(bytes) }
}

#[derive(Debug, Clone)]
enum Part<'a> {
    /// In the log, or in the predecessor's recipe.
    Kept(Piece),
    New(&'a [u8]),
}

/// How a value is going to be stored: what goes to the log, and the recipe once it is known where in the log that stands.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    value: Value<'a>,
    parts: Vec<Part<'a>>,
    misses: u8,
}

impl<'a> Plan<'a> {
    /// A pending write of which a part goes to the log as `payload` says.
    pub fn payload(value: Value<'a>, payload: &Payload) -> Plan<'a> {
        let (bytes, elements) = (value.bytes, payload.elements.clone());
        let parts = vec![
            Part::New(&bytes[..elements.start]),
            Part::New(&bytes[elements.clone()]),
            Part::New(&bytes[elements.end..]),
        ];
        Plan { value, parts, misses: 0 }
    }

    /// The value as all new bytes.
    pub fn whole(value: Value<'a>) -> Plan<'a> {
        let (bytes, body) = (value.bytes, value.body.clone());
        let parts =
            vec![Part::New(&bytes[..body.start]), Part::New(&bytes[body.clone()]), Part::New(&bytes[body.end..])];
        Plan { value, parts, misses: 0 }
    }

    /// The value that has the body of `base` at `from` and goes on behind it; `None` if it would be in too many pieces.
    pub fn append(value: Value<'a>, base: &Recipe, from: usize) -> Option<Plan<'a>> {
        let bytes = value.bytes;
        let mut kept = base.slice(base.body());
        let mut end = from + (base.body().end - base.body().start) as usize;
        // What is too short for the log waits in the recipe until something is appended to it.
        if let Some(Piece::Literal(waiting)) = kept.last() {
            end -= waiting.len();
            kept.pop();
        }
        let mut parts = vec![Part::New(&bytes[..from])];
        parts.extend(kept.into_iter().map(Part::Kept));
        parts.extend([Part::New(&bytes[end..value.body.end]), Part::New(&bytes[value.body.end..])]);
        Plan { value, parts, misses: 0 }.affordable()
    }

    /// Where the log would have to go on, right behind what an appended value takes from it, and with which bytes.
    pub fn ahead(&self) -> Option<(u64, &'a [u8])> {
        match self.parts.as_slice() {
            [.., Part::Kept(Piece::Extent { start, len }), Part::New(new), Part::New(_)] if new.len() >= SHORT => {
                Some((start + len, new))
            }
            _ => None,
        }
    }

    /// The same plan where the log goes on like that already, for so many bytes.
    pub fn found_ahead(mut self, len: usize) -> Plan<'a> {
        let at = self.parts.len() - 2;
        if let (Some((start, new)), true) = (self.ahead(), len >= SHORT) {
            self.parts[at] = Part::New(&new[len..]);
            self.parts.insert(at, Part::Kept(Piece::Extent { start, len: len as u64 }));
        }
        self
    }

    /// The value with what it has in common with its predecessor, whose bytes are `base_bytes`, taken from there; `None` if that
    /// saves too little or leaves it in too many pieces.
    pub fn difference(value: Value<'a>, base: &Recipe, base_bytes: &[u8]) -> Option<Plan<'a>> {
        let bytes = value.bytes;
        let mut parts = Vec::new();
        let mut at = 0;
        for copy in common(base_bytes, bytes) {
            parts.push(Part::New(&bytes[at..copy.new]));
            let from = copy.base as u64;
            parts.extend(base.slice(from..from + copy.len as u64).into_iter().map(Part::Kept));
            at = copy.new + copy.len;
        }
        parts.push(Part::New(&bytes[at..]));
        Plan { value, parts, misses: 0 }.affordable()
    }

    /// Whether a predecessor is worth reading for [`Plan::difference`]: not each time, where it has never helped.
    pub fn worth_comparing(base: &Recipe, value: &Value<'_>) -> bool {
        let size = value.bytes.len().max(base.size as usize);
        (base.misses < 2 || base.misses == 16) && (MIN_COPY..=MAX_COMPARED).contains(&size)
    }

    /// The same, stored whole although there was a predecessor: counted, so that comparing is tried ever less often.
    pub fn missed(mut self, base: &Recipe) -> Plan<'a> {
        self.misses = if base.misses < 31 { base.misses + 1 } else { 16 };
        self
    }

    /// Reading a value takes a bounded number of pieces of the log, wherever they stand: those of a branch stand far apart.
    fn affordable(self) -> Option<Plan<'a>> {
        let size = self.value.bytes.len() as u64;
        let new: u64 = self.new_parts().map(|part| part.len() as u64).sum();
        let few = self.parts.len() as u64 <= 64.max(size / 2048);
        (few && new <= size - size / 8).then_some(self)
    }

    fn new_parts(&self) -> impl Iterator<Item = &'a [u8]> {
        self.parts.iter().filter_map(|part| match part {
            Part::New(bytes) if bytes.len() >= SHORT => Some(*bytes),
            _ => None,
        })
    }

    /// What goes to the end of the log, in this order.
    pub fn log_bytes(&self) -> Vec<&'a [u8]> {
        self.new_parts().collect()
    }

    pub fn digest(&self) -> Digest {
        self.value.digest
    }

    /// The recipe, where `log_bytes` stand in the log from `start` on.
    pub fn recipe(&self, start: u64) -> Recipe {
        let Value { bytes, body, body_hash, .. } = &self.value;
        let mut pieces = Vec::new();
        let mut end = start;
        for part in &self.parts {
            push_piece(
                &mut pieces,
                match part {
                    Part::Kept(piece) => piece.clone(),
                    Part::New(new) if new.len() < SHORT => Piece::Literal(new.to_vec()),
                    Part::New(new) => {
                        end += new.len() as u64;
                        Piece::Extent { start: end - new.len() as u64, len: new.len() as u64 }
                    }
                },
            );
        }
        let mut sample = [0; SAMPLE];
        if body.len() >= SAMPLE {
            sample.copy_from_slice(&bytes[body.start..body.start + SAMPLE]);
        }
        Recipe {
            size: bytes.len() as u64,
            head_len: body.start as u8,
            tail_len: (bytes.len() - body.end) as u8,
            misses: self.misses,
            sample,
            body_hash: *body_hash,
            tree: BodyTree::default(),
            pieces,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copy {
    base: usize,
    new: usize,
    len: usize,
}

/// The stretches of `new` that `base` has too, in the order of `new`.
fn common(base: &[u8], new: &[u8]) -> Vec<Copy> {
    let long_enough = |len: usize| if len >= MIN_COPY { len } else { 0 };
    let prefix = long_enough(common_prefix(base, new));
    let suffix = long_enough(common_suffix(&base[prefix..], &new[prefix..]));
    let mut copies = Vec::new();
    if prefix > 0 {
        copies.push(Copy { base: 0, new: 0, len: prefix });
    }
    search(base, new, prefix..new.len() - suffix, &mut copies);
    if suffix > 0 {
        copies.push(Copy { base: base.len() - suffix, new: new.len() - suffix, len: suffix });
    }
    copies
}

/// Finds stretches of `base` within `part` of `new`.
fn search(base: &[u8], new: &[u8], part: Range<usize>, copies: &mut Vec<Copy>) {
    if part.len() < MIN_COPY || base.len() < MIN_COPY {
        return;
    }
    let blocks = Blocks::of(base);
    let mut done = part.start;
    let mut at = part.start;
    let mut hash = block_hash(&new[at..at + BLOCK]);
    loop {
        let mut step = 1;
        if let Some(found) = blocks.find(base, hash, &new[at..at + BLOCK]) {
            let back = common_suffix(&base[..found], &new[done..at]);
            let len = back + common_prefix(&base[found..], &new[at..part.end]);
            if len >= MIN_COPY {
                copies.push(Copy { base: found - back, new: at - back, len });
                done = at - back + len;
                step = done - at;
            } else {
                // Nothing long enough begins in the stretch that was just compared.
                step = (len - back).saturating_sub(BLOCK).max(1);
            }
        }
        if at + step + BLOCK > part.end {
            return;
        }
        hash = match step {
            1 => roll(hash, new[at], new[at + BLOCK]),
            _ => block_hash(&new[at + step..at + step + BLOCK]),
        };
        at += step;
    }
}

/// Blocks of the predecessor by their hash. Of equal ones the first is kept.
struct Blocks {
    /// Position + 1 in the predecessor, 0 for none.
    slots: Vec<u32>,
}

impl Blocks {
    fn of(base: &[u8]) -> Blocks {
        let count = base.len() / STRIDE + 1;
        let mut blocks = Blocks { slots: vec![0; (4 * count).next_power_of_two()] };
        for at in (0..=base.len() - BLOCK).step_by(STRIDE) {
            let slot = blocks.slot(block_hash(&base[at..at + BLOCK]));
            if blocks.slots[slot] == 0 {
                blocks.slots[slot] = at as u32 + 1;
            }
        }
        blocks
    }

    fn slot(&self, hash: u64) -> usize {
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    fn find(&self, base: &[u8], hash: u64, block: &[u8]) -> Option<usize> {
        let at = self.slots[self.slot(hash)].checked_sub(1)? as usize;
        (base[at..at + BLOCK] == *block).then_some(at)
    }
}

/// The factor of the polynomial rolling hash, and its power for the byte that leaves the window.
const FACTOR: u64 = 0x0100_0000_01b3;
const LEAVING: u64 = {
    let mut power = 1_u64;
    let mut i = 0;
    while i < BLOCK {
        power = power.wrapping_mul(FACTOR);
        i += 1;
    }
    power
};

fn block_hash(block: &[u8]) -> u64 {
    block.iter().fold(0, |hash, byte| hash_byte(hash, *byte))
}

fn hash_byte(hash: u64, byte: u8) -> u64 {
    hash.wrapping_mul(FACTOR).wrapping_add(u64::from(byte) + 1)
}

fn roll(hash: u64, leaving: u8, entering: u8) -> u64 {
    hash_byte(hash, entering).wrapping_sub((u64::from(leaving) + 1).wrapping_mul(LEAVING))
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const WIDE: usize = 32;
    let wide = a.chunks_exact(WIDE).zip(b.chunks_exact(WIDE)).take_while(|(a, b)| a == b).count() * WIDE;
    wide + a[wide..].iter().zip(&b[wide..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    const WIDE: usize = 32;
    let wide = a.rchunks_exact(WIDE).zip(b.rchunks_exact(WIDE)).take_while(|(a, b)| a == b).count() * WIDE;
    let (a, b) = (&a[..a.len() - wide], &b[..b.len() - wide]);
    wide + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;
