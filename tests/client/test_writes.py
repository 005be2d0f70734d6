"""The writes of a step: what a batch does to what its task has, where a task stands, and what a fold makes of them."""

import json
from decimal import Decimal, localcontext

import pytest

from support import refused

ERROR = '["__error__", "e"]'
ASK = '["__interrupt__", "ask"]'
ANSWER = '["__resume__", "answer"]'


@pytest.fixture
def base(calls, thread):
    return calls.value("ckpt_put", thread, '{"n": 1, "list": ["base"], "text": "t"}', next=["a", "b"])


@pytest.fixture
def log(calls, thread, base):
    """Logs a batch, by default of the task a."""

    def log_batch(*writes, task="a", **named):
        return calls.value("ckpt_put_writes", thread, base, task, f"[{', '.join(writes)}]", **named)

    return log_batch


def standings(calls, thread):
    row = calls.row("ckpt_resume", thread)
    return {name: json.loads(getattr(row, name)) for name in ("finished", "failed", "waiting")} | {"todo": row.todo}


def expect(calls, thread, **standing):
    expected = {"finished": {}, "failed": {}, "waiting": {}} | standing
    expected["todo"] = [task for task in ("a", "b") if task not in expected["finished"]]
    assert standings(calls, thread) == expected


def test_a_batch_finishes_its_task(calls, thread, log):
    assert log('["n", 1]', '["list", "x"]', '["n", 2]') == 3
    expect(calls, thread, finished={"a": [["n", 1], ["list", "x"], ["n", 2]]})
    assert calls.row("ckpt_latest", thread).pending_writes == 3


def test_an_empty_batch_is_a_finish_mark(calls, thread, log):
    assert log() == 0
    expect(calls, thread, finished={"a": []})
    assert log() == 0
    with refused("23505"):
        log('["n", 1]')
    expect(calls, thread, finished={"a": []})


def test_an_equal_batch_is_a_no_op_whatever_its_spelling_and_on_conflict(calls, thread, log):
    log('["list", {"k": 1.0, "l": "x"}]')
    for on_conflict in ("error", "keep", "replace"):
        assert log('["list", {"l": "\\u0078", "k": 10e-1}]', on_conflict=on_conflict) == 0
    assert calls.row("ckpt_resume", thread).finished == '{"a": [["list", {"k": 1.0, "l": "x"}]]}'


@pytest.mark.parametrize("second", [['["n", 2]'], ['["n", 1]'], ['["n", 1]', '["n", 2]', '["n", 3]'], ['["x", 1]', '["n", 2]'], []])
def test_another_batch_is_refused_kept_out_or_replaces_the_first_whole(calls, thread, log, second):
    first = ['["n", 1]', '["n", 2]']
    log(*first)
    with refused("23505") as refusal:
        log(*second)
    assert '"a"' in refusal.message
    assert refusal.hint
    assert log(*second, on_conflict="keep") == 0
    expect(calls, thread, finished={"a": [["n", 1], ["n", 2]]})
    assert log(*second, on_conflict="replace") == len(second)
    expect(calls, thread, finished={"a": [json.loads(write) for write in second]})


def test_an_interrupt_takes_no_place_of_a_result(calls, thread, log):
    log('["n", 7]')
    assert log(ASK) == 1
    expect(calls, thread, finished={"a": [["n", 7]]})
    assert log('["n", 7]') == 0


def test_the_newest_of_each_special_channel_stands(calls, thread, log):
    log(ASK, ANSWER)
    log('["__interrupt__", "again"]')
    row = standings(calls, thread)
    assert dict(row["waiting"]["a"]) == {"__interrupt__": "again", "__resume__": "answer"}
    log('["__interrupt__", 1]', '["__interrupt__", 2]')
    assert dict(standings(calls, thread)["waiting"]["a"]) == {"__interrupt__": 2, "__resume__": "answer"}


def test_special_channels_in_a_batch_that_is_kept_out_still_count(calls, thread, log):
    log('["n", 1]', ASK)
    log('["n", 2]', '["__interrupt__", "newer"]', on_conflict="keep")
    expect(calls, thread, finished={"a": [["n", 1]]})
    rows = calls.sql("SELECT idx, convert_from(value, 'UTF8') FROM checkpoint_writes WHERE thread_id = %s ORDER BY idx", thread)
    assert rows == [(-3, '"newer"'), (0, "1")]


def test_a_waiting_task_that_goes_on_is_finished(calls, thread, log):
    log(ASK)
    expect(calls, thread, waiting={"a": [["__interrupt__", "ask"]]})
    log('["n", 1]')
    expect(calls, thread, finished={"a": [["n", 1]]})


def test_a_failed_task_that_is_run_again(calls, thread, log):
    log(ERROR)
    expect(calls, thread, failed={"a": "e"})
    log('["__error__", "second"]')
    expect(calls, thread, failed={"a": "second"})
    log('["n", 1]')
    expect(calls, thread, finished={"a": [["n", 1]]})


def test_a_batch_with_an_error_that_is_run_again_is_replaced_whole(calls, thread, log):
    log('["n", 1]', '["n", 2]', ERROR)
    expect(calls, thread, failed={"a": "e"})
    assert log('["n", 3]') == 1
    expect(calls, thread, finished={"a": [["n", 3]]})


def test_an_error_never_undoes_a_finished_task(calls, thread, log):
    log('["n", 1]')
    log(ERROR)
    expect(calls, thread, finished={"a": [["n", 1]]})
    log(task="b")
    log(ERROR, task="b")
    expect(calls, thread, finished={"a": [["n", 1]], "b": []})


def fold(calls, thread, **named):
    made = calls.value("ckpt_apply_writes", thread, **named)
    return made, json.loads(calls.value("ckpt_state", thread, made))


def test_a_fold_waits_for_the_tasks_of_next(calls, thread, base, log):
    assert calls.row("ckpt_latest", thread).checkpoint_id == base
    log('["n", 2]')
    for state in ([], [ERROR], [ASK]):
        if state:
            log(*state, task="b")
        with refused("55000") as refusal:
            fold(calls, thread)
        assert '"b"' in refusal.detail
        assert calls.row("ckpt_latest", thread).checkpoint_id == base
    log('["n", 3]', task="b")
    assert fold(calls, thread)[1]["n"] == 3


def test_a_fold_with_nothing_finished_returns_the_base_which_takes_writes_still(calls, thread, base, log):
    log(ERROR)
    assert fold(calls, thread, tasks=[])[0] == base
    log('["n", 2]', task="b")
    made, state = fold(calls, thread, tasks=[])
    assert made != base
    assert state["n"] == 2


def test_a_finish_mark_is_folded(calls, thread, base, log):
    log()
    log(task="b")
    made, state = fold(calls, thread, next=["c"], metadata='{"step": 1}')
    row = calls.row("ckpt_latest", thread)
    assert (row.checkpoint_id, row.parent_checkpoint_id, row.next, row.metadata) == (made, base, ["c"], '{"step": 1}')
    assert state == {"n": 1, "list": ["base"], "text": "t"}


def test_failed_and_waiting_tasks_and_control_channels_stay_out(calls, thread, log):
    control = ["__no_writes__", "__push__", "__return__", "__error_source_node__", "__scheduled__"]
    log('["n", 2]', *(json.dumps([channel, 1]) for channel in control))
    log('["n", 3]', ERROR, task="b")
    log(ASK, task="c")
    log('["extra", 1]', task="d")
    assert fold(calls, thread, tasks=["a"])[1] == {"n": 2, "list": ["base"], "text": "t", "extra": 1}


def test_the_order_of_a_fold_is_path_then_task_then_place(calls, thread, log):
    log('["list", 1]', '["list", 2]', task_path="p2")
    log('["list", 3]', task="b", task_path="p10")
    log('["list", 4]', task="B", task_path="p2")
    log('["list", 5]', task="z")
    assert fold(calls, thread, reducers='{"list": "append"}')[1]["list"] == ["base", 5, 3, 4, 1, 2]


def test_a_folded_base_takes_no_new_writes_but_a_repeat(calls, thread, base, log):
    log('["n", 2]')
    log('["n", 2]', task="b")
    made, _ = fold(calls, thread)
    assert log('["n", 2]') == 0
    for writes in (['["n", 3]'], ['["other", 1]', '["n", 2]'], [ASK]):
        with refused("55000") as refusal:
            log(*writes, task="c")
        assert refusal.hint
    for on_conflict in ("error", "replace"):
        with refused("55000"):
            log('["n", 3]', on_conflict=on_conflict)
    assert calls.value("ckpt_apply_writes", thread, checkpoint_id=base) == made
    assert calls.row("ckpt_latest", thread).checkpoint_id == made


SUMS = [
    ("0.1", "0.2", "0.3"),
    ("1e16", "1", "10000000000000001"),
    ("1180591620717411303424", "1", "1180591620717411303425"),
    ("1.50", "1.5", "3"),
    ("-1", "1", "0"),
    ("123456789012345678901234567890.5", "0.00000000000000000001", "123456789012345678901234567890.50000000000000000001"),
]


@pytest.mark.parametrize("first, second, total", SUMS)
def test_sum_is_exact(calls, thread, first, second, total):
    base = calls.value("ckpt_put", thread, f'{{"n": {first}}}', next=["a"])
    calls.value("ckpt_put_writes", thread, base, "a", f'[["n", {second}], ["new", {second}]]')
    calls.value("ckpt_apply_writes", thread, reducers='{"n": "sum", "new": "sum"}')
    with localcontext() as context:
        context.prec = 100
        assert Decimal(calls.value("ckpt_channel", thread, "n")) == Decimal(total) == Decimal(first) + Decimal(second)
        assert Decimal(calls.value("ckpt_channel", thread, "new")) == Decimal(second)


@pytest.mark.parametrize(
    "reducer, before, writes, after",
    [
        ("replace", "1", ["2", "null"], None),
        ("append", "[1]", ["2", "[3, [4]]", "[]", "null"], [1, 2, 3, [4], None]),
        ("append", None, ["{}"], [{}]),
        ("append", None, ["[]"], []),
        ("merge", '{"a": 1, "b": {"c": 1}}', ['{"b": {"d": 2}}', '{"e": null}'], {"a": 1, "b": {"d": 2}, "e": None}),
        ("merge", None, ['{"a": 1}'], {"a": 1}),
        ("union", '[1, "x"]', ['[1.0, "\\u0078", 2]', "2", '{"k": [1, 2]}', '{"k": [1.0, 2]}'], [1, "x", 2, {"k": [1, 2]}]),
        ("add_messages", '[{"id": "1", "content": "a"}]', ['[{"id": "2", "content": "b"}, {"id": "1", "content": "c"}]'], [
            {"id": "1", "content": "c"}, {"id": "2", "content": "b"}
        ]),
    ],
)  # fmt: skip
def test_reducers(calls, thread, reducer, before, writes, after):
    base = calls.value("ckpt_put", thread, "{}" if before is None else f'{{"c": {before}}}', next=["a"])
    calls.value("ckpt_put_writes", thread, base, "a", "[" + ", ".join(f'["c", {write}]' for write in writes) + "]")
    calls.value("ckpt_apply_writes", thread, reducers=json.dumps({"c": reducer}))
    assert json.loads(calls.value("ckpt_channel", thread, "c")) == after


def test_a_message_without_an_id_gets_one_that_a_second_fold_gives_again(calls, thread):
    ids = []
    for name in (f"{thread}/1", f"{thread}/2"):
        base = calls.value("ckpt_put", name, "{}", next=["a"], checkpoint_id="base")
        messages = '[{"role": "user", "content": "x"}, {"role": "user", "content": "x"}]'
        calls.value("ckpt_put_writes", name, base, "a", f'[["m", {messages}], ["m", {{"role": "user", "content": "x"}}]]')
        calls.value("ckpt_apply_writes", name, reducers='{"m": "add_messages"}')
        found = json.loads(calls.value("ckpt_channel", name, "m"))
        assert [message["content"] for message in found] == ["x", "x", "x"]
        ids.append([message["id"] for message in found])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3


@pytest.mark.parametrize(
    "reducer, value",
    [("sum", '"1"'), ("sum", "[1]"), ("sum", "null"), ("append", None), ("merge", "[1]"), ("merge", "1"), ("add_messages", "1")],
)
def test_a_value_that_a_reducer_cannot_take_is_refused_and_nothing_is_folded(calls, thread, reducer, value):
    state = '{"c": {"an": "object"}}' if value is None else "{}"
    base = calls.value("ckpt_put", thread, state, next=["a"])
    calls.value("ckpt_put_writes", thread, base, "a", f'[["good", 1], ["c", {value or "[1]"}]]')
    with refused("22023") as refusal:
        calls.value("ckpt_apply_writes", thread, reducers=json.dumps({"c": reducer}))
    assert '"c"' in refusal.message
    assert refusal.hint
    assert calls.row("ckpt_latest", thread).checkpoint_id == base
    assert calls.value("ckpt_apply_writes", thread) != base


def test_an_unknown_reducer_is_refused(calls, thread, log):
    log()
    for reducers in ('{"n": "Sum"}', '{"n": ""}', '{"n": 1}', '{"n": null}', '{"unused": "max"}'):
        with refused("22023"):
            calls.value("ckpt_apply_writes", thread, reducers=reducers)


def test_a_failed_task_that_runs_again_and_asks_is_waiting(calls, thread, log):
    log('["x", 1]', ERROR)
    log(ASK)
    expect(calls, thread, waiting={"a": [["__interrupt__", "ask"]]})


def test_a_task_is_folded_by_the_path_of_its_results(calls, thread, log):
    log(ASK)
    log('["list", "z"]', task_path="z")
    log('["list", "b"]', task="b", task_path="b")
    calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}')
    assert json.loads(calls.value("ckpt_channel", thread, "list")) == ["base", "b", "z"]


@pytest.mark.parametrize("reducer, folded", [("append", '[{"k": 1, "k": 2}]'), ("union", '[{"k": 1, "k": 2}]'), ("merge", '{"k": 2}')])
def test_a_key_that_stands_twice_inside_a_write_does_not_stop_a_fold(calls, thread, reducer, folded):
    calls.value("ckpt_put", thread, "{}", checkpoint_id="base", next=["a"])
    calls.value("ckpt_put_writes", thread, "base", "a", '[["v", {"k": 1, "k": 2}]]')
    calls.value("ckpt_apply_writes", thread, reducers=json.dumps({"v": reducer}))
    value = calls.value("ckpt_channel", thread, "v")
    assert value == folded if reducer != "merge" else json.loads(value) == {"k": 2}


def test_a_number_without_a_canonical_form_does_not_stop_a_fold(calls, thread):
    number = f"1e{'9' * 30}"
    calls.value("ckpt_put", thread, f'{{"v": [{number}]}}', checkpoint_id="base", next=["a"])
    calls.value("ckpt_put_writes", thread, "base", "a", f'[["v", [{number}, 2]]]')
    calls.value("ckpt_apply_writes", thread, reducers='{"v": "union"}')
    assert calls.value("ckpt_channel", thread, "v") == f"[{number}, 2]"


def test_a_fold_that_is_repeated_without_naming_its_base_gives_the_same(calls, thread, log):
    log('["n", 1]')
    log('["n", 2]', task="b")
    made = calls.value("ckpt_apply_writes", thread, reducers='{"n": "sum"}', next=["c"])
    assert calls.value("ckpt_apply_writes", thread, reducers='{"n": "sum"}', next=["c"]) == made
    calls.value("ckpt_put_writes", thread, made, "d", "[]")
    with refused("55000"):
        calls.value("ckpt_apply_writes", thread, reducers='{"n": "sum"}', next=["c"])


@pytest.mark.parametrize("on_conflict", ["error", "keep", "replace"])
def test_a_batch_for_another_child_is_new_whatever_on_conflict_says(calls, thread, on_conflict):
    calls.value("ckpt_put", thread, "{}", checkpoint_id="base")
    calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 1]]')
    calls.value("ckpt_put", thread, "{}", checkpoint_id="child")
    assert calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 2], ["n", 3]]', on_conflict=on_conflict) == 2
    shown = [row.value for row in calls.rows("ckpt_get_typed", thread, checkpoint_id="base") if row.kind == "write"]
    assert shown == [b"2", b"3"]
    # Only these are pending.
    assert calls.row("ckpt_history", thread, "base").pending_writes == 2


def test_on_a_folded_base_a_batch_that_is_kept_out_is_no_error(calls, thread):
    calls.value("ckpt_put", thread, "{}", checkpoint_id="base", next=["t"])
    calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 1]]')
    calls.value("ckpt_apply_writes", thread)
    assert calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 2]]', on_conflict="keep") == 0
    with refused("55000"):
        calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 2]]', on_conflict="replace")


def test_a_folded_base_that_is_the_latest_again_has_nothing_to_do(calls, thread):
    calls.value("ckpt_put", thread, '{"n": 0}', checkpoint_id="1", next=["t"])
    calls.value("ckpt_put_writes", thread, "1", "t", '[["n", 1]]')
    fold = calls.value("ckpt_apply_writes", thread)
    calls.value("ckpt_put", thread, "{}", json.dumps({"run_id": thread}), checkpoint_id="2", parent_checkpoint_id="1")
    assert calls.row("ckpt_latest", thread).checkpoint_id == "2"
    calls.value("ckpt_delete_runs", [thread])
    resumed = calls.row("ckpt_resume", thread)
    assert (resumed.checkpoint_id, json.loads(resumed.finished), resumed.todo) == ("1", {"t": [["n", 1]]}, [])
    assert calls.value("ckpt_apply_writes", thread) == fold
