//! The part of a checkpoint's metadata that can be filtered on: what `jsonb` can hold. The metadata itself is kept as given.

use crate::json::{EventKind, Member, Walker, unquote};

/// Bounds within those of `jsonb` and `numeric`, with room to spare.
const MAX_DEPTH: usize = 500;
const MAX_NUMBER_LENGTH: usize = 1_000;
const MAX_EXPONENT: i64 = 10_000;
const MAX_BYTES: usize = 100 * 1024 * 1024;

/// The members that `jsonb` can hold, as the text of one object; `None` where there are none.
pub fn filterable(members: &[Member<'_>]) -> Option<String> {
    let mut room = MAX_BYTES;
    let mut parts = Vec::new();
    for member in members {
        let fits = room.checked_sub(member.raw_key.len() + member.value.len());
        if let (Some(left), false, true) = (fits, member.key.contains('\0'), jsonb_can_hold(member.value)) {
            room = left;
            parts.push(format!("{}: {}", member.raw_key, member.value));
        }
    }
    (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(", ")))
}

fn jsonb_can_hold(value: &str) -> bool {
    let mut walker = Walker::new(value);
    loop {
        let event = match walker.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let text = &value[event.start..event.end];
        let fits = match event.kind {
            EventKind::Key | EventKind::String => unquote(text).is_ok_and(|text| !text.contains('\0')),
            EventKind::Number => number_fits(text),
            _ => walker.depth() <= MAX_DEPTH,
        };
        if !fits {
            return false;
        }
    }
}

fn number_fits(text: &str) -> bool {
    let exponent = text.split_once(['e', 'E']).map_or(Ok(0), |(_, exponent)| exponent.parse::<i64>());
    text.len() <= MAX_NUMBER_LENGTH && exponent.is_ok_and(|exponent| exponent.abs() <= MAX_EXPONENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Shallow, shallow};

    fn filterable_of(text: &str) -> Option<String> {
        match shallow(text).unwrap() {
            Shallow::Object(members) => filterable(&members),
            _ => None,
        }
    }

    #[test]
    fn what_jsonb_cannot_hold_is_left_out_and_nothing_else() {
        let deep = format!("{}{}", "[".repeat(501), "]".repeat(501));
        let text = format!(
            r#"{{"a":1,"nul":"x\u0000","nested":{{"b":["\u0000"]}},"\u0000":1,"big":1e99999,"deep":{deep},"z":{{"k":"\\u0000"}}}}"#
        );
        assert_eq!(filterable_of(&text).as_deref(), Some(r#"{"a": 1, "z": {"k":"\\u0000"}}"#));
    }

    #[test]
    fn nothing_to_filter_on_is_none() {
        assert_eq!(filterable_of("{}"), None);
        assert_eq!(filterable_of(r#"{"a":"\u0000"}"#), None);
    }
}
