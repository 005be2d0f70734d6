//! `ckpt_put_typed` and `ckpt_put_writes_typed`: for frameworks with a serializer of their own. Values are a type tag and bytes,
//! versions of channels are the framework's and kept as given.

use super::Namespace;
use super::checkpoint::{Checkpoint, Content, add, decode_manifest, locked_manifest};
use super::graph::graph_of;
use super::head::Head;
use super::put::{check_fence, metadata_filter};
use super::values::Given;
use super::writes::PutWrites;
use crate::args;
use crate::error::{Error, Result};
use crate::json::Shallow;
use crate::json_types::JsonText;
use crate::model::checkpoint_id::as_uuid6;
use crate::model::graph::Graph;
use crate::model::manifest::{Channel, Manifest, Place};
use crate::model::writes::{Batch, Tasks};
use crate::spi::{Db, Statement, TEXT};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::HashMap;

/// Saves a framework's checkpoint and returns its id. `versions` names all channels with their versions; those that are not
/// among `channels` are carried over from the parent. A NULL among `bytes`: the channel has this version and no value.
///
/// Errors: 22004, 22023, 54000 for arguments; 40001 the fence, or a lost race.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_put_typed(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_id: Option<&str>,
    checkpoint: Option<JsonText<'_>>,
    versions: Option<JsonText<'_>>,
    channels: default!(Option<Array<'_, &str>>, "'{}'"),
    types: default!(Option<Array<'_, &str>>, "'{}'"),
    bytes: default!(Option<Array<'_, &[u8]>>, "'{}'"),
    metadata: default!(Option<JsonText<'_>>, "'{}'"),
    checkpoint_ns: default!(Option<&str>, "''"),
    parent_checkpoint_id: default!(Option<&str>, "NULL"),
    expected_latest: default!(Option<&str>, "NULL"),
) -> std::result::Result<String, ErrorReport> {
    let body = args::json("checkpoint", checkpoint)?;
    args::object_text("checkpoint", body)?;
    let metadata = args::json("metadata", metadata)?;
    let metadata_filter = metadata_filter(metadata)?;
    let put = PutTyped {
        ns: Namespace::of_args(thread_id, checkpoint_ns)?,
        id: args::name("checkpoint_id", checkpoint_id)?,
        parent: parent_checkpoint_id.map(|id| args::name_or_empty("parent_checkpoint_id", Some(id))).transpose()?,
        expected_latest: expected_latest.map(|id| args::name_or_empty("expected_latest", Some(id))).transpose()?,
        versions: parse_versions(args::json("versions", versions)?)?,
        values: typed_values(channels.as_ref(), types.as_ref(), bytes.as_ref())?,
        body,
        metadata,
        metadata_filter,
    };
    put.check_values()?;
    Ok(put.run(&Db::of_call(fcinfo)?)?)
}

struct PutTyped<'a> {
    ns: Namespace<'a>,
    id: &'a str,
    parent: Option<&'a str>,
    expected_latest: Option<&'a str>,
    /// Channel and version, as JSON text, in the order given.
    versions: Vec<(String, String)>,
    values: Vec<TypedValue<'a>>,
    body: &'a str,
    metadata: &'a str,
    metadata_filter: Option<String>,
}

struct TypedValue<'a> {
    channel: &'a str,
    value_type: &'a str,
    bytes: Option<&'a [u8]>,
}

static NEWEST_FIRST: Statement = Statement::new(
    "SELECT c.manifest FROM @s.checkpoints c
     WHERE c.thread_id @= $1 AND c.tenant @= $2 AND c.checkpoint_ns @= $3
     ORDER BY c.revision DESC",
    &[TEXT, TEXT, TEXT],
);

impl PutTyped<'_> {
    fn run(&self, db: &Db) -> Result<String> {
        if self.expected_latest.is_some() {
            return self.run_fenced(db);
        }
        // The hot path: the head moves in the statement that locks it, as if the id were new; nearly always it is.
        let uuid = as_uuid6(self.id);
        let head = Head::advance(db, self.ns, self.id, self.parent, uuid.as_deref(), false)?
            .ok_or_else(|| Error::deleted_meanwhile(self.ns.thread_id))?;
        let graph = graph_of(db, &head)?;
        let parent = self.parent(&head);
        let base = self.base(db, parent)?;
        let values = self.given(db, base.as_ref(), &graph)?.hash(db, self.ns, base.as_ref())?;
        let content = self.content(&values.manifest);
        if content.insert(db, self.ns, self.id, parent, head.revision)? {
            values.store(db, self.ns)?;
            return Ok(self.id.to_owned());
        }
        head.save(db, self.ns)?;
        self.repeat(db, &head)
    }

    fn run_fenced(&self, db: &Db) -> Result<String> {
        let mut head = Head::lock(db, self.ns)?;
        if Checkpoint::locked(db, self.ns, self.id)?.is_some() {
            return self.repeat(db, &head);
        }
        check_fence(self.ns, &head, self.expected_latest)?;
        let graph = graph_of(db, &head)?;
        let latest = head.latest_id.clone();
        let parent = match self.parent {
            None => latest.as_deref(),
            given => given.filter(|id| !id.is_empty()),
        };
        let base = self.base(db, parent)?;
        let values = self.given(db, base.as_ref(), &graph)?.hash(db, self.ns, base.as_ref())?;
        values.store(db, self.ns)?;
        add(db, &mut head, self.ns, Some(self.id), parent, &self.content(&values.manifest))
    }

    /// A put under an id that is taken: the same content is a no-op, whatever the fence says; other content takes its place.
    fn repeat(&self, db: &Db, head: &Head) -> Result<String> {
        let existing = Checkpoint::locked(db, self.ns, self.id)?
            .ok_or_else(|| Error::no_checkpoint(self.ns.thread_id, self.ns.checkpoint_ns, self.id))?;
        // What is not sent again is carried over from the same parent as before.
        let base = self.base(db, existing.parent_checkpoint_id.as_deref())?;
        let graph = graph_of(db, head)?;
        let values = self.given(db, base.as_ref(), &graph)?.hash(db, self.ns, Some(&existing.manifest))?;
        let content = self.content(&values.manifest);
        if !content.is_of(&existing) {
            check_fence(self.ns, head, self.expected_latest)?;
            values.store(db, self.ns)?;
            content.replace(db, &existing)?;
        }
        Ok(existing.checkpoint_id)
    }

    fn parent<'h>(&'h self, head: &'h Head) -> Option<&'h str> {
        match self.parent {
            None => head.latest_id.as_deref(),
            given => given.filter(|id| !id.is_empty()),
        }
    }

    fn base(&self, db: &Db, parent: Option<&str>) -> Result<Option<Manifest>> {
        parent.map_or(Ok(None), |id| locked_manifest(db, self.ns, id))
    }

    fn content<'c>(&'c self, manifest: &'c Manifest) -> Content<'c> {
        Content {
            manifest,
            body: Some(self.body),
            metadata: self.metadata,
            metadata_filter: self.metadata_filter.as_deref(),
            next: &[],
        }
    }

    /// The channels: those that were sent, and the others as the parent has them at their versions. One that does not persist has
    /// its version and no value.
    fn given(&self, db: &Db, base: Option<&Manifest>, graph: &Graph) -> Result<Given<'_>> {
        let sent: HashMap<&str, &TypedValue<'_>> = self.values.iter().map(|value| (value.channel, value)).collect();
        let of_base: HashMap<&str, &Channel> =
            base.iter().flat_map(|base| &base.channels).map(|channel| (channel.name.as_str(), channel)).collect();
        let carried = |name: &str, version: &String| {
            of_base.get(name).filter(|channel| channel.version.as_ref() == Some(version)).copied()
        };
        let wanted: Vec<(&str, &String)> = self
            .versions
            .iter()
            .map(|(name, version)| (name.as_str(), version))
            .filter(|(name, version)| {
                graph.persists(name) && !sent.contains_key(name) && carried(name, version).is_none()
            })
            .collect();
        let mut found = self.newest(db, &wanted)?;
        let mut given = Given::default();
        for (name, version) in &self.versions {
            let absent = |value_type: &str| Channel {
                name: name.clone(),
                version: Some(version.clone()),
                value_type: value_type.to_owned(),
                place: Place::Absent,
            };
            match sent.get(name.as_str()) {
                _ if !graph.persists(name) => given.keep(absent("")),
                Some(TypedValue { value_type, bytes: Some(bytes), .. }) => {
                    given.add(name.clone(), Some(version.clone()), (*value_type).to_owned(), bytes);
                }
                Some(TypedValue { value_type, bytes: None, .. }) => given.keep(absent(value_type)),
                None => {
                    let channel = carried(name, version).cloned().or_else(|| found.remove(name.as_str()));
                    given.keep(channel.unwrap_or_else(|| absent("")));
                }
            }
        }
        Ok(given)
    }

    /// Where the parent is not stored or has another version: the newest value of the namespace, channel and version.
    fn newest(&self, db: &Db, wanted: &[(&str, &String)]) -> Result<HashMap<String, Channel>> {
        let mut found = HashMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        db.each(&NEWEST_FIRST, &self.ns.args(db), |row| {
            if found.len() < wanted.len() {
                for channel in decode_manifest(self.ns.thread_id, row.bytes(1)?)?.channels {
                    let is_it = |(name, version): &(&str, &String)| {
                        channel.name == *name && channel.version.as_ref() == Some(*version)
                    };
                    if channel.place != Place::Absent && wanted.iter().any(is_it) {
                        found.entry(channel.name.clone()).or_insert(channel);
                    }
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn check_values(&self) -> Result<()> {
        let mut seen = HashMap::new();
        let versioned: HashMap<&str, ()> = self.versions.iter().map(|(name, _)| (name.as_str(), ())).collect();
        for value in &self.values {
            if seen.insert(value.channel, ()).is_some() {
                return Err(Error::invalid(format!("channel \"{}\" stands twice in channels", value.channel))
                    .detail("A channel has one value.")
                    .hint("Pass each channel once."));
            }
            if !versioned.contains_key(value.channel) {
                return Err(Error::invalid(format!("channel \"{}\" has no version", value.channel))
                    .detail("It is in channels and not in versions.")
                    .hint("Pass the version of every channel: {\"messages\": \"00000002.0.4\", …}."));
            }
        }
        Ok(())
    }
}

/// `{"channel": version, …}`: a version is a string or an integer.
fn parse_versions(text: &str) -> Result<Vec<(String, String)>> {
    let members = match args::split("versions", text)? {
        Shallow::Object(members) => members,
        other => {
            return Err(args::wrong_json_type("versions", "an object", text, &other)
                .hint("Pass the version of every channel: {\"messages\": \"00000002.0.4\", …}."));
        }
    };
    let mut versions = Vec::with_capacity(members.len());
    for member in members {
        let version = member.value.trim();
        let integer = version.strip_prefix('-').unwrap_or(version).bytes().all(|byte| byte.is_ascii_digit());
        if !version.starts_with('"') && !integer {
            return Err(Error::invalid(format!("the version of channel \"{}\" is {version}", member.key))
                .detail("A version is a string or an integer.")
                .hint("Pass the framework's channel versions as they are."));
        }
        if !args::is_channel_name(&member.key) {
            return Err(args::bad_channel_name("versions", "$", &member.key));
        }
        versions.push((member.key.into_owned(), version.to_owned()));
    }
    Ok(versions)
}

/// Three arrays of one length.
fn typed_values<'a>(
    channels: Option<&'a Array<'_, &str>>,
    types: Option<&'a Array<'_, &str>>,
    bytes: Option<&'a Array<'_, &[u8]>>,
) -> Result<Vec<TypedValue<'a>>> {
    let channels = args::required("channels", channels)?;
    let types = args::required("types", types)?;
    let bytes = args::required("bytes", bytes)?;
    if channels.len() != types.len() || channels.len() != bytes.len() {
        return Err(Error::invalid("channels, types and bytes must have the same length".to_owned())
            .detail(format!("They have {}, {} and {} elements.", channels.len(), types.len(), bytes.len()))
            .hint("Pass one type and one value for each channel."));
    }
    let mut values = Vec::with_capacity(channels.len());
    for (at, ((channel, value_type), bytes)) in channels.iter().zip(types.iter()).zip(bytes.iter()).enumerate() {
        let channel = args::required("an element of channels", channel)?;
        if !args::is_channel_name(channel) {
            return Err(args::bad_channel_name("channels", &format!("$[{at}]"), channel));
        }
        let value_type = args::name_or_empty("an element of types", value_type)?;
        values.push(TypedValue { channel, value_type, bytes });
    }
    Ok(values)
}

/// Logs what a framework's task produced; returns how many writes were stored. A late write is never refused, and an error
/// stands beside a later success.
///
/// Errors: 22004, 22023, 54000 for arguments; 23505 the task has other writes.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_put_writes_typed(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_id: Option<&str>,
    task_id: Option<&str>,
    channels: Option<Array<'_, &str>>,
    types: Option<Array<'_, &str>>,
    bytes: Option<Array<'_, &[u8]>>,
    checkpoint_ns: default!(Option<&str>, "''"),
    task_path: default!(Option<&str>, "''"),
    on_conflict: default!(Option<&str>, "'error'"),
) -> std::result::Result<i32, ErrorReport> {
    let values = typed_values(channels.as_ref(), types.as_ref(), bytes.as_ref())?;
    let mut writes = Vec::with_capacity(values.len());
    for TypedValue { channel, value_type, bytes } in values {
        writes.push((channel, value_type, args::required("an element of bytes", bytes)?));
    }
    let put = PutWrites {
        ns: Namespace::of_args(thread_id, checkpoint_ns)?,
        checkpoint_id: args::name("checkpoint_id", checkpoint_id)?,
        task_id: args::name("task_id", task_id)?,
        batch: Batch::typed(writes.into_iter()),
        task_path: args::task_path(task_path)?,
        on_conflict: args::on_conflict(on_conflict)?,
        tasks: Tasks::Theirs,
    };
    Ok(put.run(&Db::of_call(fcinfo)?)?)
}
