use super::*;
use crate::model::writes::{Batch, OnConflict, Tasks, settle};

fn task(task_path: &str, task_id: &str, json: &str) -> Task {
    let batch = Batch::parse(json, |_| true).expect("a batch");
    let mut rows = settle(&[], &batch, OnConflict::Error, Tasks::Ours).expect("no conflict").store;
    rows.sort_by_key(|row| row.idx);
    let rows = rows.into_iter().map(|row| Write::new(row.idx, &row.channel, &row.value_type, row.value.into_owned()));
    Task { task_id: task_id.to_owned(), task_path: task_path.to_owned(), epoch: 0, rows: rows.collect() }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn folded(
    tasks: &[Task],
    reducers: &[(&str, Reducer)],
    state: &[(&str, &str)],
) -> Result<Vec<(String, String)>, FoldError> {
    let taken = finished(tasks, &[])?;
    let reducers = reducers.iter().map(|(name, reducer)| ((*name).to_owned(), *reducer)).collect();
    let mut values: HashMap<String, String> =
        state.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    values.extend(fold("base", &taken, &reducers, &values, |_| true)?);
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort();
    Ok(values)
}

#[test]
fn required_tasks_must_have_finished() {
    let tasks =
        [task("", "a", "[]"), task("", "b", r#"[["__error__", 1]]"#), task("", "c", r#"[["__interrupt__", 1]]"#)];
    assert_eq!(finished(&tasks, &names(&["a", "b", "c", "d"])), Err(FoldError::Unfinished(names(&["b", "c", "d"]))));
    let taken: Vec<&str> = finished(&tasks, &names(&["a"])).unwrap().iter().map(|task| task.task_id.as_str()).collect();
    assert_eq!(taken, ["a"]);
}

#[test]
fn writes_fold_in_the_order_of_the_tasks_and_control_channels_stay_out() {
    let tasks = [
        task("p1", "z", r#"[["log", "z0"], ["log", ["z1", "z2"]], ["last", 1]]"#),
        task("p2", "a", r#"[["__push__", 1], ["log", "a0"], ["last", 2], ["__return__", 3], ["__interrupt__", 4]]"#),
        task("p3", "failed", r#"[["log", "no"], ["__error__", 1]]"#),
        task("p4", "mark", "[]"),
        task("p5", "none", r#"[["__no_writes__", null], ["__error_source_node__", 1]]"#),
    ];
    let reducers = [("log", Reducer::Append)];
    let expected = [("last", "2"), ("log", r#"["s", "z0", "z1", "z2", "a0"]"#), ("other", "true")];
    let expected: Vec<(String, String)> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    assert_eq!(folded(&tasks, &reducers, &[("log", r#"["s"]"#), ("other", "true")]), Ok(expected));
    let taken = finished(&tasks, &[]).unwrap();
    assert_eq!(written_channels(&taken), ["log", "last"]);
}

#[test]
fn a_write_that_a_reducer_cannot_take_is_named() {
    let tasks = [task("", "ok", r#"[["n", 1]]"#), task("", "bad", r#"[["n", "x"]]"#)];
    let error = folded(&tasks, &[("n", Reducer::Sum)], &[]).expect_err("refused");
    assert!(matches!(error, FoldError::Reduce { channel, task_id, .. } if channel == "n" && task_id == "bad"));
}

fn row(task_path: &str, task_id: &str, epoch: i64, idx: i32) -> TaskWrite {
    let write = Write::new(idx, "c", "json", &b"1"[..]);
    TaskWrite { task_id: task_id.to_owned(), task_path: task_path.to_owned(), epoch, write }
}

#[test]
fn of_a_task_s_batches_the_newest_stands() {
    let rows = [row("", "t", 3, 0), row("", "t", 3, 1), row("", "t", 7, 0), row("", "u", 4, 0)];
    for order in [[0, 1, 2, 3], [2, 0, 1, 3], [0, 2, 1, 3]] {
        let rows =
            order.map(|at: usize| row(&rows[at].task_path, &rows[at].task_id, rows[at].epoch, rows[at].write.idx));
        let tasks = group(rows.into_iter());
        let shown: Vec<(&str, i64, usize)> =
            tasks.iter().map(|t| (t.task_id.as_str(), t.epoch, t.rows.len())).collect();
        assert_eq!(shown, [("t", 7, 1), ("u", 4, 1)]);
    }
}

#[test]
fn rows_are_gathered_by_task_whatever_stands_between() {
    let row = |path: &str, id: &str, idx| row(path, id, 0, idx);
    // A special channel that came with another path than the ordinary writes of its task.
    let tasks = group([row("", "t", -3), row("a", "u", 0), row("b", "t", 0)].into_iter());
    let shown: Vec<(&str, usize)> = tasks.iter().map(|task| (task.task_id.as_str(), task.rows.len())).collect();
    assert_eq!(shown, [("u", 1), ("t", 2)]);
}
