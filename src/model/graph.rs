//! The shape of an agent: per channel its reducer, and whether it is stored.

use super::manifest::JSON;
use super::reducer::Reducer;
use super::writes::{Batch, Write};
use crate::json::{JsonError, Shallow, shallow, shallow_tolerant, unquote};
use std::collections::HashMap;

/// What a graph says of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelShape {
    pub reducer: Reducer,
    pub persist: bool,
}

/// The channels that a graph declares. Of others it says nothing: they are stored, and replaced by each write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    channels: HashMap<String, ChannelShape>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphError {
    Json(JsonError),
    /// It is not an object of objects: what stands at this channel, or at the top.
    Shape(Option<String>, &'static str),
    /// A channel's name that cannot be kept.
    Channel(String),
    /// A member of a channel that has no meaning.
    Member {
        channel: String,
        member: String,
    },
    Reducer {
        channel: String,
        value: String,
    },
    Persist {
        channel: String,
        value: String,
    },
}

impl Graph {
    /// Reads `{"channel": {"reducer": "append", "persist": false}, …}`.
    pub fn parse(text: &str, valid_name: impl Fn(&str) -> bool) -> Result<Graph, GraphError> {
        let channels = match shallow(text).map_err(GraphError::Json)? {
            Shallow::Object(channels) => channels,
            other => return Err(GraphError::Shape(None, other.type_name())),
        };
        let mut graph = Graph::default();
        for channel in channels {
            let name = channel.key.into_owned();
            if !valid_name(&name) {
                return Err(GraphError::Channel(name));
            }
            let base = channel.value.as_ptr() as usize - text.as_ptr() as usize;
            let shape = shallow(channel.value)
                .map_err(|error| GraphError::Json(JsonError { offset: base + error.offset, ..error }))?;
            let shape = channel_shape(&name, shape)?;
            graph.channels.insert(name, shape);
        }
        Ok(graph)
    }

    /// Whether it declares nothing, as for a thread that is not bound.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    pub fn persists(&self, channel: &str) -> bool {
        self.channels.get(channel).is_none_or(|shape| shape.persist)
    }

    /// The reducers that it names.
    pub fn reducers(&self) -> HashMap<String, Reducer> {
        self.channels.iter().map(|(name, shape)| (name.clone(), shape.reducer)).collect()
    }

    fn reducer(&self, channel: &str) -> Reducer {
        self.channels.get(channel).map_or(Reducer::Replace, |shape| shape.reducer)
    }

    /// A declared channel whose reducer could no longer take the values that it has, were `new` in the place of this graph, with
    /// both reducers.
    pub fn broken_by(&self, new: &Graph) -> Option<(&str, Reducer, Reducer)> {
        let mut changes: Vec<(&str, Reducer, Reducer)> =
            self.channels.iter().map(|(name, old)| (name.as_str(), old.reducer, new.reducer(name))).collect();
        changes.sort_unstable_by_key(|(name, _, _)| *name);
        changes.into_iter().find(|(_, old, new)| !takes_values_of(*old, *new))
    }

    /// The value of a JSON state's channel without what must not be stored of it, where that differs: in message lists the
    /// messages that are ephemeral.
    pub fn stored_text(&self, channel: &str, value: &str) -> Option<String> {
        if self.reducer(channel) == Reducer::AddMessages { without_ephemeral(value) } else { None }
    }

    /// The values of a batch's ordinary writes that are stored as other texts, by idx.
    pub fn stored_texts(&self, batch: &Batch<'_>) -> HashMap<i32, String> {
        let json = batch.ordinary.iter().filter(|write| write.value_type == JSON);
        json.filter_map(|write| Some((write.idx, self.stored_text(&write.channel, write.text())?))).collect()
    }

    /// What of a batch is stored: the ordinary writes to channels that persist, under their numbers and with the texts that
    /// [`Graph::stored_texts`] gave; where none is left, `mark`, which says that the task has finished.
    pub fn stored_writes<'a>(&self, batch: Batch<'a>, texts: &'a HashMap<i32, String>, mark: Write<'a>) -> Batch<'a> {
        let had_ordinary = !batch.ordinary.is_empty();
        let persisting = batch.ordinary.into_iter().filter(|write| self.persists(&write.channel));
        let mut ordinary: Vec<Write<'a>> = persisting
            .map(|write| match texts.get(&write.idx) {
                Some(text) => Write { value: text.as_bytes().into(), ..write },
                None => write,
            })
            .collect();
        if had_ordinary && ordinary.is_empty() {
            ordinary.push(mark);
        }
        Batch { ordinary, special: batch.special }
    }
}

fn channel_shape(channel: &str, shape: Shallow<'_>) -> Result<ChannelShape, GraphError> {
    let members = match shape {
        Shallow::Object(members) => members,
        other => return Err(GraphError::Shape(Some(channel.to_owned()), other.type_name())),
    };
    let mut shape = ChannelShape { reducer: Reducer::Replace, persist: true };
    for member in members {
        let (channel, value) = (channel.to_owned(), member.value.to_owned());
        match member.key.as_ref() {
            "reducer" => {
                let name = unquote(member.value).ok();
                let reducer = name.as_deref().and_then(Reducer::by_name);
                shape.reducer = reducer.ok_or(GraphError::Reducer { channel, value })?;
            }
            "persist" => {
                shape.persist = match member.value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(GraphError::Persist { channel, value }),
                };
            }
            _ => return Err(GraphError::Member { channel, member: member.key.into_owned() }),
        }
    }
    Ok(shape)
}

/// Whether a reducer can go on from whatever another one has left in a channel.
fn takes_values_of(old: Reducer, new: Reducer) -> bool {
    let is_list = |reducer| matches!(reducer, Reducer::Append | Reducer::AddMessages | Reducer::Union);
    match new {
        Reducer::Replace => true,
        // Messages are objects, which a list of anything need not have.
        Reducer::AddMessages => old == Reducer::AddMessages,
        Reducer::Append | Reducer::Union => is_list(old),
        Reducer::Sum | Reducer::Merge => old == new,
    }
}

/// A list of messages, or one message, without the ephemeral ones; `None` where there are none, or it is something else.
fn without_ephemeral(value: &str) -> Option<String> {
    let is_ephemeral =
        |message: &str| shallow_tolerant(message).is_ok_and(|message| message.member("ephemeral") == Some("true"));
    match shallow_tolerant(value).ok()? {
        Shallow::Array(messages) => {
            let kept: Vec<&str> = messages.iter().copied().filter(|message| !is_ephemeral(message)).collect();
            (kept.len() < messages.len()).then(|| format!("[{}]", kept.join(", ")))
        }
        Shallow::Object(_) => is_ephemeral(value).then(|| "[]".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::writes::MARK_CHANNEL;
    use super::*;

    fn graph(text: &str) -> Graph {
        Graph::parse(text, |name| !name.is_empty()).unwrap()
    }

    fn refused(text: &str) -> GraphError {
        Graph::parse(text, |name| !name.is_empty()).unwrap_err()
    }

    #[test]
    fn a_channel_is_stored_and_replaced_unless_it_says_otherwise() {
        let graph = graph(r#"{"messages": {"reducer": "add_messages"}, "documents": {"persist": false}, "plain": {}}"#);
        assert!(graph.persists("messages") && graph.persists("plain") && graph.persists("unknown"));
        assert!(!graph.persists("documents"));
        let reducers = graph.reducers();
        assert_eq!(reducers["messages"], Reducer::AddMessages);
        assert_eq!(reducers["documents"], Reducer::Replace);
        assert!(!reducers.contains_key("unknown"));
    }

    #[test]
    fn what_it_cannot_mean_is_refused() {
        assert_eq!(refused("[]"), GraphError::Shape(None, "an array"));
        assert_eq!(refused(r#"{"a": "append"}"#), GraphError::Shape(Some("a".to_owned()), "a string"));
        assert!(matches!(refused(r#"{"a": {"reducer": "concat"}}"#), GraphError::Reducer { .. }));
        assert!(matches!(refused(r#"{"a": {"reducer": null}}"#), GraphError::Reducer { .. }));
        assert!(matches!(refused(r#"{"a": {"persist": "no"}}"#), GraphError::Persist { .. }));
        assert!(matches!(refused(r#"{"a": {"persists": false}}"#), GraphError::Member { .. }));
        assert!(matches!(refused(r#"{"": {}}"#), GraphError::Channel(_)));
        assert!(matches!(refused(r#"{"a": {}, "a": {}}"#), GraphError::Json(_)));
        assert!(
            matches!(refused(r#"{"a": {"persist": true, "persist": true}}"#), GraphError::Json(error) if error.offset == 24)
        );
    }

    #[test]
    fn a_reducer_changes_only_to_one_that_takes_what_is_there() {
        let with = |reducer: &str| graph(&format!(r#"{{"c": {{"reducer": "{reducer}"}}}}"#));
        let changes = |old: &str, new: &str| with(old).broken_by(&with(new)).is_none();
        for (name, _) in Reducer::ALL {
            assert!(changes(name, name) && changes(name, "replace"));
        }
        assert!(changes("add_messages", "append") && changes("append", "union") && changes("union", "append"));
        for (old, new) in
            [("replace", "append"), ("append", "add_messages"), ("append", "sum"), ("merge", "sum"), ("sum", "union")]
        {
            assert!(!changes(old, new), "{old} to {new}");
        }
        assert_eq!(with("sum").broken_by(&graph("{}")), None);
        assert_eq!(graph("{}").broken_by(&with("sum")), None);
        assert_eq!(with("sum").broken_by(&graph(r#"{"c": {"reducer": "sum", "persist": false}}"#)), None);
    }

    #[test]
    fn ephemeral_messages_are_left_out_of_message_lists() {
        let graph = graph(r#"{"m": {"reducer": "add_messages"}, "l": {"reducer": "append"}}"#);
        let list = r#"[{"id":"a"}, {"id": "b", "ephemeral": true}, {"id":"c","ephemeral":false}, 7]"#;
        assert_eq!(graph.stored_text("m", list).as_deref(), Some(r#"[{"id":"a"}, {"id":"c","ephemeral":false}, 7]"#));
        assert_eq!(graph.stored_text("m", r#"{"ephemeral": true}"#).as_deref(), Some("[]"));
        assert_eq!(graph.stored_text("m", r#"[{"ephemeral": false}]"#), None);
        assert_eq!(graph.stored_text("m", r#""ephemeral""#), None);
        assert_eq!(graph.stored_text("l", list), None);
    }

    #[test]
    fn writes_to_channels_that_do_not_persist_are_left_out_and_the_task_has_finished() {
        let graph = graph(r#"{"d": {"persist": false}, "m": {"reducer": "add_messages"}}"#);
        let rows = |json| -> Vec<(i32, String, String)> {
            let batch = Batch::parse(json, |_| true).unwrap();
            let texts = graph.stored_texts(&batch);
            let stored = graph.stored_writes(batch, &texts, Write::mark());
            let rows = stored.ordinary.iter().chain(&stored.special);
            rows.map(|write| (write.idx, write.channel.clone(), write.text().to_owned())).collect()
        };
        let row = |idx, channel: &str, text: &str| (idx, channel.to_owned(), text.to_owned());
        assert_eq!(
            rows(r#"[["d", 1], ["x", 2], ["m", [{"ephemeral": true}, {"id": "a"}]]]"#),
            [row(1, "x", "2"), row(2, "m", r#"[{"id": "a"}]"#)]
        );
        assert_eq!(rows(r#"[["d", 1]]"#), [row(0, MARK_CHANNEL, "null")]);
        assert_eq!(rows(r#"[["__interrupt__", 1]]"#), [row(-3, "__interrupt__", "1")]);
    }
}
