//! Which checkpoints of a namespace a prune keeps, apart from where they are stored.

use std::collections::{HashMap, HashSet};

/// What a prune looks at of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub parent: Option<String>,
    /// Channels that have a version and no value, or of which the framework says that it keeps only their changes.
    pub without_value: Vec<Delta>,
    /// Channels that have a value.
    pub with_value: HashSet<String>,
    /// Channels that its pending writes go to.
    pub written: HashSet<String>,
    /// Younger than the age from which on it may be deleted.
    pub too_young: bool,
    pub interrupted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    pub channel: String,
    /// The framework says so, even if there is nothing to replay.
    pub declared: bool,
}

/// The checkpoints to delete, of `nodes` that come newest first, the latest before all others. The first `keep` stay, what is
/// too young, a leaf that waits for an answer, and what the history of a kept checkpoint's delta channels is replayed from.
pub fn to_delete(nodes: &[Node], keep: usize) -> HashSet<&str> {
    let by_id: HashMap<&str, &Node> = nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let parents: HashSet<&str> = nodes.iter().filter_map(|node| node.parent.as_deref()).collect();
    let stays = |(at, node): &(usize, &Node)| {
        *at < keep || node.too_young || (node.interrupted && !parents.contains(node.id.as_str()))
    };
    let mut kept: HashSet<&str> = nodes.iter().enumerate().filter(stays).map(|(_, node)| node.id.as_str()).collect();
    let newest: Vec<&str> = kept.iter().copied().collect();
    for id in newest {
        kept.extend(replayed_from(by_id[id], &by_id));
    }
    by_id.into_keys().filter(|id| !kept.contains(id)).collect()
}

/// The ancestors from which the delta channels of a checkpoint are replayed, and all between.
fn replayed_from<'n>(node: &Node, by_id: &HashMap<&'n str, &'n Node>) -> Vec<&'n str> {
    let mut open: Vec<(&Delta, bool)> = node.without_value.iter().map(|delta| (delta, delta.declared)).collect();
    let mut ancestors = Vec::new();
    let mut needed = 0;
    let mut at = node.parent.as_deref();
    while let Some(ancestor) = at.and_then(|id| by_id.get(id))
        && !open.is_empty()
    {
        ancestors.push(ancestor.id.as_str());
        open.retain_mut(|(delta, replayed)| {
            *replayed |= ancestor.written.contains(&delta.channel);
            if *replayed {
                needed = ancestors.len();
            }
            !ancestor.with_value.contains(&delta.channel)
        });
        at = ancestor.parent.as_deref();
    }
    ancestors.truncate(needed);
    ancestors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, parent: &str) -> Node {
        let parent = (!parent.is_empty()).then(|| parent.to_owned());
        Node { id: id.to_owned(), parent, ..Node::default() }
    }

    fn names(list: &[&str]) -> HashSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn deleted(nodes: &[Node], keep: usize) -> Vec<&str> {
        let mut deleted: Vec<&str> = to_delete(nodes, keep).into_iter().collect();
        deleted.sort_unstable();
        deleted
    }

    fn chain() -> Vec<Node> {
        vec![node("5", "4"), node("4", "3"), node("3", "2"), node("2", "1"), node("1", "")]
    }

    #[test]
    fn the_newest_stay() {
        assert_eq!(deleted(&chain(), 2), ["1", "2", "3"]);
        assert_eq!(deleted(&chain(), 9), [""; 0]);
    }

    #[test]
    fn what_is_young_or_waits_for_an_answer_stays() {
        let mut nodes = chain();
        nodes[3].too_young = true;
        nodes.push(Node { interrupted: true, ..node("leaf", "1") });
        nodes[2].interrupted = true;
        assert_eq!(deleted(&nodes, 1), ["1", "3", "4"]);
    }

    #[test]
    fn a_delta_channel_s_history_stays_down_to_its_value() {
        let mut nodes = chain();
        nodes[0].without_value = vec![Delta { channel: "m".to_owned(), declared: false }];
        nodes[1].written = names(&["m"]);
        nodes[2].with_value = names(&["other"]);
        nodes[3].with_value = names(&["m"]);
        nodes[3].written = names(&["m"]);
        nodes[4].written = names(&["m"]);
        assert_eq!(deleted(&nodes, 1), ["1"]);
    }

    #[test]
    fn an_empty_channel_without_writes_needs_nothing() {
        let mut nodes = chain();
        nodes[0].without_value = vec![Delta { channel: "m".to_owned(), declared: false }];
        assert_eq!(deleted(&nodes, 1), ["1", "2", "3", "4"]);
        // A declared one needs the value that it starts from, or the whole chain if there is none.
        nodes[0].without_value[0].declared = true;
        assert_eq!(deleted(&nodes, 1), [""; 0]);
        nodes[2].with_value = names(&["m"]);
        assert_eq!(deleted(&nodes, 1), ["1", "2"]);
    }
}
