//! What the extension reads in a message: its role, its own id, its text, whether it opens an exchange, and which tool calls
//! it makes or answers. The spellings of OpenAI, Anthropic and LangChain messages are understood; the rest is kept as it is.

use super::id::Body;
use crate::json::{JsonError, Shallow, canonical_without, path_at, shallow, unquote};

/// Members that say who speaks and how to store, not what is said.
const NOT_BODY: [&str; 3] = ["role", "id", "ephemeral"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageError {
    NotAnObject(&'static str),
    /// A member that must be there or be of another type: its name and what it must be.
    Member(&'static str, &'static str),
    Json {
        error: JsonError,
        path: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub role: String,
    pub own_id: Option<String>,
    pub ephemeral: bool,
    /// The text, where there is one that a Postgres text can hold: a string, or the text parts of a list, one a line.
    pub content: Option<String>,
    /// Whether there is nothing but a role and a text.
    only_text: bool,
    pub opens_exchange: bool,
    /// The ids of the tool calls it makes and answers; an empty one where the message names none.
    pub calls: Vec<String>,
    pub answers: Vec<String>,
}

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    User,
    Tool,
    /// Whoever set the model up.
    System,
    /// Any other role: names for the model are many.
    Model,
}

impl Speaker {
    pub fn of_role(role: &str) -> Speaker {
        match role {
            "user" | "human" => Speaker::User,
            "tool" | "function" => Speaker::Tool,
            "system" | "developer" => Speaker::System,
            _ => Speaker::Model,
        }
    }
}

/// What a message says, apart from who says it: equal for all spellings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedBody {
    Text(String),
    Canonical(String),
}

impl OwnedBody {
    pub fn as_body(&self) -> Body<'_> {
        match self {
            OwnedBody::Text(text) => Body::Text(text),
            OwnedBody::Canonical(json) => Body::Canonical(json),
        }
    }
}

impl Message {
    pub fn parse(json: &str) -> Result<Message, MessageError> {
        let top = shallow(json).map_err(|error| json_error(json, error))?;
        let Shallow::Object(members) = &top else {
            return Err(MessageError::NotAnObject(top.type_name()));
        };
        let role = match text_member(&top, "role") {
            Some(role) if !role.is_empty() && role.len() <= 255 && !role.contains('\0') => role,
            _ => return Err(MessageError::Member("role", "a text of 1 to 255 bytes")),
        };
        let own_id = match top.member("id") {
            None | Some("null") => None,
            Some(_) => match text_member(&top, "id") {
                Some(id) if !id.is_empty() && id.len() <= 255 && !id.contains('\0') => Some(id),
                _ => return Err(MessageError::Member("id", "a text of 1 to 255 bytes")),
            },
        };
        let ephemeral = match top.member("ephemeral") {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(MessageError::Member("ephemeral", "true or false")),
        };
        let text = text_member(&top, "content");
        let only_text = text.is_some()
            && members.iter().all(|member| member.key == "content" || NOT_BODY.contains(&member.key.as_ref()));
        let parts = content_parts(&top);
        let calls = calls(&top, &parts);
        let answers = answers(&role, &top, &parts);
        Ok(Message {
            // A user message with tool results belongs to the exchange of the calls, also where it says something beside them.
            opens_exchange: Speaker::of_role(&role) == Speaker::User && answers.is_empty(),
            content: text.or_else(|| joined_text(&parts)).filter(|text| !text.contains('\0')),
            only_text,
            role,
            own_id,
            ephemeral,
            calls,
            answers,
        })
    }

    /// The body of the message, of which `json` is the text.
    ///
    /// Errors: JSON that has no canonical form could not be told from another message later.
    pub fn body(&self, json: &str) -> Result<OwnedBody, MessageError> {
        if self.only_text {
            let top = shallow(json).map_err(|error| json_error(json, error))?;
            return Ok(OwnedBody::Text(text_member(&top, "content").unwrap_or_default()));
        }
        canonical_without(json, &NOT_BODY).map(OwnedBody::Canonical).map_err(|error| json_error(json, error))
    }
}

fn json_error(json: &str, error: JsonError) -> MessageError {
    MessageError::Json { path: path_at(json, error.offset), error }
}

fn text_member(top: &Shallow<'_>, key: &str) -> Option<String> {
    let raw = top.member(key).filter(|raw| raw.starts_with('"'))?;
    unquote(raw).ok().map(|text| text.into_owned())
}

/// The parts of a `content` that is a list; those that are no objects say nothing here.
fn content_parts<'a>(top: &Shallow<'a>) -> Vec<Shallow<'a>> {
    match top.member("content").filter(|content| content.starts_with('[')).map(shallow) {
        Some(Ok(Shallow::Array(parts))) => parts.into_iter().filter_map(|part| shallow(part).ok()).collect(),
        _ => Vec::new(),
    }
}

fn type_of<'a>(part: &Shallow<'a>) -> Option<&'a str> {
    part.member("type")
}

fn joined_text(parts: &[Shallow<'_>]) -> Option<String> {
    let texts: Vec<String> = parts
        .iter()
        .filter_map(|part| match part {
            Shallow::String(raw) => unquote(raw).ok().map(|text| text.into_owned()),
            part if type_of(part) == Some("\"text\"") => text_member(part, "text"),
            _ => None,
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn calls(top: &Shallow<'_>, parts: &[Shallow<'_>]) -> Vec<String> {
    let listed = match top.member("tool_calls").map(shallow) {
        Some(Ok(Shallow::Array(calls))) => calls.into_iter().filter_map(|call| shallow(call).ok()).collect(),
        _ => Vec::new(),
    };
    let blocks: Vec<String> = parts
        .iter()
        .filter(|part| type_of(part) == Some("\"tool_use\""))
        .map(|part| text_member(part, "id").unwrap_or_default())
        .collect();
    // LangChain's messages carry Anthropic's calls both ways: the list is the more general form.
    match listed.is_empty() {
        true => blocks,
        false => listed.iter().map(|call| text_member(call, "id").unwrap_or_default()).collect(),
    }
}

fn answers(role: &str, top: &Shallow<'_>, parts: &[Shallow<'_>]) -> Vec<String> {
    if Speaker::of_role(role) == Speaker::Tool {
        return vec![text_member(top, "tool_call_id").unwrap_or_default()];
    }
    let blocks = parts.iter().filter(|part| type_of(part) == Some("\"tool_result\""));
    blocks.map(|part| text_member(part, "tool_use_id").unwrap_or_default()).collect()
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
