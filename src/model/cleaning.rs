//! Cleaning of whole messages: their texts go through the rules, all else stays as it is.

use super::markup::Cleaner;
use super::message::Speaker;
use super::tokens;
use crate::json::{Shallow, quote, shallow, unquote};
use std::borrow::Cow;

/// What stands for a text of which nothing is left: model providers refuse an empty one.
const NOTHING_LEFT: &str = "…";

/// A message as it is shown, with the tokens that a model reads in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clean {
    pub json: String,
    pub tokens: usize,
}

/// The message without markup, counted; `None` where it has none.
pub fn clean(json: &str, speaker: Speaker, cleaner: &Cleaner) -> Option<Clean> {
    let json = cleaned(json, speaker, cleaner)?;
    let tokens = tokens::of_message(&json).ok()?;
    Some(Clean { json, tokens })
}

/// The message without markup; `None` where it has none. What the model said goes through all rules. In what a person or a tool
/// said only the data of images is replaced: `[1]` may be the answer there, or part of a JSON array.
pub fn cleaned(json: &str, speaker: Speaker, cleaner: &Cleaner) -> Option<String> {
    let top = shallow(json).ok()?;
    let content = top.member("content")?;
    let mut edits: Vec<(&str, String)> = Vec::new();
    let mut edit = |raw| edits.extend(cleaned_text(raw, speaker, cleaner).map(|clean| (raw, quote(&clean))));
    match shallow(content).ok()? {
        Shallow::String(raw) => edit(raw),
        Shallow::Array(parts) => {
            for part in parts {
                match shallow(part).ok()? {
                    Shallow::String(raw) => edit(raw),
                    object if object.member("type") == Some("\"text\"") => {
                        object.member("text").into_iter().for_each(&mut edit)
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    (!edits.is_empty()).then(|| replaced(json, &edits))
}

fn cleaned_text(raw: &str, speaker: Speaker, cleaner: &Cleaner) -> Option<String> {
    let text = unquote(raw).ok()?;
    let clean = match speaker {
        Speaker::Model => cleaner.clean(&text),
        Speaker::User | Speaker::Tool | Speaker::System => cleaner.clean_data(&text),
    };
    match clean {
        Cow::Owned(clean) if clean.is_empty() => Some(NOTHING_LEFT.to_owned()),
        Cow::Owned(clean) => Some(clean),
        Cow::Borrowed(_) => None,
    }
}

/// The text with other values in the places of some; these are slices of it, in order.
fn replaced(json: &str, edits: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    for (old, new) in edits {
        let start = old.as_ptr() as usize - json.as_ptr() as usize;
        out.push_str(&json[at..start]);
        out.push_str(new);
        at = start + old.len();
    }
    out.push_str(&json[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::super::markup::Rule;
    use super::*;

    fn rule(kind: &str, pattern: &str, keep: &str, replacement: Option<&str>) -> Rule {
        let [kind, pattern, keep] = [kind, pattern, keep].map(str::to_owned);
        Rule { kind, pattern, keep, replacement: replacement.map(str::to_owned) }
    }

    fn text(speaker: Speaker, json: &str) -> Option<String> {
        let rules = [rule("tag", "think", "nothing", None), rule("data", "image/", "replacement", Some("[{type}]"))];
        cleaned(json, speaker, &Cleaner::new(&rules).expect("sound"))
    }

    #[test]
    fn the_texts_are_cleaned_and_all_else_stays() {
        assert_eq!(
            text(Speaker::Model, r#"{"id": 1.0, "content" : "<think>\n</think>a \"b\"", "x":[]}"#).as_deref(),
            Some(r#"{"id": 1.0, "content" : "a \"b\"", "x":[]}"#)
        );
        assert_eq!(
            text(
                Speaker::Model,
                r#"{"content": ["<think></think>1", {"type": "text", "text": "<think/>2"}, {"type": "image", "text": "<think/>3"}, {"type":"text","text":"4"}]}"#
            )
            .as_deref(),
            Some(r#"{"content": ["1", {"type": "text", "text": "2"}, {"type": "image", "text": "<think/>3"}, {"type":"text","text":"4"}]}"#)
        );
        for untouched in [r#"{"content": "a"}"#, r#"{"content": null}"#, r#"{"content": {"text": "<think/>"}}"#, "{}"] {
            assert_eq!(text(Speaker::Model, untouched), None);
        }
    }

    #[test]
    fn where_nothing_is_left_something_stands() {
        assert_eq!(text(Speaker::Model, r#"{"content": "<think>hm</think>"}"#).as_deref(), Some(r#"{"content": "…"}"#));
        assert_eq!(text(Speaker::Model, r#"{"content": ""}"#), None);
    }

    #[test]
    fn what_a_person_or_a_tool_said_is_meant() {
        let data = format!("data:image/png;base64,{}", "QUJD".repeat(30));
        let message = format!(r#"{{"content": "<think>a</think> {data}"}}"#);
        for speaker in [Speaker::User, Speaker::Tool, Speaker::System] {
            assert_eq!(text(speaker, &message).as_deref(), Some(r#"{"content": "<think>a</think> [image/png]"}"#));
        }
        assert_eq!(text(Speaker::Model, &message).as_deref(), Some(r#"{"content": " [image/png]"}"#));
    }
}
