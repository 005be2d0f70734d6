//! Requests of three generations of clients: the id of a thread, a history in one string, a list of messages as OpenAI, Anthropic or
//! LangChain spell them. All become a thread and messages with roles.

use crate::json::{JsonError, Shallow, path_at, quote, shallow, unquote};

/// What a request says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub thread_id: Option<String>,
    /// Each with the place in the request that it comes from.
    pub messages: Vec<(String, String)>,
}

/// What cannot be read, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestError {
    pub path: String,
    pub problem: String,
}

pub fn parse(text: &str) -> Result<Request, RequestError> {
    let top = read(text, text, "$")?;
    let mut request = Request::default();
    match &top {
        Shallow::String(raw) => request.thread_id = Some(unquoted(raw, "$")?),
        Shallow::Array(items) => request.add_messages(text, "$", items)?,
        Shallow::Object(members) => {
            let mut said_something = false;
            for member in members {
                let (key, value) = (member.key.as_ref(), member.value);
                let path = format!("$.{key}");
                match (key, read(text, value, &path)?) {
                    ("thread_id", Shallow::String(raw)) => request.thread_id = Some(unquoted(raw, &path)?),
                    ("history", Shallow::String(raw)) => request.add_history(&unquoted(raw, &path)?),
                    ("messages", Shallow::Array(items)) => request.add_messages(text, &path, &items)?,
                    ("thread_id" | "history" | "messages", Shallow::Literal("null")) => continue,
                    ("thread_id" | "history", found) => return wrong(&path, "a string", &found),
                    ("messages", found) => return wrong(&path, "a list of messages", &found),
                    _ => {
                        let path = format!("$[{}]", quote(key));
                        return Err(RequestError { path, problem: "is no part of a request".to_owned() });
                    }
                }
                said_something = true;
            }
            if !said_something {
                return Err(RequestError {
                    path: "$".to_owned(),
                    problem: "names neither a thread nor messages".to_owned(),
                });
            }
        }
        found => return wrong("$", "a thread id, an object or a list of messages", found),
    }
    Ok(request)
}

fn wrong<T>(path: &str, must_be: &str, found: &Shallow<'_>) -> Result<T, RequestError> {
    Err(RequestError { path: path.to_owned(), problem: format!("must be {must_be}, not {}", found.type_name()) })
}

/// A value of the request, of which `whole` is the text.
fn read<'a>(whole: &str, value: &'a str, path: &str) -> Result<Shallow<'a>, RequestError> {
    shallow(value).map_err(|JsonError { problem, offset }| {
        let place =
            if path == "$" { path_at(whole, offset) } else { format!("{path}{}", &path_at(value, offset)[1..]) };
        RequestError { path: place, problem: problem.to_string() }
    })
}

fn unquoted(raw: &str, path: &str) -> Result<String, RequestError> {
    let text =
        unquote(raw).map_err(|error| RequestError { path: path.to_owned(), problem: error.problem.to_string() })?;
    if text.contains('\0') {
        return Err(RequestError { path: path.to_owned(), problem: "has U+0000, which no text can hold".to_owned() });
    }
    Ok(text.into_owned())
}

impl Request {
    fn add_messages(&mut self, whole: &str, path: &str, items: &[&str]) -> Result<(), RequestError> {
        for (at, item) in items.iter().enumerate() {
            let path = format!("{path}[{at}]");
            let message = with_role(whole, item, &path)?;
            self.messages.push((path, message));
        }
        Ok(())
    }

    fn add_history(&mut self, history: &str) {
        let turns = turns(history).into_iter();
        let message =
            |(role, text): (&str, String)| format!("{{\"role\": {}, \"content\": {}}}", quote(role), quote(&text));
        self.messages.extend(turns.map(|turn| ("$.history".to_owned(), message(turn))));
    }
}

/// The turns of a history: a line that begins with the name of a role and a colon begins one. What stands before the first is the
/// user's. `System:` counts only at the very beginning: further on it may be what somebody wrote.
fn turns(history: &str) -> Vec<(&'static str, String)> {
    let mut turns: Vec<(&'static str, String)> = Vec::new();
    for line in history.lines() {
        match role_and_text(line) {
            Some(("system", _)) if !turns.is_empty() => {}
            Some((role, text)) => {
                turns.push((role, text.to_owned()));
                continue;
            }
            None => {}
        }
        match turns.last_mut() {
            Some((_, text)) => {
                text.push('\n');
                text.push_str(line);
            }
            None if line.trim().is_empty() => {}
            None => turns.push(("user", line.to_owned())),
        }
    }
    let said = turns.into_iter().map(|(role, text)| (role, text.trim().to_owned()));
    // "Assistant:" at the end asks for an answer; it is none.
    said.filter(|(_, text)| !text.is_empty()).collect()
}

const USERS: [&str; 5] = ["user", "human", "customer", "client", "visitor"];
const MODELS: [&str; 7] = ["assistant", "ai", "bot", "agent", "chatbot", "model", "ai assistant"];

/// Whether a line begins a turn: `User: …`, also `**User:** …`, `[User]: …` or `### User: …`.
fn role_and_text(line: &str) -> Option<(&'static str, &str)> {
    const LONGEST: usize = 32;
    let decoration = ['*', '_', '#', '[', ']', '<', '>', ' ', '\t'];
    let (before, text) = line.split_once([':', '：'])?;
    if before.len() > LONGEST {
        return None;
    }
    let name = before.trim_matches(decoration).to_lowercase();
    let role = match name.as_str() {
        name if USERS.contains(&name) => "user",
        name if MODELS.contains(&name) => "assistant",
        "system" => "system",
        _ => return None,
    };
    let bold = ["**", "__"]
        .into_iter()
        .find(|mark| before.trim_start().starts_with(mark) && !before.trim_end().ends_with(mark));
    Some((role, bold.and_then(|mark| text.strip_prefix(mark)).unwrap_or(text)))
}

/// A message with a `role`: as it is, or from LangChain's forms, of which what says nothing is left out.
fn with_role(whole: &str, raw: &str, path: &str) -> Result<String, RequestError> {
    let message = read(whole, raw, path)?;
    if !matches!(message, Shallow::Object(_)) {
        return wrong(path, "a message", &message);
    }
    if message.member("role").is_some() && message.member("lc").is_none() && message.member("type") != Some("\"chat\"")
    {
        return Ok(raw.trim().to_owned());
    }
    // The constructor form has the class in `id` and the rest in `kwargs`; an older one nests under `data`.
    let (class, inner, path) = match (message.member("lc"), message.member("data")) {
        (Some(_), _) => (class_of(&message), message.member("kwargs"), format!("{path}.kwargs")),
        (None, Some(data)) => (text_of(&message, "type"), Some(data), format!("{path}.data")),
        (None, None) => (text_of(&message, "type"), Some(raw), path.to_owned()),
    };
    let Some(inner) = inner else {
        return Err(RequestError { path, problem: "is missing".to_owned() });
    };
    let inner = read(whole, inner, &path)?;
    let Shallow::Object(members) = &inner else { return wrong(&path, "an object", &inner) };
    let role = match class.as_deref() {
        Some("human" | "HumanMessage" | "HumanMessageChunk") => "user".to_owned(),
        Some("ai" | "AIMessage" | "AIMessageChunk") => "assistant".to_owned(),
        Some("system" | "SystemMessage" | "SystemMessageChunk") => "system".to_owned(),
        Some("tool" | "ToolMessage" | "ToolMessageChunk") => "tool".to_owned(),
        Some("function" | "FunctionMessage" | "FunctionMessageChunk") => "function".to_owned(),
        Some("chat" | "ChatMessage" | "ChatMessageChunk") if inner.member("role").is_some() => {
            text_of(&inner, "role").unwrap_or_default()
        }
        Some(other) => {
            return Err(RequestError { path, problem: format!("is of a type that is not known: {}", quote(other)) });
        }
        None => return Err(RequestError { path, problem: "has neither a role nor a type".to_owned() }),
    };
    let mut out = format!("{{\"role\": {}", quote(&role));
    for member in members {
        let says_nothing = ["null", "{}", "[]"].contains(&member.value) && member.key != "content";
        if !says_nothing && !["type", "role", "example"].contains(&member.key.as_ref()) {
            out.push_str(&format!(", {}: {}", member.raw_key, member.value));
        }
    }
    out.push('}');
    Ok(out)
}

fn text_of(object: &Shallow<'_>, key: &str) -> Option<String> {
    unquote(object.member(key)?).ok().map(|text| text.into_owned())
}

fn class_of(message: &Shallow<'_>) -> Option<String> {
    match shallow(message.member("id")?).ok()? {
        Shallow::Array(path) => unquote(path.last()?).ok().map(|text| text.into_owned()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
