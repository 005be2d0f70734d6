//! The canonical form of a JSON number: its exact decimal value.

/// `0` for every zero, otherwise `[-]digits[e<exponent>]` where the digits are the decimal coefficient without leading or
/// trailing zeros and the exponent is left out if it is 0: `1.50` → `15e-1`, `100` → `1e2`, `-0.0` → `0`.
///
/// `None` where the exponent has more than 18 digits.
pub fn canonical_number(text: &str) -> Option<String> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], parse_exponent(&unsigned[at + 1..])),
        None => (unsigned, Some(0)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    if digits.is_empty() {
        return Some("0".to_owned());
    }
    let coefficient = digits.trim_end_matches('0');
    let dropped = (digits.len() - coefficient.len()) as i64;
    let exponent = exponent? - fraction.len() as i64 + dropped;
    Some(match exponent {
        0 => format!("{sign}{coefficient}"),
        _ => format!("{sign}{coefficient}e{exponent}"),
    })
}

fn parse_exponent(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = digits.trim_start_matches('0');
    if digits.len() > 18 {
        return None;
    }
    let value: i64 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    Some(if negative { -value } else { value })
}
