//! `ckpt_put`: a snapshot of the whole state.

use super::blobs::{Values, remove_unreferenced};
use super::checkpoint::{Checkpoint, Content, add};
use super::head::Head;
use crate::args;
use crate::error::{Error, Result};
use crate::guc;
use crate::json::Shallow;
use crate::json_types::JsonText;
use crate::model::metadata::filterable;
use crate::spi::{BYTES, Db, JSON, Statement, TEXT, TEXTS, json_param, param};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Saves a snapshot of a thread's state and returns its id. Described in `sql/comments.sql` and `docs/reference.md`.
///
/// Errors: 22004, 22023, 54000 for arguments; P0002 unknown parent; 40001 the fence, or a lost race.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_put(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    state: Option<JsonText<'_>>,
    metadata: default!(Option<JsonText<'_>>, "'{}'"),
    next: default!(Option<Vec<Option<String>>>, "'{}'"),
    checkpoint_ns: default!(Option<&str>, "''"),
    checkpoint_id: default!(Option<&str>, "NULL"),
    parent_checkpoint_id: default!(Option<&str>, "NULL"),
    expected_latest: default!(Option<&str>, "NULL"),
) -> std::result::Result<String, ErrorReport> {
    let put = Put {
        thread_id: args::thread_id(thread_id)?,
        checkpoint_ns: args::checkpoint_ns(checkpoint_ns)?,
        checkpoint_id: checkpoint_id.map(|id| args::name("checkpoint_id", Some(id))).transpose()?,
        parent: parent_checkpoint_id.map(|id| args::name_or_empty("parent_checkpoint_id", Some(id))).transpose()?,
        expected_latest: expected_latest.map(|id| args::name_or_empty("expected_latest", Some(id))).transpose()?,
        state: args::json("state", state)?,
        metadata: args::json("metadata", metadata)?,
        next: args::names("next", args::required("next", next)?)?,
    };
    Ok(put.run(&Db::of_call(fcinfo)?)?)
}

struct Put<'a> {
    thread_id: &'a str,
    checkpoint_ns: &'a str,
    checkpoint_id: Option<&'a str>,
    parent: Option<&'a str>,
    expected_latest: Option<&'a str>,
    state: &'a str,
    metadata: &'a str,
    next: Vec<String>,
}

static REPLACE: Statement = Statement::new(
    "UPDATE @s.checkpoints AS c
     SET next = $5, manifest = $6, metadata = $7, metadata_filter = $8::pg_catalog.jsonb
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3 AND c.checkpoint_id @= $4",
    &[TEXT, TEXT, TEXT, TEXT, TEXTS, BYTES, JSON, TEXT],
);

impl Put<'_> {
    fn run(&self, db: &Db) -> Result<String> {
        let values = state_values(self.state)?;
        let metadata_filter = metadata_filter(self.metadata)?;
        let content = Content {
            manifest: &values.manifest,
            metadata: self.metadata,
            metadata_filter: metadata_filter.as_deref(),
            next: &self.next,
        };
        let mut head = Head::lock(db, self.thread_id, self.checkpoint_ns)?;
        let existing = match self.checkpoint_id {
            Some(id) => Checkpoint::locked(db, self.thread_id, self.checkpoint_ns, id)?,
            None => None,
        };
        if let Some(existing) = &existing
            && existing.manifest == values.manifest
            && existing.metadata == self.metadata
            && existing.next == self.next
        {
            return Ok(existing.checkpoint_id.clone());
        }
        self.check_fence(&head)?;
        if let Some(existing) = existing {
            return self.replace(db, existing, &values, &content);
        }
        let parent = self.parent(db, &head)?;
        values.store(db, self.thread_id, self.checkpoint_ns)?;
        add(db, &mut head, self.thread_id, self.checkpoint_ns, self.checkpoint_id, parent.as_deref(), &content)
    }

    fn check_fence(&self, head: &Head) -> Result<()> {
        let Some(expected) = self.expected_latest else {
            return Ok(());
        };
        let latest = head.latest_id.as_deref().unwrap_or_default();
        if latest == expected {
            return Ok(());
        }
        let shown = |id: &str| if id.is_empty() { "no checkpoint".to_owned() } else { format!("checkpoint \"{id}\"") };
        Err(Error::lost_race(format!("thread \"{}\" is not at the checkpoint that was expected", self.thread_id))
            .detail(format!("It is at {}; expected was {}. Nothing was stored.", shown(latest), shown(expected)))
            .hint("Read the latest checkpoint with ckpt_resume and go on from there."))
    }

    fn parent(&self, db: &Db, head: &Head) -> Result<Option<String>> {
        match self.parent {
            None => Ok(head.latest_id.clone()),
            Some("") => Ok(None),
            Some(id) if head.latest_id.as_deref() == Some(id) => Ok(Some(id.to_owned())),
            Some(id) => match Checkpoint::locked(db, self.thread_id, self.checkpoint_ns, id)? {
                Some(parent) => Ok(Some(parent.checkpoint_id)),
                None => Err(Error::no_checkpoint(self.thread_id, self.checkpoint_ns, id)
                    .detail("parent_checkpoint_id must name a checkpoint of the same thread and namespace.")),
            },
        }
    }

    /// Other content under an id that is taken: content and metadata change; parent, order and created_at do not.
    fn replace(&self, db: &Db, old: Checkpoint, values: &Values<'_>, content: &Content<'_>) -> Result<String> {
        values.store(db, self.thread_id, self.checkpoint_ns)?;
        let args = [
            param(self.thread_id),
            param(db.tenant.as_str()),
            param(self.checkpoint_ns),
            param(old.checkpoint_id.as_str()),
            param(self.next.clone()),
            param(content.manifest.encode()),
            json_param(content.metadata),
            param(content.metadata_filter),
        ];
        db.execute(&REPLACE, &args)?;
        remove_unreferenced(db, self.thread_id, self.checkpoint_ns, old.manifest.digests().collect())?;
        Ok(old.checkpoint_id)
    }
}

/// The channels of a state argument.
fn state_values(state: &str) -> Result<Values<'_>> {
    let members = match args::split("state", state)? {
        Shallow::Object(members) => members,
        other => {
            return Err(args::wrong_json_type("state", "an object", state, &other)
                .hint("Pass one member per channel: {\"messages\": […], \"step\": 3}."));
        }
    };
    let inline_limit = guc::inline_limit();
    let mut values = Values::default();
    for member in members {
        if !args::is_channel_name(&member.key) {
            return Err(args::bad_channel_name("state", "$", &member.key));
        }
        values.add(member.key.into_owned(), member.value, inline_limit);
    }
    Ok(values)
}

/// What of a metadata argument can be filtered on.
pub fn metadata_filter(metadata: &str) -> Result<Option<String>> {
    match args::split("metadata", metadata)? {
        Shallow::Object(members) => Ok(filterable(&members)),
        other => Err(args::wrong_json_type("metadata", "an object", metadata, &other).hint("Pass {} for none.")),
    }
}
