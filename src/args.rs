//! The checks of arguments that every function makes before it touches a table.

use crate::error::{Error, Result};
use crate::guc;
use crate::json::{Shallow, shallow};
use crate::json_types::JsonText;
use crate::model::writes::OnConflict;
use pgrx::datum::Interval;

const MAX_THREAD_ID: usize = 512;
const MAX_NAMESPACE: usize = 1024;
const MAX_TENANT: usize = 63;
const MAX_NAME: usize = 255;
const MAX_TASK_PATH: usize = 4096;

/// The most bytes that a result may have; Postgres's own limit for one value is 1 GB.
pub const MAX_RESULT: u64 = 1_000_000_000;

/// The argument, which must not be NULL.
pub fn required<T>(argument: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::null_argument(argument))
}

fn text<'a>(argument: &str, value: Option<&'a str>, most: usize, may_be_empty: bool) -> Result<&'a str> {
    let value = required(argument, value)?;
    if value.is_empty() && !may_be_empty {
        return Err(Error::invalid(format!("{argument} must not be empty"))
            .detail("An empty text names nothing.")
            .hint(format!("Pass a text of 1 to {most} bytes.")));
    }
    if value.len() > most {
        return Err(Error::invalid(format!("{argument} is too long: {} bytes", value.len()))
            .detail(format!("At most {most} bytes are allowed."))
            .hint("Use a shorter id, for example a hash of the long one."));
    }
    Ok(value)
}

pub fn thread_id(value: Option<&str>) -> Result<&str> {
    named_thread_id("thread_id", value)
}

/// A thread's id in an argument of another name.
pub fn named_thread_id<'a>(argument: &str, value: Option<&'a str>) -> Result<&'a str> {
    text(argument, value, MAX_THREAD_ID, false)
}

pub fn checkpoint_ns(value: Option<&str>) -> Result<&str> {
    text("checkpoint_ns", value, MAX_NAMESPACE, true)
}

/// The name of a checkpoint, task or the like.
pub fn name<'a>(argument: &str, value: Option<&'a str>) -> Result<&'a str> {
    text(argument, value, MAX_NAME, false)
}

/// The same where empty has a meaning.
pub fn name_or_empty<'a>(argument: &str, value: Option<&'a str>) -> Result<&'a str> {
    text(argument, value, MAX_NAME, true)
}

pub fn task_path(value: Option<&str>) -> Result<&str> {
    text("task_path", value, MAX_TASK_PATH, true)
}

/// The setting `checkpointer.tenant`.
pub fn tenant() -> Result<String> {
    let tenant = guc::tenant();
    text("checkpointer.tenant", Some(&tenant), MAX_TENANT, true)?;
    Ok(tenant)
}

/// Whether a channel may have this name. Names come out of JSON, which can hold U+0000, and Postgres's text cannot.
pub fn is_channel_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains('\0')
}

pub fn bad_channel_name(argument: &str, path: &str, name: &str) -> Error {
    let shown: String = name.chars().take(40).collect();
    Error::invalid(format!("{argument} names a channel that cannot be kept: {} at {path}", crate::json::quote(&shown)))
        .detail(format!("The name has {} bytes. Nothing was stored.", name.len()))
        .hint(format!("A channel's name is a text of 1 to {MAX_NAME} bytes without U+0000."))
}

/// Texts of a `text[]` argument; none of them may be NULL, empty or too long.
pub fn names(argument: &str, values: Vec<Option<String>>) -> Result<Vec<String>> {
    let checked = values.into_iter().enumerate().map(|(at, value)| {
        let element = format!("{argument}[{}]", at + 1);
        name(&element, value.as_deref()).map(str::to_owned)
    });
    checked.collect()
}

/// A row limit; `None` is no limit.
pub fn max_rows(value: Option<i32>) -> Result<Option<i64>> {
    match value {
        Some(rows) if rows < 0 => Err(Error::invalid(format!("max_rows must not be negative: {rows}"))
            .detail("It is the most rows to return.")
            .hint("Leave it out, or pass NULL, for all rows.")),
        rows => Ok(rows.map(i64::from)),
    }
}

/// A length of time, which must not be NULL.
pub fn positive_interval(argument: &str, value: Option<Interval>) -> Result<Interval> {
    let value = required(argument, value)?;
    let parts = [i64::from(value.months()), i64::from(value.days()), value.micros()];
    if parts.iter().any(|part| *part < 0) || parts.iter().all(|part| *part == 0) {
        return Err(Error::invalid(format!("{argument} must be positive"))
            .detail("It is a length of time.")
            .hint("Pass an interval such as '10 minutes' or '7 days'."));
    }
    Ok(value)
}

/// A JSON argument, which must not be NULL and not over the size limit.
pub fn json<'a>(argument: &str, value: Option<JsonText<'a>>) -> Result<&'a str> {
    let text = required(argument, value)?.0;
    let most = guc::max_json_size();
    if text.len() > most {
        return Err(Error::limit(format!("{argument} is too large: {} bytes", text.len()))
            .detail(format!("checkpointer.max_json_size allows {most} bytes."))
            .hint("Send it in parts, or raise checkpointer.max_json_size."));
    }
    Ok(text)
}

/// The top level of a JSON argument.
pub fn split<'a>(argument: &str, text: &'a str) -> Result<Shallow<'a>> {
    shallow(text).map_err(|error| Error::json(argument, text, &error))
}

pub fn wrong_json_type(argument: &str, must_be: &str, text: &str, found: &Shallow<'_>) -> Error {
    let begins: String = text.chars().take(40).collect();
    Error::invalid(format!("{argument} must be {must_be}, not {}", found.type_name()))
        .detail(format!("It begins with: {begins}"))
}

/// Refuses a result that Postgres could not hold, before it is put together.
pub fn check_result_size(what: &str, bytes: u64) -> Result<()> {
    if bytes > MAX_RESULT {
        return Err(Error::limit(format!("{what} is too large to return: {bytes} bytes"))
            .detail("One value can have at most 1 GB.")
            .hint(
                "Read it in parts: ckpt_state(…, channels => …), ckpt_channel, or ckpt_get_typed, which gives rows.",
            ));
    }
    Ok(())
}

/// Refuses a jsonb argument (as text) that is not an object.
pub fn object_text(argument: &str, text: &str) -> Result<()> {
    match split(argument, text)? {
        Shallow::Object(_) => Ok(()),
        other => {
            Err(wrong_json_type(argument, "an object", text, &other).hint("Pass an object such as {\"user_id\": 7}."))
        }
    }
}

pub fn on_conflict(value: Option<&str>) -> Result<OnConflict> {
    let value = required("on_conflict", value)?;
    OnConflict::by_name(value).ok_or_else(|| {
        Error::invalid(format!("on_conflict cannot be \"{value}\""))
            .detail("It says what happens where the same key has other content already.")
            .hint(format!("Pass one of {}.", OnConflict::NAMES.join(", ")))
    })
}
