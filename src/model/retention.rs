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
    pub is_leaf: bool,
    /// The run that its metadata names.
    pub run_id: Option<String>,
    /// Its place in the order of acceptance.
    pub revision: i64,
    /// Whether its own parent was deleted: it consumed no writes of the one that it has.
    pub adopted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    pub channel: String,
    /// The framework says so, even if there is nothing to replay.
    pub declared: bool,
}

/// The checkpoints to delete: all but those that stay by their place and themselves, and what the history of those' delta
/// channels is replayed from.
pub fn to_delete(nodes: &[Node], stays: impl Fn(usize, &Node) -> bool) -> HashSet<&str> {
    let by_id: HashMap<&str, &Node> = nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let stay: Vec<&Node> =
        nodes.iter().enumerate().filter(|(at, node)| stays(*at, node)).map(|(_, node)| node).collect();
    let mut kept: HashSet<&str> = stay.iter().map(|node| node.id.as_str()).collect();
    for node in stay {
        kept.extend(replayed_from(node, &by_id));
    }
    by_id.into_keys().filter(|id| !kept.contains(id)).collect()
}

/// The kept children of deleted checkpoints, each with its nearest kept ancestor.
pub fn new_parents<'n>(nodes: &'n [Node], deleted: &HashSet<&str>) -> Vec<(&'n str, Option<&'n str>)> {
    let parent_of: HashMap<&str, Option<&str>> =
        nodes.iter().map(|node| (node.id.as_str(), node.parent.as_deref())).collect();
    let mut moved = Vec::new();
    for node in nodes.iter().filter(|node| !deleted.contains(node.id.as_str())) {
        let mut parent = node.parent.as_deref();
        while let Some(id) = parent.filter(|id| deleted.contains(id)) {
            parent = parent_of[id];
        }
        if parent != node.parent.as_deref() {
            moved.push((node.id.as_str(), parent));
        }
    }
    moved
}

/// The batches of writes that a child consumed: those of its parent that were begun after its elder sibling and before itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches<'n> {
    pub parent: &'n str,
    /// They are of later epochs than this one.
    pub after: i64,
    pub upto: i64,
}

/// What each checkpoint that has its own parent consumed of it.
pub fn batches_of(nodes: &[Node]) -> HashMap<&str, Batches<'_>> {
    let mut children: Vec<(&str, &Node)> =
        nodes.iter().filter(|node| !node.adopted).filter_map(|node| Some((node.parent.as_deref()?, node))).collect();
    children.sort_unstable_by_key(|(parent, node)| (*parent, node.revision));
    let mut batches = HashMap::new();
    let mut elder: Option<(&str, i64)> = None;
    for (parent, node) in children {
        let after = elder.filter(|(of, _)| *of == parent).map_or(-1, |(_, revision)| revision);
        batches.insert(node.id.as_str(), Batches { parent, after, upto: node.revision });
        elder = Some((parent, node.revision));
    }
    batches
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
        let stays = |at, node: &Node| at < keep || node.too_young || (node.interrupted && node.is_leaf);
        let mut deleted: Vec<&str> = to_delete(nodes, stays).into_iter().collect();
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
        nodes.push(Node { interrupted: true, is_leaf: true, ..node("leaf", "1") });
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
    fn children_get_the_nearest_ancestor_that_stays() {
        let mut nodes = chain();
        nodes.push(node("leaf", "2"));
        let moved = new_parents(&nodes, &HashSet::from(["2", "3", "1"]));
        assert_eq!(moved, [("4", None), ("leaf", None)]);
        assert_eq!(new_parents(&nodes, &HashSet::from(["3", "2"])), [("4", Some("1")), ("leaf", Some("1"))]);
        assert_eq!(new_parents(&nodes, &HashSet::from(["5", "leaf"])), []);
    }

    #[test]
    fn a_child_consumed_what_was_begun_between_its_elder_sibling_and_itself() {
        let child = |id, revision, adopted| Node { revision, adopted, ..node(id, "base") };
        let nodes =
            [child("third", 9, false), child("first", 3, false), child("adopted", 4, true), child("second", 5, false)];
        let batches = batches_of(&nodes);
        let of = |id: &str| batches.get(id).map(|batch| (batch.parent, batch.after, batch.upto));
        assert_eq!(of("first"), Some(("base", -1, 3)));
        assert_eq!(of("second"), Some(("base", 3, 5)));
        assert_eq!(of("third"), Some(("base", 5, 9)));
        assert_eq!(of("adopted"), None);
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
