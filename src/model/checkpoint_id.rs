//! Checkpoint ids that the database makes: UUIDv6, as LangGraph's clients make them, so that the text order of the ids is
//! the order of time.

use uuid::{Builder, Uuid, Version};

/// 100 ns ticks between the start of the Gregorian calendar, from which UUIDv6 counts, and 1970.
const GREGORIAN_TO_UNIX_TICKS: u64 = 0x01b2_1dd2_1381_4000;
const MAX_TICKS: u64 = (1 << 60) - 1;

/// A new id that sorts after `newest`, the greatest UUIDv6 that its thread and namespace has seen (lower case), even if the
/// clock stepped back. `None` where `newest` leaves no room, which no clock reaches before the year 5236.
pub fn next_id(unix_ticks: u64, newest: Option<&str>, random: [u8; 8]) -> Option<String> {
    let now = unix_ticks.saturating_add(GREGORIAN_TO_UNIX_TICKS);
    let after = match newest.and_then(|text| Uuid::parse_str(text).ok()) {
        Some(uuid) => ticks(&uuid) + 1,
        None => 0,
    };
    let ticks = now.max(after);
    if ticks > MAX_TICKS {
        return None;
    }
    let counter = u16::from_be_bytes([random[0], random[1]]) & 0x3fff;
    let mut node = [0; 6];
    node.copy_from_slice(&random[2..]);
    // The multicast bit says that this is no hardware address.
    node[0] |= 1;
    Some(Builder::from_sorted_gregorian_timestamp(ticks, counter, &node).into_uuid().to_string())
}

/// The id in lower case if it is a UUIDv6 in the usual spelling. Upper-case digits sort before lower-case ones, so an id
/// that sorts after this text sorts after the id itself.
pub fn as_uuid6(id: &str) -> Option<String> {
    if id.len() != 36 {
        return None;
    }
    let uuid = Uuid::parse_str(id).ok()?;
    (uuid.get_version() == Some(Version::SortMac)).then(|| uuid.to_string())
}

fn ticks(uuid: &Uuid) -> u64 {
    let bits = uuid.as_u128();
    let high = (bits >> 80) as u64;
    let low = (bits >> 64) as u64 & 0x0fff;
    (high << 12) | low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout_is_rfc_9562() {
        // The example of RFC 9562, appendix A.5: 2022-02-22 14:22:22 -05:00 is 0x1EC9414C232AB00 ticks.
        let unix_ticks = 0x01EC_9414_C232_AB00 - GREGORIAN_TO_UNIX_TICKS;
        let id = next_id(unix_ticks, None, [0x33, 0xC8, 0x9F, 0x6B, 0xDE, 0xCE, 0xD8, 0x46]).unwrap();
        assert_eq!(id, "1ec9414c-232a-6b00-b3c8-9f6bdeced846");
        assert_eq!(ticks(&Uuid::parse_str(&id).unwrap()), 0x01EC_9414_C232_AB00);
    }

    #[test]
    fn only_the_usual_spelling_of_a_uuid6_counts() {
        assert_eq!(
            as_uuid6("1EC9414C-232A-6B00-B3C8-9F6BDECED846").as_deref(),
            Some("1ec9414c-232a-6b00-b3c8-9f6bdeced846")
        );
        for other in ["1ec9414c232a6b00b3c89f6bdeced846", "1ec9414c-232a-4b00-b3c8-9f6bdeced846", "z", ""] {
            assert_eq!(as_uuid6(other), None, "{other}");
        }
    }

    #[test]
    fn a_full_id_leaves_no_room() {
        assert_eq!(next_id(0, Some("ffffffff-ffff-6fff-bfff-ffffffffffff"), [0; 8]), None);
    }

    proptest! {
        #[test]
        fn a_clock_that_steps_back_does_not_go_below(clocks in prop::collection::vec(any::<u32>(), 1..20), random in any::<[u8; 8]>()) {
            let mut newest: Option<String> = None;
            for clock in clocks {
                let id = next_id(u64::from(clock), newest.as_deref(), random).unwrap();
                prop_assert!(as_uuid6(&id).is_some());
                prop_assert!(newest.as_ref().is_none_or(|newest| *newest < id));
                newest = Some(id);
            }
        }
    }
}
