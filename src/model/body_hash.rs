//! The blake3 hash of bytes that grow at their end, for the price of what is added.
//!
//! blake3 is a tree over chunks of 1,024 bytes. Of the part that cannot change any more only the chaining values of the
//! complete subtrees are kept, one for each bit that is set in the number of [`GROUP`]s; from them and the last, open group the
//! hash of any longer content follows (the "lazy merging" of the blake3 paper, section 5.1.2).

use super::manifest::Digest;
use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes per leaf of the kept tree: a larger one makes the tree smaller and the open part, which has to be read again, longer.
pub const GROUP: usize = 16 * 1024;

/// The chaining values of the complete groups of some content, but for its last group, which stays open even when it is full.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BodyTree {
    /// From the largest subtree, at the beginning of the content, to the smallest.
    pub subtrees: Vec<[u8; 32]>,
}

/// How many bytes of content of this length belong to complete groups.
pub fn closed_len(len: u64) -> u64 {
    len.saturating_sub(1) / GROUP as u64 * GROUP as u64
}

impl BodyTree {
    /// How many subtrees the tree of content of this length has.
    pub fn size_for(len: u64) -> u32 {
        (closed_len(len) / GROUP as u64).count_ones()
    }

    /// Appends to content whose closed part has `closed` bytes and whose open part is the beginning of `open`: gives the tree
    /// of the longer content, and its blake3 hash.
    pub fn extend(&self, closed: u64, open: &[u8]) -> (BodyTree, Digest) {
        let mut subtrees = self.subtrees.clone();
        let mut groups = closed / GROUP as u64;
        let mut rest = open;
        while rest.len() > GROUP {
            let (group, after) = rest.split_at(GROUP);
            let mut subtree = non_root(groups * GROUP as u64, group);
            groups += 1;
            // As in binary counting: each trailing zero is a carry, which merges two subtrees of one size.
            for _ in 0..groups.trailing_zeros() {
                if let Some(left) = subtrees.pop() {
                    subtree = merge_subtrees_non_root(&left, &subtree, Mode::Hash);
                }
            }
            subtrees.push(subtree);
            rest = after;
        }
        let tree = BodyTree { subtrees };
        let hash = tree.root(groups * GROUP as u64, rest);
        (tree, hash)
    }

    fn root(&self, offset: u64, last: &[u8]) -> Digest {
        let Some((largest, smaller)) = self.subtrees.split_first() else {
            return *blake3::hash(last).as_bytes();
        };
        let mut right = non_root(offset, last);
        for left in smaller.iter().rev() {
            right = merge_subtrees_non_root(left, &right, Mode::Hash);
        }
        *merge_subtrees_root(largest, &right, Mode::Hash).as_bytes()
    }
}

fn non_root(offset: u64, bytes: &[u8]) -> [u8; 32] {
    Hasher::new().set_input_offset(offset).update(bytes).finalize_non_root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn growing_content_has_the_hash_of_the_whole(steps in prop::collection::vec(1_usize..3 * GROUP, 1..12)) {
            let whole = content(steps.iter().sum());
            let (mut tree, mut len) = (BodyTree::default(), 0);
            for step in steps {
                let closed = closed_len(len as u64);
                let (longer, hash) = tree.extend(closed, &whole[closed as usize..len + step]);
                (tree, len) = (longer, len + step);
                prop_assert_eq!(hash, *blake3::hash(&whole[..len]).as_bytes());
                prop_assert_eq!(tree.subtrees.len() as u32, BodyTree::size_for(len as u64));
            }
        }
    }

    #[test]
    fn group_boundaries() {
        for len in [0, 1, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP, 4 * GROUP, 4 * GROUP + 1] {
            let whole = content(len);
            assert_eq!(BodyTree::default().extend(0, &whole).1, *blake3::hash(&whole).as_bytes(), "{len} bytes");
        }
    }
}
