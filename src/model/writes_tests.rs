use super::*;

fn batch(json: &str) -> Batch<'_> {
    Batch::parse(json, |name| !name.is_empty()).expect("a batch")
}

fn change<'a>(rows: &[Write<'_>], json: &'a str, on_conflict: OnConflict) -> Change<'a> {
    settle(rows, &batch(json), on_conflict, Tasks::Ours).expect("no conflict")
}

/// The rows of a task after a change.
fn after<'a>(rows: &[Write<'a>], change: Change<'a>) -> Vec<Write<'a>> {
    let mut rows: Vec<Write<'a>> = rows.iter().filter(|row| !change.remove.contains(&row.idx)).cloned().collect();
    rows.extend(change.store);
    rows.sort_by_key(|row| row.idx);
    rows
}

fn logged<'a>(batches: &[&'a str]) -> Vec<Write<'a>> {
    batches.iter().fold(Vec::new(), |rows, json| {
        let change = change(&rows, json, OnConflict::Error);
        after(&rows, change)
    })
}

fn shown<'w>(rows: &'w [Write<'_>]) -> Vec<(i32, &'w str, &'w str)> {
    rows.iter().map(|row| (row.idx, row.channel.as_str(), row.text())).collect()
}

#[test]
fn ordinary_writes_count_from_zero_and_special_channels_have_fixed_places() {
    let rows =
        logged(&[r#"[["a", 1], ["__interrupt__", "?"], ["b", {"x": 1.0}], ["__resume__", 2], ["__scheduled__", 3]]"#]);
    assert_eq!(
        shown(&rows),
        [
            (-4, "__resume__", "2"),
            (-3, "__interrupt__", "\"?\""),
            (-2, "__scheduled__", "3"),
            (0, "a", "1"),
            (1, "b", "{\"x\": 1.0}")
        ]
    );
}

#[test]
fn batches_of_another_form_are_refused_with_their_place() {
    for (json, path, found) in [
        ("{}", "$", "an object"),
        ("\"x\"", "$", "a string"),
        ("null", "$", "null"),
        (r#"[["a"]]"#, "$[0]", "an array"),
        (r#"[["a", 1], ["b", 2, 3]]"#, "$[1]", "an array"),
        (r#"[["a", 1], {"b": 2}]"#, "$[1]", "an object"),
        (r#"[[1, 2]]"#, "$[0][0]", "a number"),
    ] {
        let error = Batch::parse(json, |_| true).expect_err(json);
        assert_eq!(error, BatchError::Shape { path: path.to_owned(), found }, "{json}");
    }
    let error = Batch::parse(r#"[["", 1]]"#, |name| !name.is_empty()).expect_err("an empty name");
    assert_eq!(error, BatchError::Channel { path: "$[0][0]".to_owned(), channel: String::new() });
    let json = r#"[["a", 1], ["b", ["\ud800"]]]"#;
    let Err(BatchError::Json(error)) = Batch::parse(json, |_| true) else { panic!("refused") };
    assert_eq!(crate::json::path_at(json, error.offset), "$[1][1][0]");
}

#[test]
fn standings() {
    for (batches, expected) in [
        (vec![], Standing::Open),
        (vec![r#"[["__scheduled__", 1]]"#], Standing::Open),
        (vec![r#"[["__interrupt__", 1]]"#], Standing::Waiting),
        (vec![r#"[["__resume__", 1]]"#], Standing::Waiting),
        (vec![r#"[["__error__", "x"]]"#], Standing::Failed),
        (vec![r#"[["a", 1], ["__error__", "x"]]"#], Standing::Failed),
        (vec!["[]"], Standing::Finished),
        (vec![r#"[["a", 1]]"#], Standing::Finished),
        (vec![r#"[["__no_writes__", null]]"#], Standing::Finished),
        (vec![r#"[["__interrupt__", 1]]"#, r#"[["a", 1]]"#], Standing::Finished),
    ] {
        assert_eq!(standing(&logged(&batches)), expected, "{batches:?}");
    }
}

#[test]
fn an_equal_repeat_changes_nothing() {
    let rows = logged(&[r#"[["a", {"x": 1, "y": 2}], ["__interrupt__", 1]]"#]);
    for repeat in [r#"[["a", {"x": 1, "y": 2}], ["__interrupt__", 1]]"#, r#"[["a", {"y":2.0,"x":1}]]"#] {
        assert!(change(&rows, repeat, OnConflict::Error).is_empty(), "{repeat}");
    }
    assert!(change(&logged(&["[]"]), "[]", OnConflict::Error).is_empty());
}

#[test]
fn other_content_is_an_error_or_stands_or_replaces_whole() {
    let rows = logged(&[r#"[["a", 1], ["b", 2], ["c", 3]]"#]);
    for other in [r#"[["a", 1]]"#, r#"[["a", 1], ["b", 2], ["c", 4]]"#, "[]", r#"[["b", 2], ["a", 1], ["c", 3]]"#] {
        assert_eq!(settle(&rows, &batch(other), OnConflict::Error, Tasks::Ours), Err(Conflict), "{other}");
        assert!(change(&rows, other, OnConflict::Keep).is_empty(), "{other}");
        assert_eq!(after(&rows, change(&rows, other, OnConflict::Replace)), logged(&[other]), "{other}");
    }
}

#[test]
fn the_newest_of_each_special_channel_stands_beside_the_ordinary_writes() {
    let rows = logged(&[r#"[["a", 1], ["__interrupt__", "old"]]"#]);
    let expected = [(-3, "__interrupt__", "\"new\""), (0, "a", "1")];
    assert_eq!(shown(&after(&rows, change(&rows, r#"[["__interrupt__", "new"]]"#, OnConflict::Error))), expected);
    assert_eq!(
        shown(&after(&rows, change(&rows, r#"[["a", 1], ["__interrupt__", "new"]]"#, OnConflict::Error))),
        expected
    );
    assert_eq!(
        shown(&after(&rows, change(&rows, r#"[["a", 9], ["__interrupt__", "new"]]"#, OnConflict::Keep))),
        expected
    );
}

#[test]
fn a_failed_task_that_runs_again_is_replaced_whole() {
    let rows = logged(&[r#"[["a", 1], ["b", 2], ["__error__", "boom"]]"#]);
    let again = after(&rows, change(&rows, r#"[["a", 5]]"#, OnConflict::Error));
    assert_eq!(shown(&again), [(0, "a", "5")]);
    let same = after(&rows, change(&rows, r#"[["a", 1], ["b", 2]]"#, OnConflict::Error));
    assert_eq!((standing(&same), same.len()), (Standing::Finished, 2));
    let marked = after(&rows, change(&rows, "[]", OnConflict::Error));
    assert_eq!((standing(&marked), marked.len()), (Standing::Finished, 1));
    let failed_again = after(&rows, change(&rows, r#"[["__error__", "bang"]]"#, OnConflict::Error));
    assert_eq!(shown(&failed_again), [(-1, "__error__", "\"bang\""), (0, "a", "1"), (1, "b", "2")]);
    let failed_anew = after(&rows, change(&rows, r#"[["c", 1], ["__error__", "boom"]]"#, OnConflict::Error));
    assert_eq!(shown(&failed_anew), [(-1, "__error__", "\"boom\""), (0, "c", "1")]);
}

#[test]
fn an_error_never_undoes_a_finished_task() {
    for finished in [r#"[["a", 1]]"#, "[]"] {
        let rows = logged(&[finished]);
        assert!(change(&rows, r#"[["__error__", "late"]]"#, OnConflict::Error).is_empty());
        let replaced = after(&rows, change(&rows, r#"[["b", 2], ["__error__", "late"]]"#, OnConflict::Replace));
        assert_eq!(shown(&replaced), [(0, "b", "2")]);
    }
}

#[test]
fn writes_are_given_back_as_sent_without_the_mark() {
    let rows = logged(&[r#"[["a\"b", [1.0]], ["__no_writes__", null]]"#]);
    assert_eq!(as_json(rows.iter()), r#"[["a\"b", [1.0]], ["__no_writes__", null]]"#);
    assert_eq!(as_json(logged(&["[]"]).iter()), "[]");
}

#[test]
fn a_batch_with_an_error_that_is_sent_again_is_a_no_op() {
    let failed = r#"[["n", 1], ["__error__", "e"]]"#;
    let rows = logged(&[failed]);
    for on_conflict in [OnConflict::Error, OnConflict::Keep, OnConflict::Replace] {
        assert!(change(&rows, failed, on_conflict).is_empty());
        assert!(!change(&rows, r#"[["n", 1], ["__error__", "other"]]"#, on_conflict).is_empty());
        assert!(!change(&rows, r#"[["n", 2], ["__error__", "e"]]"#, on_conflict).is_empty());
    }
    // Without the error it is a run that went well.
    let rows = after(&rows, change(&rows, r#"[["n", 1]]"#, OnConflict::Error));
    assert_eq!(shown(&rows), [(0, "n", "1")]);
}
