//! `ckpt_fork`: another way from an earlier point.

use super::Namespace;
use super::checkpoint::{Checkpoint, Content, add};
use super::graph::graph_of;
use super::head::Head;
use crate::args;
use crate::error::{Error, Result};
use crate::spi::Db;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// What the metadata of a fork says, as LangGraph's does.
const METADATA: &str = r#"{"source": "fork"}"#;

/// Makes a child of a checkpoint with the same state and next tasks and none of its writes, and the latest from then on. All
/// stored bytes are shared.
///
/// Errors: P0002 no such checkpoint.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_fork(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    checkpoint_id: Option<&str>,
    checkpoint_ns: default!(Option<&str>, "''"),
) -> std::result::Result<String, ErrorReport> {
    let ns = Namespace::of_args(thread_id, checkpoint_ns)?;
    let checkpoint_id = args::name("checkpoint_id", checkpoint_id)?;
    Ok(fork(&Db::of_call(fcinfo)?, ns, checkpoint_id)?)
}

fn fork(db: &Db, ns: Namespace<'_>, checkpoint_id: &str) -> Result<String> {
    let mut head = Head::lock(db, ns)?;
    let mut source = Checkpoint::locked(db, ns, checkpoint_id)?
        .ok_or_else(|| Error::no_checkpoint(ns.thread_id, ns.checkpoint_ns, checkpoint_id))?;
    let graph = graph_of(db, &head)?;
    source.manifest.channels.retain(|channel| graph.persists(&channel.name));
    let content = Content {
        manifest: &source.manifest,
        body: source.body.as_deref(),
        metadata: METADATA,
        metadata_filter: Some(METADATA),
        next: &source.next,
    };
    // The latest whatever its id: without a latest to compare with, the new one is it.
    head.latest_id = None;
    add(db, &mut head, ns, None, Some(checkpoint_id), &content)
}
