//! What the window says itself: the marker before the final turn, and the extract of what stands before the window.

/// The text of the marker that stands before the final turn, for an exchange that began with `opening`.
pub fn marker(opening: &str) -> String {
    let quoted = quoted(opening, 200);
    format!("[The exchange above began with: {quoted}. In the next message, \"it\" and \"that\" refer to it.]")
}

/// How many openings an extract quotes.
pub const MOST_OPENINGS: usize = 6;

/// What stands in the place of `count` messages that nobody has summarised: how many they are, and what the user asked in them last.
/// `openings` are in order. As long as the conversation is, this is short.
pub fn extract(count: u64, openings: &[String]) -> String {
    let messages = if count == 1 { "message is" } else { "messages are" };
    let mut text = format!("[{count} earlier {messages} not shown.");
    if !openings.is_empty() {
        text.push_str(" In them the user said, the latest last:");
        for opening in openings {
            text.push_str("\n- ");
            text.push_str(&quoted(opening, 100));
        }
    }
    text.push(']');
    text
}

/// The beginning of a text, on one line. Of a long text no more is read.
fn quoted(text: &str, most: usize) -> String {
    let words = text.split_whitespace().enumerate();
    let mut chars = words.flat_map(|(at, word)| (at > 0).then_some(' ').into_iter().chain(word.chars()));
    let mut line: String = chars.by_ref().take(most).collect();
    if chars.next().is_some() {
        line.push('…');
    }
    format!("\"{line}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_quotes_the_opening_on_one_line() {
        let text = marker(" Who\nwrote  it? ");
        assert!(text.contains("\"Who wrote it?\""), "{text}");
        let long = marker(&"é".repeat(500));
        assert!(long.contains(&format!("\"{}…\"", "é".repeat(200))), "{long}");
        let words = marker(&format!("{} more", "é".repeat(200)));
        assert!(words.contains(&format!("\"{}…\"", "é".repeat(200))), "{words}");
        assert!(marker(&"é".repeat(200)).contains(&format!("\"{}\"", "é".repeat(200))));
    }

    #[test]
    fn the_extract_says_how_much_it_stands_for_and_what_was_asked() {
        let openings = ["Where to?".to_owned(), "And\nthen?".to_owned()];
        assert_eq!(
            extract(12, &openings),
            "[12 earlier messages are not shown. In them the user said, the latest last:\n- \"Where to?\"\n- \"And then?\"]"
        );
        assert_eq!(extract(1, &[]), "[1 earlier message is not shown.]");
        let long: Vec<String> = (0..MOST_OPENINGS).map(|_| "x ".repeat(10_000)).collect();
        assert!(extract(u64::MAX, &long).len() < 1_500);
    }
}
