//! How many tokens a model reads. The byte-pair encodings and their vocabularies are those of OpenAI's models, from the crate
//! `bpe-openai`, whose count takes time linear in the text whatever that is.

use crate::json::{JsonError, Shallow, shallow, unquote};
use bpe_openai::Tokenizer;
use std::borrow::Cow;

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
        self.tokenizer().count(text)
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
