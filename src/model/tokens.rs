//! How many tokens a model reads. The byte-pair encodings and their vocabularies are those of OpenAI's models, from the crate
//! `bpe-openai`, whose count takes time linear in the text whatever that is.

use crate::json::{JsonError, Shallow, shallow, unquote};
use bpe_openai::Tokenizer;
use std::borrow::Cow;
use std::cell::RefCell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    O200kBase,
    Cl100kBase,
}

impl Encoding {
    pub const ALL: [(&'static str, Encoding); 2] =
        [("o200k_base", Encoding::O200kBase), ("cl100k_base", Encoding::Cl100kBase)];

    pub fn by_name(name: &str) -> Option<Encoding> {
        Encoding::ALL.iter().find(|(known, _)| *known == name).map(|(_, encoding)| *encoding)
    }

    /// How many tokens the text is. Names of special tokens are text.
    pub fn count(self, text: &str) -> usize {
        let tokenizer = self.tokenizer();
        let count = |piece: &str| tokenizer.bpe.count(piece.as_bytes());
        let words = match self {
            Encoding::O200kBase => &O200K_WORDS,
            Encoding::Cl100kBase => &CL100K_WORDS,
        };
        // A text's tokens are those of its pieces, most of them words.
        words.with_borrow_mut(|words| {
            let mut rest = text;
            let mut tokens = 0;
            while let Some(piece) = plain_word(rest).or_else(|| tokenizer.split(rest).next()) {
                tokens += words.count_of(piece, count);
                rest = &rest[piece.len()..];
            }
            tokens
        })
    }

    pub fn warm_up(self) {
        self.tokenizer();
    }

    /// The vocabulary is unpacked at the first use in a process.
    fn tokenizer(self) -> &'static Tokenizer {
        match self {
            Encoding::O200kBase => bpe_openai::o200k_base(),
            Encoding::Cl100kBase => bpe_openai::cl100k_base(),
        }
    }
}

/// The piece that a text begins with, where that is plain to see: a word in small ASCII letters, with the space before it. Both
/// encodings cut there unless a letter, a mark or an apostrophe follows. Their regular expressions say the same more slowly.
fn plain_word(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let start = usize::from(bytes.first() == Some(&b' '));
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let end = start + length;
    let ends = bytes.get(end).is_none_or(|next| next.is_ascii() && !next.is_ascii_alphabetic() && *next != b'\'');
    (length > 0 && ends).then(|| &text[..end])
}

/// How many tokens the words have that were counted last. Texts repeat their words, and to look one up in the vocabulary, which
/// is larger than a processor's caches, takes ten times as long.
struct KnownWords {
    /// A word and its count, in the place that the word has by its bytes; [`NO_WORD`] in an empty one.
    places: Vec<(u128, u8)>,
}

const NO_WORD: u128 = 0;
const PLACES_BITS: u32 = 11;
const LONGEST_WORD: usize = 15;

impl KnownWords {
    const fn new() -> KnownWords {
        KnownWords { places: Vec::new() }
    }

    fn count_of(&mut self, piece: &str, count: impl FnOnce(&str) -> usize) -> usize {
        let bytes = piece.as_bytes();
        if bytes.len() > LONGEST_WORD {
            return count(piece);
        }
        let mut word = [0; LONGEST_WORD + 1];
        word[..bytes.len()].copy_from_slice(bytes);
        // Tells a word from one with U+0000 behind it, and from none.
        word[LONGEST_WORD] = bytes.len() as u8 + 1;
        let word = u128::from_le_bytes(word);
        if self.places.is_empty() {
            self.places = vec![(NO_WORD, 0); 1 << PLACES_BITS];
        }
        let mixed = ((word as u64) ^ ((word >> 64) as u64).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &mut self.places[(mixed >> (u64::BITS - PLACES_BITS)) as usize];
        if place.0 != word {
            // It has at most as many tokens as bytes.
            *place = (word, count(piece) as u8);
        }
        usize::from(place.1)
    }
}

thread_local! {
    static O200K_WORDS: RefCell<KnownWords> = const { RefCell::new(KnownWords::new()) };
    static CL100K_WORDS: RefCell<KnownWords> = const { RefCell::new(KnownWords::new()) };
}

/// The encoding in which messages of the log are counted.
pub const OF_THE_LOG: Encoding = Encoding::O200kBase;

/// How many tokens of a message a model reads: those of its texts, of the names and arguments of its tool calls and of the results
/// in it, each counted by itself. The base64 of an image or a file is no text.
pub fn of_message(json: &str) -> Result<usize, JsonError> {
    Ok(read_by_model(json)?.iter().map(|text| OF_THE_LOG.count(text)).sum())
}

fn read_by_model(json: &str) -> Result<Vec<Cow<'_, str>>, JsonError> {
    let top = shallow(json)?;
    let mut texts = Vec::new();
    if let Some(content) = top.member("content") {
        read_content(content, &mut texts);
    }
    let listed = objects(top.member("tool_calls"));
    for call in &listed {
        // OpenAI nests name and arguments, LangChain does not.
        match call.member("function").and_then(|function| shallow(function).ok()) {
            Some(function) => read_call(&function, "arguments", &mut texts),
            None => read_call(call, "args", &mut texts),
        }
    }
    // LangChain's messages carry Anthropic's calls both ways: they are read once.
    if listed.is_empty() {
        for part in objects(top.member("content")).iter().filter(|part| part.member("type") == Some("\"tool_use\"")) {
            read_call(part, "input", &mut texts);
        }
    }
    Ok(texts)
}

/// A text, or the texts among the parts of a list.
fn read_content<'a>(content: &'a str, texts: &mut Vec<Cow<'a, str>>) {
    match shallow(content) {
        Ok(Shallow::String(raw)) => texts.extend(unquote(raw).ok()),
        Ok(Shallow::Array(parts)) => {
            for part in parts {
                match shallow(part) {
                    Ok(Shallow::String(raw)) => texts.extend(unquote(raw).ok()),
                    Ok(object) => match object.member("type") {
                        Some("\"text\"") => texts.extend(object.member("text").and_then(|raw| unquote(raw).ok())),
                        Some("\"tool_result\"") => object.member("content").into_iter().for_each(|content| {
                            read_result(content, texts);
                        }),
                        _ => {}
                    },
                    Err(_) => {}
                }
            }
        }
        _ => {}
    }
}

/// What a tool gave back: a text or parts, of which the texts are read. Not [`read_content`] again, which would recurse over what
/// people send.
fn read_result<'a>(content: &'a str, texts: &mut Vec<Cow<'a, str>>) {
    match shallow(content) {
        Ok(Shallow::String(raw)) => texts.extend(unquote(raw).ok()),
        Ok(Shallow::Array(parts)) => {
            let parts = parts.into_iter().filter_map(|part| shallow(part).ok());
            texts.extend(parts.filter_map(|part| part.member("text").and_then(|raw| unquote(raw).ok())));
        }
        _ => {}
    }
}

/// Name and arguments: these a text, or JSON as it stands.
fn read_call<'a>(call: &Shallow<'a>, arguments: &str, texts: &mut Vec<Cow<'a, str>>) {
    texts.extend(call.member("name").and_then(|raw| unquote(raw).ok()));
    texts.extend(call.member(arguments).map(|raw| unquote(raw).unwrap_or(Cow::Borrowed(raw.trim()))));
}

fn objects<'a>(list: Option<&'a str>) -> Vec<Shallow<'a>> {
    match list.map(shallow) {
        Some(Ok(Shallow::Array(items))) => items.into_iter().filter_map(|item| shallow(item).ok()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_as_the_tokenizer_does(text in "(?s)([a-z]{1,9}|[ \n]|[A-Za-z]{1,3}|['’.,!]|.|é|\u{301}|[0-9]|[a-z ]{20,40}){0,40}") {
            for (_, encoding) in Encoding::ALL {
                // Again, when its words are known.
                for _ in 0..2 {
                    prop_assert_eq!(encoding.count(&text), encoding.tokenizer().count(text.as_str()));
                }
            }
        }
    }

    /// Counts that the tokenizer of these models gives, by tiktoken 0.14 with the published vocabularies.
    #[test]
    fn the_published_encodings() {
        for (text, o200k, cl100k) in [
            ("", 0, 0),
            ("hello world", 2, 2),
            ("tiktoken is great!", 6, 6),
            ("antidisestablishmentarianism", 6, 6),
            ("2 + 2 = 4", 7, 7),
            ("お誕生日おめでとう", 8, 9),
            ("<|endoftext|>", 7, 7),
            ("  \n\n  x", 3, 3),
            ("👩‍👩‍👧‍👦 naïve — “quotes”", 17, 24),
        ] {
            assert_eq!(Encoding::O200kBase.count(text), o200k, "{text}");
            assert_eq!(Encoding::Cl100kBase.count(text), cl100k, "{text}");
        }
        assert_eq!(Encoding::by_name("o200k_base"), Some(Encoding::O200kBase));
        assert_eq!(Encoding::by_name("p50k_base"), None);
    }

    #[test]
    fn known_words_are_told_apart() {
        let mut words = KnownWords::new();
        // More of them than there are places, each twice.
        let texts: Vec<String> = (0..5_000).map(|n| format!("w{n}")).collect();
        for text in texts.iter().chain(&texts) {
            assert_eq!(words.count_of(text, str::len), text.len());
        }
        for (at, text) in ["", "\0", "\0\0", "a", "a\0", "123456789012345", "1234567890123456"].into_iter().enumerate()
        {
            assert_eq!(words.count_of(text, |_| at), at, "{text:?}");
        }
        assert_eq!(words.count_of("w4999", |_| unreachable!("it was the last")), 5);
    }

    #[test]
    fn of_a_message_counts_what_the_model_reads() {
        let count = |text: &str| Encoding::O200kBase.count(text);
        for (message, texts) in [
            (r#"{"role": "user", "content": "hello \"you\""}"#, vec!["hello \"you\""]),
            (r#"{"role": "user", "content": ""}"#, vec![]),
            (r#"{"role": "user"}"#, vec![]),
            (
                r#"{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "find", "arguments": "{\"a\": 1}"}}]}"#,
                vec!["find", "{\"a\": 1}"],
            ),
            (
                r#"{"role": "ai", "content": "", "tool_calls": [{"id": "1", "name": "find", "args": {"a": 1}}]}"#,
                vec!["find", "{\"a\": 1}"],
            ),
            (
                r#"{"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "1", "name": "find", "input": {"a": 1}}]}"#,
                vec!["I look.", "find", "{\"a\": 1}"],
            ),
            (
                r#"{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "42"}]}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}, "and"]}"#,
                vec!["42", "and"],
            ),
            (r#"{"role": "tool", "tool_call_id": "1", "content": "42"}"#, vec!["42"]),
        ] {
            let expected: usize = texts.iter().map(|text| count(text)).sum();
            assert_eq!(of_message(message).expect("JSON"), expected, "{message}");
        }
    }
}
