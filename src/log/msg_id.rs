//! `msg_id`: the deterministic id of a message, for clients that want to know it before they append.

use crate::args;
use crate::error::{Error, Result};
use crate::json::{Shallow, canonical, unquote};
use crate::json_types::JsonText;
use crate::model::id::{Body, message_id};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The id of a message of a role with this text: the first 20 bytes, in hex, of the blake3 hash of a framing of the parts (see
/// `model::id` and `docs/msg_id.md`). Two equal messages of one `ckpt_append` differ by their occurrence; this is the first.
#[pg_extern(immutable, parallel_safe, name = "msg_id")]
fn msg_id_text(
    thread_id: Option<&str>,
    role: Option<&str>,
    content: Option<&str>,
    turn: default!(Option<&str>, "''"),
) -> std::result::Result<String, ErrorReport> {
    let content = args::required("content", content)?;
    Ok(id(thread_id, role, Body::Text(content), turn)?)
}

/// The same for structured content, over its canonical form. A JSON string has the id of its text.
#[pg_extern(immutable, parallel_safe, name = "msg_id")]
fn msg_id_json(
    thread_id: Option<&str>,
    role: Option<&str>,
    content: Option<JsonText<'_>>,
    turn: default!(Option<&str>, "''"),
) -> std::result::Result<String, ErrorReport> {
    let content = args::json("content", content)?;
    if let Shallow::String(raw) = args::split("content", content)? {
        let text = unquote(raw).map_err(|error| Error::json("content", content, &error))?;
        return Ok(id(thread_id, role, Body::Text(&text), turn)?);
    }
    let canonical = canonical(content).map_err(|error| Error::json("content", content, &error))?;
    Ok(id(thread_id, role, Body::Canonical(&canonical), turn)?)
}

fn id(thread_id: Option<&str>, role: Option<&str>, body: Body<'_>, turn: Option<&str>) -> Result<String> {
    let thread_id = args::thread_id(thread_id)?;
    let role = args::name("role", role)?;
    let turn = args::name_or_empty("turn", turn)?;
    Ok(message_id(thread_id, role, body, turn, 0))
}
