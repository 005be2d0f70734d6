//! `ckpt_put`: a snapshot of the whole state.

use super::Namespace;
use super::checkpoint::{Checkpoint, Content, add, locked_manifest, new_id};
use super::graph::graph_of;
use super::head::Head;
use super::values::Given;
use crate::args;
use crate::error::{Error, Result};
use crate::json::{Member, Shallow};
use crate::json_types::JsonText;
use crate::model::graph::Graph;
use crate::model::manifest::{JSON, Manifest};
use crate::model::metadata::filterable;
use crate::spi::Db;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;

/// Saves a snapshot of a thread's state and returns its id. Described in `docs/reference.md`.
///
/// Errors: 22004, 22023, 54000 for arguments; P0002 unknown parent; 40001 the fence, or a lost race; 55000 the thread was deleted
/// and is blocked.
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
        ns: Namespace::of_args(thread_id, checkpoint_ns)?,
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
    ns: Namespace<'a>,
    checkpoint_id: Option<&'a str>,
    parent: Option<&'a str>,
    expected_latest: Option<&'a str>,
    state: &'a str,
    metadata: &'a str,
    next: Vec<String>,
}

impl Put<'_> {
    fn run(&self, db: &Db) -> Result<String> {
        let channels = state_channels(self.state)?;
        let metadata_filter = metadata_filter(self.metadata)?;
        if self.checkpoint_id.is_none() && self.parent.is_none() && self.expected_latest.is_none() {
            return self.next_step(db, &channels, metadata_filter.as_deref());
        }
        let mut head = Head::lock(db, self.ns)?;
        let stored = StoredState::of(&channels, &graph_of(db, &head)?);
        let given = stored.given();
        let existing = match self.checkpoint_id {
            Some(id) => Checkpoint::locked(db, self.ns, id)?,
            None => None,
        };
        let before = match &existing {
            Some(existing) => Some(existing.manifest.clone()),
            None => self.parent_manifest(db, &given, self.parent.or(head.latest_id.as_deref()))?,
        };
        let values = given.hash(db, self.ns, before.as_ref())?;
        let content = self.content(&values.manifest, metadata_filter.as_deref());
        if let Some(existing) = &existing
            && content.is_of(existing)
        {
            return Ok(existing.checkpoint_id.clone());
        }
        check_fence(self.ns, &head, self.expected_latest)?;
        if let Some(existing) = existing {
            values.store(db, self.ns)?;
            content.replace(db, &existing)?;
            return Ok(existing.checkpoint_id);
        }
        let parent = self.parent(db, &head)?;
        values.store(db, self.ns)?;
        add(db, &mut head, self.ns, self.checkpoint_id, parent.as_deref(), &content)
    }

    /// The hot path: a child of the latest checkpoint under a new id.
    fn next_step(&self, db: &Db, channels: &[Member<'_>], metadata_filter: Option<&str>) -> Result<String> {
        let mut id = new_id(None)?;
        let head = match Head::advance(db, self.ns, &id, None, Some(&id), true)? {
            Some(head) => head,
            // The clock stepped back behind the newest id.
            None => {
                let mut head = Head::lock(db, self.ns)?;
                id = new_id(head.newest_uuid.as_deref())?;
                let parent = head.latest_id.replace(id.clone());
                head.newest_uuid = Some(id.clone());
                head.save(db, self.ns)?;
                Head { latest_id: parent, ..head }
            }
        };
        let stored = StoredState::of(channels, &graph_of(db, &head)?);
        let given = stored.given();
        let before = self.parent_manifest(db, &given, head.latest_id.as_deref())?;
        let values = given.hash(db, self.ns, before.as_ref())?;
        values.store(db, self.ns)?;
        self.content(&values.manifest, metadata_filter).insert(
            db,
            self.ns,
            &id,
            head.latest_id.as_deref(),
            head.revision,
        )?;
        Ok(id)
    }

    fn content<'a>(&'a self, manifest: &'a Manifest, metadata_filter: Option<&'a str>) -> Content<'a> {
        Content { manifest, body: None, metadata: self.metadata, metadata_filter, next: &self.next }
    }

    /// What large values are compared with.
    fn parent_manifest(&self, db: &Db, given: &Given<'_>, parent: Option<&str>) -> Result<Option<Manifest>> {
        match parent {
            Some(id) if given.has_large() => locked_manifest(db, self.ns, id),
            _ => Ok(None),
        }
    }

    fn parent(&self, db: &Db, head: &Head) -> Result<Option<String>> {
        match self.parent {
            None => Ok(head.latest_id.clone()),
            Some("") => Ok(None),
            Some(id) if head.latest_id.as_deref() == Some(id) => Ok(Some(id.to_owned())),
            Some(id) => match Checkpoint::locked(db, self.ns, id)? {
                Some(parent) => Ok(Some(parent.checkpoint_id)),
                None => Err(Error::no_checkpoint(self.ns.thread_id, self.ns.checkpoint_ns, id)
                    .detail("parent_checkpoint_id must name a checkpoint of the same thread and namespace.")),
            },
        }
    }
}

/// Refuses a put that expected another latest checkpoint; `''` expects none.
pub fn check_fence(ns: Namespace<'_>, head: &Head, expected_latest: Option<&str>) -> Result<()> {
    let Some(expected) = expected_latest else {
        return Ok(());
    };
    let latest = head.latest_id.as_deref().unwrap_or_default();
    if latest == expected {
        return Ok(());
    }
    let shown = |id: &str| if id.is_empty() { "no checkpoint".to_owned() } else { format!("checkpoint \"{id}\"") };
    Err(Error::lost_race(format!("thread \"{}\" is not at the checkpoint that was expected", ns.thread_id))
        .detail(format!("It is at {}; expected was {}. Nothing was stored.", shown(latest), shown(expected)))
        .hint("Read the latest checkpoint with ckpt_resume and go on from there."))
}

/// The channels of a state argument.
fn state_channels(state: &str) -> Result<Vec<Member<'_>>> {
    let members = match args::split("state", state)? {
        Shallow::Object(members) => members,
        other => {
            return Err(args::wrong_json_type("state", "an object", state, &other)
                .hint("Pass one member per channel: {\"messages\": […], \"step\": 3}."));
        }
    };
    match members.iter().find(|member| !args::is_channel_name(&member.key)) {
        Some(member) => Err(args::bad_channel_name("state", "$", &member.key)),
        None => Ok(members),
    }
}

/// What of a state is stored: the channels that persist, without ephemeral messages.
struct StoredState<'a> {
    channels: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> StoredState<'a> {
    fn of(channels: &'a [Member<'_>], graph: &Graph) -> StoredState<'a> {
        let stored = channels.iter().filter(|channel| graph.persists(&channel.key)).map(|channel| {
            let text = graph.stored_text(&channel.key, channel.value);
            (channel.key.as_ref(), text.map_or(Cow::Borrowed(channel.value), Cow::Owned))
        });
        StoredState { channels: stored.collect() }
    }

    fn given(&self) -> Given<'_> {
        let mut given = Given::default();
        for (name, value) in &self.channels {
            given.add((*name).to_owned(), None, JSON.to_owned(), value.as_bytes());
        }
        given
    }
}

/// What of a metadata argument can be filtered on.
pub fn metadata_filter(metadata: &str) -> Result<Option<String>> {
    match args::split("metadata", metadata)? {
        Shallow::Object(members) => Ok(filterable(&members)),
        other => Err(args::wrong_json_type("metadata", "an object", metadata, &other).hint("Pass {} for none.")),
    }
}
