//! `ckpt_load`: the window as a message array, from any of three generations of request.

use super::parse_message;
use super::walk::Walk;
use super::window::{Options, Shaper, window};
use crate::args;
use crate::error::{Error, Result};
use crate::json_types::{JsonResult, JsonText};
use crate::model::message::Message;
use crate::model::request::{self, Request};
use crate::spi::Db;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// What the model should read, as a JSON array of messages: the window of `ckpt_window` over the log of a thread, the messages of
/// the request, or the one and then the others.
///
/// `request` is a thread id, a list of messages, or an object with `thread_id`, `history` (`"User: …\nAssistant: …"`) and `messages`.
///
/// Errors: 22023 what cannot be read, naming the place; else those of `ckpt_window`.
#[pg_extern(stable, parallel_safe)]
fn ckpt_load(
    fcinfo: pg_sys::FunctionCallInfo,
    request: Option<JsonText<'_>>,
    size: default!(Option<i32>, "60"),
    max_tokens: default!(Option<i32>, "NULL"),
    current: default!(Option<JsonText<'_>>, "NULL"),
    preamble: default!(Option<JsonText<'_>>, "NULL"),
    strip: default!(Option<bool>, "true"),
    marker: default!(Option<bool>, "true"),
) -> std::result::Result<JsonResult, ErrorReport> {
    let request = read(args::json("request", request)?)?;
    let thread_id = request.thread_id.as_deref().map(|thread_id| args::thread_id(Some(thread_id))).transpose()?;
    let options = Options::of_args(size, max_tokens, current, preamble, strip, marker)?;
    let messages = parsed(&request)?;
    let db = Db::of_call(fcinfo)?;
    let shaper = Shaper::new(&db, options.strip)?;
    let mut walk = Walk::new(&db, thread_id, options.size, shaper.rules());
    walk.go_on_with("request", messages)?;
    let lines = window(&db, thread_id, walk, options, &shaper)?;
    let bytes = lines.iter().map(|line| line.message.len() as u64 + 2).sum();
    args::check_result_size("the window", bytes)?;
    let texts: Vec<&str> = lines.iter().map(|line| line.message.as_str()).collect();
    Ok(JsonResult(format!("[{}]", texts.join(", "))))
}

fn read(text: &str) -> Result<Request> {
    request::parse(text).map_err(|error| {
        Error::invalid(format!("request cannot be read: {} {}", error.path, error.problem))
            .detail("Nothing was stored; ckpt_load only reads.")
            .hint("Pass \"thread-1\", {\"thread_id\": …}, {\"history\": \"User: …\\nAssistant: …\"} or {\"messages\": [{\"role\": …, \"content\": …}]}.")
    })
}

fn parsed(request: &Request) -> Result<Vec<(String, Message)>> {
    let parse = |(path, text): &(String, String)| {
        let (text, message) = parse_message("request", path, text)?;
        Ok((text.to_owned(), message))
    };
    request.messages.iter().map(parse).collect()
}
