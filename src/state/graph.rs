//! `ckpt_define_graph` and `ckpt_bind`: which channels of an agent are folded how, and which are never stored.

use super::head::Head;
use crate::args;
use crate::error::{Error, Result};
use crate::json_types::JsonbText;
use crate::model::graph::{Graph, GraphError};
use crate::model::reducer::Reducer;
use crate::spi::{Db, Statement, TEXT, param};
use crate::threads;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

static FIND: Statement = Statement::new(
    "SELECT g.channels::pg_catalog.text FROM @s.checkpoint_graphs g WHERE g.tenant @= $1 AND g.graph @= $2",
    &[TEXT, TEXT],
);

// Keeps a graph as it is while a thread is being bound to it.
static LOCK: Statement = Statement::new(
    "SELECT g.channels::pg_catalog.text FROM @s.checkpoint_graphs g WHERE g.tenant @= $1 AND g.graph @= $2 FOR SHARE",
    &[TEXT, TEXT],
);

// Locks it, as far as it is there, against those.
static DEFINE: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_graphs AS g (tenant, graph, channels) VALUES ($1, $2, $3::pg_catalog.json)
     ON CONFLICT (tenant, graph) DO UPDATE SET channels = g.channels
     RETURNING g.channels::pg_catalog.text",
    &[TEXT, TEXT, TEXT],
);

static REDEFINE: Statement = Statement::new(
    "UPDATE @s.checkpoint_graphs AS g SET channels = $3::pg_catalog.json WHERE g.tenant @= $1 AND g.graph @= $2",
    &[TEXT, TEXT, TEXT],
);

static IS_BOUND: Statement = Statement::new(
    "SELECT 1 FROM @s.checkpoint_threads t WHERE t.tenant @= $1 AND t.graph @= $2 LIMIT 1",
    &[TEXT, TEXT],
);

/// Declares the shape of an agent: `{"channel": {"reducer": "append", "persist": false}, …}`. A channel without a reducer is
/// replaced by each write. Declared again, it holds from then on for all threads that are bound to it; what is stored stays.
///
/// Errors: 22004, 22023 for arguments; 55000 threads are bound, and a reducer could not take the values that they may have.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_define_graph(
    fcinfo: pg_sys::FunctionCallInfo,
    graph: Option<&str>,
    channels: Option<JsonbText>,
) -> std::result::Result<(), ErrorReport> {
    let name = args::name("graph", graph)?;
    let channels = args::required("channels", channels)?.0;
    Ok(define(&Db::of_call(fcinfo)?, name, &channels)?)
}

/// Binds a thread, which need not exist yet, to a graph: its reducers hold without being named, and what it does not persist is
/// not stored. What is stored already stays where it is.
///
/// Errors: 22004, 22023 for arguments; P0002 no such graph; 55000 the thread was deleted and is blocked, or is bound to a graph
/// with other reducers.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_bind(
    fcinfo: pg_sys::FunctionCallInfo,
    thread_id: Option<&str>,
    graph: Option<&str>,
) -> std::result::Result<(), ErrorReport> {
    let thread_id = args::thread_id(thread_id)?;
    let name = args::name("graph", graph)?;
    Ok(bind(&Db::of_call(fcinfo)?, thread_id, name)?)
}

/// The graph that the thread of a head is bound to; an empty one where it is not.
pub fn graph_of(db: &Db, head: &Head) -> Result<Graph> {
    match &head.graph {
        None => Ok(Graph::default()),
        // Under the lock of the head, with what was committed before it.
        Some(name) => {
            match db
                .write_one(&FIND, &[param(db.tenant.as_str()), param(name.as_str())], |row| row.must::<String>(1))?
            {
                Some(text) => stored(name, &text),
                None => Err(Error::no_graph(name)),
            }
        }
    }
}

fn define(db: &Db, name: &str, channels: &str) -> Result<()> {
    let new = Graph::parse(channels, args::is_channel_name).map_err(|error| graph_error(channels, error))?;
    let graph = || [param(db.tenant.as_str()), param(name)];
    let [tenant, graph_name] = graph();
    let before: Option<String> = db.write_one(&DEFINE, &[tenant, graph_name, param(channels)], |row| row.must(1))?;
    let before = before.unwrap_or_default();
    if before == channels {
        return Ok(());
    }
    if let Some((channel, old, new)) = stored(name, &before)?.broken_by(&new)
        && !db.read_now(&IS_BOUND, &graph(), |row| row.must::<i32>(1))?.is_empty()
    {
        return Err(reducer_change(&format!("graph \"{name}\""), channel, old, new)
            .hint("Define it under another name and bind new threads to that, or keep the reducer."));
    }
    let [tenant, graph_name] = graph();
    db.execute(&REDEFINE, &[tenant, graph_name, param(channels)])?;
    Ok(())
}

fn bind(db: &Db, thread_id: &str, name: &str) -> Result<()> {
    threads::lock(db, thread_id)?;
    threads::check_not_blocked(db, thread_id)?;
    let find =
        |statement, name: &str| db.write_one(statement, &[param(db.tenant.as_str()), param(name)], |row| row.must(1));
    let graph: Option<String> = find(&LOCK, name)?;
    let graph = stored(name, &graph.ok_or_else(|| Error::no_graph(name))?)?;
    if let Some(before) = threads::graph(db, thread_id)?
        && before != name
        && let Some(text) = find(&FIND, &before)?
        && let Some((channel, old, new)) = stored(&before, &text)?.broken_by(&graph)
    {
        return Err(reducer_change(
            &format!("thread \"{thread_id}\", which is bound to graph \"{before}\","),
            channel,
            old,
            new,
        )
        .hint("Bind new threads to the graph, or give it the reducers of the other one."));
    }
    threads::bind(db, thread_id, name)?;
    Head::bind_all(db, thread_id, name)
}

fn stored(name: &str, channels: &str) -> Result<Graph> {
    // A later version may know more of a channel than this one.
    Graph::parse(channels, args::is_channel_name).map_err(|_| {
        Error::wrong_state(format!("graph \"{name}\" has a declaration that this version of checkpointer cannot read"))
            .hint("Update the extension's files and run ALTER EXTENSION checkpointer UPDATE.")
    })
}

fn reducer_change(what: &str, channel: &str, old: Reducer, new: Reducer) -> Error {
    Error::wrong_state(format!("{what} cannot change the reducer of channel \"{channel}\"")).detail(format!(
        "It is {} and would be {}, which cannot take what threads may have there.",
        old.name(),
        new.name()
    ))
}

fn graph_error(channels: &str, error: GraphError) -> Error {
    let example = "Pass {\"messages\": {\"reducer\": \"add_messages\"}, \"documents\": {\"persist\": false}}.";
    let invalid = |message: String| Error::invalid(message).detail("Nothing was declared.");
    match error {
        GraphError::Json(error) => Error::json("channels", channels, &error),
        GraphError::Shape(None, found) => invalid(format!("channels must be an object, not {found}")).hint(example),
        GraphError::Shape(Some(channel), found) => {
            invalid(format!("channel \"{channel}\" must be declared by an object, not {found}")).hint(example)
        }
        GraphError::Channel(name) => args::bad_channel_name("channels", "$", &name),
        GraphError::Member { channel, member } => {
            invalid(format!("channel \"{channel}\" has \"{member}\", which means nothing"))
                .hint("A channel has a \"reducer\" and \"persist\", both optional.")
        }
        GraphError::Reducer { channel, value } => {
            let known: Vec<&str> = Reducer::ALL.iter().map(|(name, _)| *name).collect();
            invalid(format!("unknown reducer {value} for channel \"{channel}\""))
                .hint(format!("The reducers are {}.", known.join(", ")))
        }
        GraphError::Persist { channel, value } => {
            invalid(format!("\"persist\" of channel \"{channel}\" is {value}")).hint("Pass true or false.")
        }
    }
}
