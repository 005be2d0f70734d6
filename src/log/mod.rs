//! Pattern B: the message log of a thread, and the window of it that a model reads.

pub use copy::{copy, lock};
pub use tokens::warm_up;

mod append;
mod copy;
mod load;
mod markup;
mod msg_id;
mod read;
mod rewind;
mod summary;
mod tokens;
mod walk;
mod window;

use crate::args;
use crate::error::{Error, Result};
use crate::json::{Shallow, quote};
use crate::model::message::{Message, MessageError};

/// A call needs some hundred bytes of memory for each message, however short it is.
const MAX_MESSAGES: usize = 1_000_000;

/// A JSON argument that is a list of messages, each with its text.
fn parse_messages<'a>(argument: &str, text: &'a str) -> Result<Vec<(&'a str, Message)>> {
    match args::split(argument, text)? {
        Shallow::Array(elements) if elements.len() > MAX_MESSAGES => {
            Err(Error::limit(format!("{argument} has {} messages", elements.len()))
                .detail(format!("One call takes at most {MAX_MESSAGES}."))
                .hint("Append them in several calls; in one transaction they stand all or none."))
        }
        Shallow::Array(elements) => elements
            .into_iter()
            .enumerate()
            .map(|(at, element)| parse_message(argument, &format!("$[{at}]"), element))
            .collect(),
        other => Err(args::wrong_json_type(argument, "a list of messages", text, &other)
            .hint("Pass [{\"role\": \"user\", \"content\": \"…\"}], a list also for one message.")),
    }
}

fn parse_message<'a>(argument: &str, path: &str, text: &'a str) -> Result<(&'a str, Message)> {
    let message = Message::parse(text).map_err(|error| message_error(argument, path, error))?;
    Ok((text, message))
}

fn message_error(argument: &str, path: &str, error: MessageError) -> Error {
    let error = match error {
        MessageError::NotAnObject(found) => Error::invalid(format!("{argument} has {found} at {path}, not a message"))
            .hint("A message is an object: {\"role\": \"user\", \"content\": \"…\"}."),
        MessageError::Member(member, must_be) => {
            Error::invalid(format!("{argument} has a message at {path} whose {} is not {must_be}", quote(member)))
                .hint("A message is an object with a \"role\"; \"id\" and \"ephemeral\" are optional.")
        }
        MessageError::Json { error, path: inner } => {
            Error::json_at(argument, &format!("{path}{}", inner.strip_prefix('$').unwrap_or_default()), &error)
        }
    };
    error.detail("Nothing was stored.")
}
