//! Segments of a log, packed by zstd where that pays.
//!
//! Measured on prose: zstd makes 20 kB 2.2 times smaller where lz4 makes them 1.5 times smaller, and takes 1.5 times as long; it needs
//! 8 µs to unpack 1.7 kB, lz4 one. So what arrives in small pieces, of which a value has hundreds, is left to the table's lz4.

use std::borrow::Cow;
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Shorter segments are not packed.
const LEAST: usize = 8 << 10;

/// The fastest: level 3 saves 4 % more, for 1.7 times the time.
const LEVEL: i32 = 1;

/// Of a segment that is longer than [`LONG`] so much is packed first, to see whether the rest is worth it: encrypted values are not.
const SAMPLE: usize = 4 << 10;
const LONG: usize = 64 << 10;

/// The segment as it is stored: shorter than it is, or as it is.
pub fn pack(segment: &[u8]) -> Cow<'_, [u8]> {
    if segment.len() < LEAST {
        return Cow::Borrowed(segment);
    }
    let middle = (segment.len() - SAMPLE) / 2;
    if segment.len() > LONG && compress(&segment[middle..middle + SAMPLE]).is_none() {
        return Cow::Borrowed(segment);
    }
    compress(segment).map_or(Cow::Borrowed(segment), Cow::Owned)
}

/// The segment of `len` bytes that is stored so; `None` where that is damaged.
pub fn unpack(stored: &[u8], len: usize) -> Option<Cow<'_, [u8]>> {
    if stored.len() == len {
        return Some(Cow::Borrowed(stored));
    }
    let segment = UNPACKER.with_borrow_mut(|unpacker| unpacker.as_mut()?.decompress(stored, len).ok())?;
    (segment.len() == len).then_some(Cow::Owned(segment))
}

/// `None` where it saves less than an eighth.
fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let packed = PACKER.with_borrow_mut(|packer| packer.as_mut()?.compress(bytes).ok())?;
    (packed.len() < bytes.len() - bytes.len() / 8).then_some(packed)
}

thread_local! {
    /// Made at the first use and kept: their memory costs more to get than most segments take to pack. None where there is no
    /// memory for them; nothing is packed then.
    static PACKER: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(LEVEL).ok());
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = RefCell::new(Decompressor::new().ok());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that nothing can make smaller.
    fn noise(len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        blake3::Hasher::new().update(&len.to_le_bytes()).finalize_xof().fill(&mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn what_was_packed_comes_back(words in prop::collection::vec("[a-z ]{1,40}", 0..900), noise_len in 0_usize..20_000) {
            let mut segment = words.concat().into_bytes();
            segment.extend(noise(noise_len));
            let stored = pack(&segment).into_owned();
            prop_assert!(stored.len() <= segment.len());
            let unpacked = unpack(&stored, segment.len()).map(Cow::into_owned);
            prop_assert_eq!(unpacked, Some(segment));
        }
    }

    #[test]
    fn only_what_gets_smaller_is_packed() {
        assert!(pack(&vec![b'a'; LEAST]).len() < 100);
        assert_eq!(pack(&vec![b'a'; LEAST - 1]).len(), LEAST - 1);
        assert_eq!(pack(&noise(100_000)).len(), 100_000);
    }

    #[test]
    fn what_is_damaged_is_no_segment() {
        let segment = b"the agent and its memory, ".repeat(1_000);
        let stored = pack(&segment).into_owned();
        assert_eq!(unpack(&stored, segment.len() + 1), None);
        assert_eq!(unpack(&stored, segment.len() - 1), None);
        assert_eq!(unpack(&stored[..stored.len() - 1], segment.len()), None);
        assert_eq!(unpack(&noise(500), segment.len()), None);
        assert_eq!(unpack(b"", segment.len()), None);
    }
}
