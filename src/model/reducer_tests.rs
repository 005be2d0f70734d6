use super::*;
use proptest::prelude::*;

const ORIGIN: Origin<'_> = Origin { checkpoint_id: "c", task_id: "t", idx: 0 };

fn reduce(reducer: Reducer, current: Option<&str>, write: &str, origin: Origin<'_>) -> Result<String, ReduceError> {
    let mut accumulator = Accumulator::new(reducer, current)?;
    accumulator.add(write, origin)?;
    Ok(accumulator.finish())
}

fn value(reducer: Reducer, current: Option<&str>, write: &str) -> String {
    reduce(reducer, current, write, ORIGIN).expect("a value")
}

fn error(reducer: Reducer, current: Option<&str>, write: &str) -> ReduceError {
    reduce(reducer, current, write, ORIGIN).expect_err("refused")
}

fn wrong(whose: Whose, found: &'static str) -> impl Fn(ReduceError) -> bool {
    move |error| matches!(error, ReduceError::WrongType { whose: w, found: f, .. } if w == whose && f == found)
}

#[test]
fn replace_gives_the_write() {
    assert_eq!(value(Reducer::Replace, Some("[1]"), "null"), "null");
}

#[test]
fn append_takes_a_list_or_one_value_and_keeps_the_text_before() {
    assert_eq!(value(Reducer::Append, None, "1.0"), "[1.0]");
    assert_eq!(value(Reducer::Append, None, "[]"), "[]");
    assert_eq!(value(Reducer::Append, Some("[ 1e0,{\"b\":1} ]"), "[2, [3]]"), "[ 1e0,{\"b\":1} , 2, [3]]");
    assert_eq!(value(Reducer::Append, Some("[ ]"), "{\"a\": null}"), "[{\"a\": null}]");
    assert_eq!(value(Reducer::Append, Some("[1]"), "[]"), "[1]");
    assert_eq!(value(Reducer::Append, Some("[1]"), "null"), "[1, null]");
    assert!(wrong(Whose::Channel, "an object")(error(Reducer::Append, Some("{}"), "1")));
    assert!(wrong(Whose::Channel, "null")(error(Reducer::Append, Some("null"), "1")));
}

#[test]
fn union_adds_what_is_not_there_by_value() {
    assert_eq!(value(Reducer::Union, Some("[1, \"a\"]"), "[1.0, \"\\u0061\", 2, 2.0]"), "[1, \"a\", 2]");
    assert_eq!(value(Reducer::Union, Some("[{\"a\":1,\"b\":2}]"), "{\"b\":2,\"a\":1}"), "[{\"a\":1,\"b\":2}]");
    assert_eq!(value(Reducer::Union, None, "[3,3]"), "[3]");
}

#[test]
fn sum_is_exact() {
    for (current, write, expected) in [
        ("0.1", "0.2", "0.3"),
        ("1180591620717411303424", "1", "1180591620717411303425"),
        ("1e16", "1", "10000000000000001"),
        ("10000000000000000000000", "0.0000000000000000000001", "10000000000000000000000.0000000000000000000001"),
        ("-0.0", "-2.50", "-2.50"),
        ("1", "-1", "0"),
    ] {
        assert_eq!(value(Reducer::Sum, Some(current), write), expected, "{current} + {write}");
    }
    assert_eq!(value(Reducer::Sum, None, "1.0"), "1.0");
    assert!(wrong(Whose::Write, "a string")(error(Reducer::Sum, Some("1"), "\"1\"")));
    assert!(wrong(Whose::Channel, "a string")(error(Reducer::Sum, Some("\"1\""), "1")));
    assert!(wrong(Whose::Write, "null")(error(Reducer::Sum, None, "null")));
    for huge in ["1e20000", "1e-20000", "1e999999999999999999999999"] {
        assert_eq!(error(Reducer::Sum, Some("1"), huge), ReduceError::TooManyDigits, "{huge}");
    }
}

#[test]
fn merge_is_by_key_and_keeps_places() {
    assert_eq!(
        value(Reducer::Merge, Some(r#"{"a":1,"b":{"x":1}}"#), r#"{"c":2.0,"b":{"y":1},"\u0061":null}"#),
        r#"{"a": null, "b": {"y":1}, "c": 2.0}"#
    );
    assert!(wrong(Whose::Write, "an array")(error(Reducer::Merge, None, "[]")));
    assert!(wrong(Whose::Channel, "a number")(error(Reducer::Merge, Some("1"), "{}")));
}

#[test]
fn add_messages_replaces_a_known_id_in_place() {
    let list = r#"[{"id":"a","content":"1"}, {"id":"b","content":"2"}]"#;
    assert_eq!(
        value(Reducer::AddMessages, Some(list), r#"[{"id":"a","content":"one"},{"id":"c"}]"#),
        r#"[{"id":"a","content":"one"}, {"id":"b","content":"2"}, {"id":"c"}]"#
    );
    assert_eq!(value(Reducer::AddMessages, None, r#"[{"id":"x","n":1},{"id":"x","n":2}]"#), r#"[{"id":"x","n":2}]"#);
}

#[test]
fn add_messages_gives_ids_over_base_task_and_place() {
    let write = r#"[{"role":"user"},{"role":"user"},{"role":"tool","id":null}]"#;
    let first = value(Reducer::AddMessages, None, write);
    assert_eq!(first, value(Reducer::AddMessages, None, write));
    let Shallow::Array(messages) = shallow(&first).unwrap() else { panic!("a list") };
    let ids: HashSet<&str> = messages.iter().map(|m| shallow(m).unwrap().member("id").unwrap()).collect();
    assert_eq!((messages.len(), ids.len()), (3, 3));
    for other in
        [Origin { checkpoint_id: "d", ..ORIGIN }, Origin { task_id: "u", ..ORIGIN }, Origin { idx: 1, ..ORIGIN }]
    {
        let second = reduce(Reducer::AddMessages, None, write, other).unwrap();
        assert!(ids.iter().all(|id| !second.contains(id)));
    }
}

#[test]
fn add_messages_drops_ephemeral_ones_and_refuses_what_is_no_message() {
    assert_eq!(
        value(Reducer::AddMessages, None, r#"[{"id":"a","ephemeral":true},{"id":"b","ephemeral":false}]"#),
        r#"[{"id":"b","ephemeral":false}]"#
    );
    assert!(wrong(Whose::Write, "a string")(error(Reducer::AddMessages, None, r#"["hi"]"#)));
    assert!(matches!(error(Reducer::AddMessages, None, r#"{"id":1}"#), ReduceError::BadMessage(_)));
    assert!(matches!(error(Reducer::AddMessages, None, r#"{"ephemeral":"yes"}"#), ReduceError::BadMessage(_)));
}

#[test]
fn every_reducer_has_its_name() {
    for (name, reducer) in Reducer::ALL {
        assert_eq!((Reducer::by_name(name), reducer.name()), (Some(reducer), name));
    }
    assert_eq!(Reducer::by_name("Append"), None);
}

/// All writes in one fold give what folds one after the other give.
#[test]
fn writes_accumulate() {
    for (reducer, current, writes) in [
        (Reducer::Append, Some("[1]"), vec!["2", "[3, 4]", "[]"]),
        (Reducer::Append, None, vec!["[]", "[[]]"]),
        (
            Reducer::AddMessages,
            Some(r#"[{"id":"a"}, {"x":1}]"#),
            vec![r#"{"id":"b","n":1}"#, r#"[{"id":"a","n":2},{"id":"b","n":3}]"#],
        ),
        (Reducer::Union, Some("[1]"), vec!["[2,1.0]", "2", "3"]),
        (Reducer::Sum, None, vec!["1.50", "1", "-0.5"]),
        (Reducer::Merge, None, vec![r#"{"a":1}"#, r#"{"b":2}"#, r#"{"a":3}"#]),
        (Reducer::Merge, Some("{}"), vec![r#"{ "a":1}"#]),
        (Reducer::Replace, Some("1"), vec!["2", "3"]),
    ] {
        let mut at_once = Accumulator::new(reducer, current).unwrap();
        let mut one_by_one = current.map(str::to_owned);
        for write in writes {
            at_once.add(write, ORIGIN).unwrap();
            one_by_one = Some(value(reducer, one_by_one.as_deref(), write));
        }
        assert_eq!(Some(at_once.finish()), one_by_one, "{reducer:?}");
    }
}

proptest! {
    #[test]
    fn appending_in_parts_is_appending_at_once(a in prop::collection::vec(any::<i32>(), 0..8), b in prop::collection::vec(any::<i32>(), 0..8)) {
        let json = |list: &[i32]| serde_json::to_string(list).unwrap();
        let parts = value(Reducer::Append, Some(&value(Reducer::Append, None, &json(&a))), &json(&b));
        let read: Vec<i32> = serde_json::from_str(&parts).unwrap();
        prop_assert_eq!(read, [a, b].concat());
    }

    #[test]
    fn sums_are_those_of_integers(numbers in prop::collection::vec(any::<i64>(), 1..20)) {
        let mut sum = numbers[0].to_string();
        for number in &numbers[1..] {
            sum = value(Reducer::Sum, Some(&sum), &number.to_string());
        }
        prop_assert_eq!(sum, numbers.iter().map(|n| i128::from(*n)).sum::<i128>().to_string());
    }
}
