use super::*;
use proptest::prelude::*;

/// `u` a user's message, `a` an answer, `c1,2` calls, `r1` a result; the item is the place in the log.
fn exchange(spec: &str, first: usize) -> Vec<Entry<usize>> {
    let entry = |(place, word): (usize, &str)| {
        let ids: Vec<String> = word[1..].split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect();
        let (calls, answers) = match &word[..1] {
            "c" => (ids, vec![]),
            "r" => (vec![], ids),
            _ => (vec![], vec![]),
        };
        Entry { item: first + place, calls, answers }
    };
    spec.split_whitespace().enumerate().map(entry).collect()
}

fn places(selection: Selection<usize>) -> Vec<usize> {
    selection.into_exchanges().into_iter().flatten().flatten().collect()
}

/// The places taken of exchanges given in the order of the log, divided by `|`.
fn taken(log: &str, size: usize) -> Vec<usize> {
    let mut first = 0;
    let mut exchanges = Vec::new();
    for spec in log.split('|') {
        let entries = exchange(spec, first);
        first += entries.len();
        exchanges.push(entries);
    }
    let mut selection = Selection::new(size);
    for exchange in exchanges.into_iter().rev() {
        selection.offer(exchange, true);
    }
    places(selection)
}

#[test]
fn whole_exchanges_as_many_as_fit() {
    let log = "u a | u a | u c1 r1 a";
    assert_eq!(taken(log, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(taken(log, 7), [2, 3, 4, 5, 6, 7]);
    assert_eq!(taken(log, 5), [4, 5, 6, 7]);
    assert_eq!(taken(log, 0), [0; 0]);
}

#[test]
fn an_exchange_that_does_not_fit_beside_newer_ones_hides_what_is_older() {
    assert_eq!(taken("u | u c1 r1 c2 r2 a | u a", 4), [7, 8]);
}

#[test]
fn the_newest_exchange_is_cut_between_groups_and_keeps_its_opening() {
    let log = "u c1,2 r1 r2 c3 r3 a";
    assert_eq!(taken(log, 6), [0, 4, 5, 6]);
    assert_eq!(taken(log, 4), [0, 4, 5, 6]);
    assert_eq!(taken(log, 3), [0, 6]);
    assert_eq!(taken(log, 2), [0, 6]);
    assert_eq!(taken(log, 1), [0]);
}

#[test]
fn calls_without_answers_and_answers_without_calls_are_left_out() {
    assert_eq!(taken("u c1,2 r1 a", 9), [0, 3]);
    assert_eq!(taken("u c1 | u a", 9), [0, 2, 3]);
    assert_eq!(taken("r1 u r2 a", 9), [1, 3]);
    assert_eq!(taken("u c1 r2 r1 a", 9), [0, 1, 3, 4]);
    assert_eq!(taken("u c1 a r1", 9), [0, 2]);
    assert_eq!(taken("u c1,1 r1 r1", 9), [0, 1, 2, 3]);
    assert_eq!(taken("u c1,2 r1,2", 9), [0, 1, 2]);
}

#[test]
fn of_an_exchange_that_is_not_whole_the_end_is_shown_and_nothing_older() {
    let mut selection = Selection::new(5);
    selection.offer(exchange("u r8 a c9 r9", 10), false);
    assert!(selection.is_full());
    selection.offer(exchange("u a", 0), true);
    assert_eq!(places(selection), [10, 12, 13, 14]);
}

#[test]
fn within_a_budget_the_newest_exchanges_stay_whole_and_one_is_cut() {
    let exchanges = || vec![vec![vec![5], vec![1]], vec![vec![2], vec![4, 4], vec![3], vec![1]]];
    let kept = |room| newest_within(exchanges(), room, |weight: &u64| *weight);
    assert_eq!(kept(20), exchanges());
    assert_eq!(kept(19), [vec![vec![2], vec![4, 4], vec![3], vec![1]]]);
    assert_eq!(kept(14), [vec![vec![2], vec![4, 4], vec![3], vec![1]]]);
    assert_eq!(kept(13), [vec![vec![2], vec![3], vec![1]]]);
    assert_eq!(kept(5), [vec![vec![2], vec![1]]]);
    assert_eq!(kept(2), [vec![vec![2]]]);
    assert_eq!(kept(1).concat(), [[0_u64; 0]; 0]);
}

proptest! {
    #[test]
    fn every_selection_is_valid(log in prop::collection::vec("u( a| c1 r1| c1,2 r2 r1| c3| r4){0,6}", 1..8), size in 0_usize..20) {
        let text = log.join(" | ");
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "|").collect();
        let shown = taken(&text, size);
        prop_assert!(shown.len() <= size);
        prop_assert!(shown.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(shown.first().is_none_or(|first| words[*first] == "u"));
        // Every call is followed by exactly its results.
        let mut awaited: Vec<&str> = Vec::new();
        for word in shown.iter().map(|place| words[*place]) {
            match &word[..1] {
                "r" => {
                    let at = awaited.iter().position(|id| *id == &word[1..]);
                    prop_assert!(at.is_some());
                    awaited.remove(at.unwrap_or_default());
                }
                _ => {
                    prop_assert!(awaited.is_empty());
                    if let Some(ids) = word.strip_prefix('c') {
                        awaited = ids.split(',').collect();
                    }
                }
            }
        }
        prop_assert!(awaited.is_empty());
    }
}
