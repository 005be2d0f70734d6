//! Deterministic ids: blake3 over a framing in which no two different inputs look alike.
//!
//! A message id is the first 20 bytes, as 40 lower-case hex digits, of the blake3 hash of
//!
//! ```text
//! "checkpointer/msg_id/1"            the version tag, ASCII
//! part(thread_id)
//! part(role)
//! "t" | "j"                          one byte: the body is text, or canonical JSON
//! part(body)
//! part(turn)
//! u64le(occurrence)
//!
//! part(x) = u64le(number of bytes of x) ∥ x
//! ```
//!
//! `docs/msg_id.md` publishes this with test vectors; a change of it is a new tag, never an edit.

const MESSAGE_TAG: &[u8] = b"checkpointer/msg_id/1";
const FOLDED_TAG: &[u8] = b"checkpointer/folded_id/1";
const ID_BYTES: usize = 20;

/// The part of a message that its id speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    Text(&'a str),
    /// JSON in canonical form.
    Canonical(&'a str),
}

pub fn message_id(thread_id: &str, role: &str, body: Body<'_>, turn: &str, occurrence: u64) -> String {
    let (kind, body) = match body {
        Body::Text(text) => (b"t", text),
        Body::Canonical(json) => (b"j", json),
    };
    let mut hash = blake3::Hasher::new();
    hash.update(MESSAGE_TAG);
    part(&mut hash, thread_id);
    part(&mut hash, role);
    hash.update(kind);
    part(&mut hash, body);
    part(&mut hash, turn);
    hash.update(&occurrence.to_le_bytes());
    finish(&hash)
}

/// The id of a message without one that a fold adds to a channel: over the base checkpoint, the task, the write's idx and
/// the message's place in the written list, so that a fold done twice gives the same message.
pub fn folded_message_id(checkpoint_id: &str, task_id: &str, idx: i32, place: u64) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(FOLDED_TAG);
    part(&mut hash, checkpoint_id);
    part(&mut hash, task_id);
    hash.update(&i64::from(idx).to_le_bytes());
    hash.update(&place.to_le_bytes());
    finish(&hash)
}

fn part(hash: &mut blake3::Hasher, text: &str) {
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

fn finish(hash: &blake3::Hasher) -> String {
    let mut bytes = [0; ID_BYTES];
    hash.finalize_xof().fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_boundary_can_be_moved() {
        let ids: HashSet<String> = [
            ("ab", "c", Body::Text("d"), ""),
            ("a", "bc", Body::Text("d"), ""),
            ("a", "b", Body::Text("cd"), ""),
            ("a", "b", Body::Text("c"), "d"),
            ("a", "b", Body::Canonical("cd"), ""),
            ("a", "b", Body::Text(""), "cd"),
        ]
        .into_iter()
        .flat_map(|(thread, role, body, turn)| [0, 1].map(|n| message_id(thread, role, body, turn, n)))
        .collect();
        assert_eq!(ids.len(), 12);
    }
}
