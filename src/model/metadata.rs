//! The part of a checkpoint's metadata that can be filtered on: what `jsonb` can hold. The metadata itself is kept as given.

use crate::json::{EventKind, Member, Walker, unquote};

/// Deeper values reach the limit of the stack (`max_stack_depth`) somewhere; at the default of 2 MB not before this.
const MAX_DEPTH: usize = 5_000;
/// Of `numeric`, in which `jsonb` keeps numbers.
const MAX_WHOLE_DIGITS: i64 = 131_072;
const MAX_FRACTION_DIGITS: i64 = 16_383;
const MAX_EXPONENT: i64 = i32::MAX as i64 / 2;
/// The strings of one `jsonb` array or object together may have 256 MB.
const MAX_BYTES: usize = 200 * 1024 * 1024;

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
    let unsigned = text.trim_start_matches('-');
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let Some(exponent) = exponent.parse::<i64>().ok().filter(|exponent| exponent.abs() < MAX_EXPONENT) else {
        return false;
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let leading_zeros = whole.bytes().chain(fraction.bytes()).take_while(|digit| *digit == b'0').count();
    let is_zero = leading_zeros == whole.len() + fraction.len();
    let whole_digits = (whole.len() as i64 - leading_zeros as i64) + exponent;
    let fraction_digits = fraction.len() as i64 - exponent;
    fraction_digits <= MAX_FRACTION_DIGITS && (is_zero || whole_digits <= MAX_WHOLE_DIGITS)
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
        let deep = format!("{}{}", "[".repeat(5_001), "]".repeat(5_001));
        let text = format!(
            r#"{{"a":1,"nul":"x\u0000","nested":{{"b":["\u0000"]}},"\u0000":1,"big":1e131072,"small":1e-16384,"deep":{deep},"z":{{"k":"\\u0000"}}}}"#
        );
        assert_eq!(filterable_of(&text).as_deref(), Some(r#"{"a": 1, "z": {"k":"\\u0000"}}"#));
    }

    #[test]
    fn numbers_fit_as_far_as_numeric_goes() {
        for (text, fits) in [
            ("1e131071", true),
            ("1e131072", false),
            ("-0.001e131074", true),
            ("0.001e131075", false),
            ("0e131072", true),
            ("1e-16383", true),
            ("1e-16384", false),
            ("1.5e-16383", false),
            ("1e1073741823", false),
            ("0e99999999999999999999", false),
            ("1180591620717411303424", true),
        ] {
            assert_eq!(number_fits(text), fits, "{text}");
        }
    }

    #[test]
    fn nothing_to_filter_on_is_none() {
        assert_eq!(filterable_of("{}"), None);
        assert_eq!(filterable_of(r#"{"a":"\u0000"}"#), None);
    }
}
