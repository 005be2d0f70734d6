"""ckpt_load: the same window from each shape of request."""

import json

import pytest

from support import refused

TURNS = [
    ("user", "Where does the river rise?"),
    ("assistant", "In the hills.\nNot far from here."),
    ("user", "How long is it?"),
    ("assistant", "<think>hm</think>90 km: not long."),
    ("user", "And how deep?"),
]
PLAIN = [{"role": role, "content": content} for role, content in TURNS]
HISTORY = "\n".join(f"{role.capitalize()}: {content}" for role, content in TURNS)
LANGCHAIN = [
    {"type": {"user": "human", "assistant": "ai"}[role], "content": content, "additional_kwargs": {}, "response_metadata": {}, "id": None}
    for role, content in TURNS
]
CONSTRUCTORS = [
    {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", {"user": "HumanMessage", "assistant": "AIMessage"}[role]],
        "kwargs": {"content": content, "type": {"user": "human", "assistant": "ai"}[role], "tool_calls": []},
    }
    for role, content in TURNS
]
SHAPES = {
    "openai": {"messages": PLAIN},
    "a bare list": PLAIN,
    "langchain": {"messages": LANGCHAIN},
    "langchain constructors": {"messages": CONSTRUCTORS},
    "history": {"history": HISTORY},
    "history and messages": {"history": HISTORY[: HISTORY.rindex("User:")], "messages": PLAIN[-1:]},
}


def load(calls, request, **options):
    for name in ("current", "preamble"):
        if name in options:
            options[name] = json.dumps(options[name])
    return json.loads(calls.value("ckpt_load", json.dumps(request), **options))


def append(calls, thread, messages):
    for at, message in enumerate(messages):
        calls.rows("ckpt_append", thread, json.dumps([message]), str(at))


@pytest.mark.parametrize("options", [{}, {"size": 2}, {"size": 0}, {"max_tokens": 60}, {"strip": False}, {"marker": False}], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_window(calls, thread, shape, options):
    append(calls, thread, PLAIN)
    stored = load(calls, thread, **options)
    assert stored == load(calls, {"thread_id": thread}, **options)
    rows = calls.rows("ckpt_window", thread, **options)
    assert stored == [json.loads(row.message) for row in rows]
    assert stored[-1] == PLAIN[-1]
    assert load(calls, SHAPES[shape], **options) == stored


@pytest.mark.parametrize("known", range(len(PLAIN) + 1))
@pytest.mark.parametrize("shape", ["openai", "langchain", "history"])
def test_a_thread_and_messages_are_the_log_and_then_these(calls, thread, shape, known):
    """What of the messages the log ends with already is not repeated."""
    append(calls, thread, PLAIN[:known])
    assert load(calls, SHAPES[shape] | {"thread_id": thread}) == load(calls, {"messages": PLAIN})


def test_a_new_message_goes_behind_the_log(calls, thread):
    append(calls, thread, PLAIN[:4])
    request = {"thread_id": thread, "messages": PLAIN[4:]}
    assert load(calls, request, size=2) == load(calls, thread, size=2, current=PLAIN[4])
    assert calls.count("checkpoint_messages", thread) == 4, "it is a read"


def test_calls_and_results_stay_together_in_each_form(calls):
    openai = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "w", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "sun"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    anthropic = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "w", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "sun"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}]},
    ]
    langchain = [
        {"type": "human", "content": "weather?"},
        {"type": "ai", "content": "", "tool_calls": [{"name": "w", "args": {}, "id": "c", "type": "tool_call"}]},
        {"type": "tool", "content": "sun", "tool_call_id": "c"},
        {"type": "ai", "content": "It is sunny."},
    ]
    final = {"role": "user", "content": "Thanks"}
    for messages in (openai, anthropic, langchain):
        whole = load(calls, {"messages": [*messages, final]}, size=4, marker=False)
        assert [message["role"] for message in whole] == [
            {"human": "user", "ai": "assistant"}.get(message.get("type"), message.get("role") or "tool") for message in messages
        ] + ["user"]
        # Three do not hold the call and its result beside the question: both go, and the answer stays.
        cut = load(calls, {"messages": [*messages, final]}, size=3, marker=False)
        assert [message["role"] for message in cut] == ["user", "assistant", "user"]


def test_an_unknown_thread_gives_the_preamble_and_the_current_message(calls, thread):
    preamble, current = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}
    assert load(calls, thread) == []
    assert load(calls, thread, preamble=preamble, current=current) == [preamble, current]


def test_what_is_long_is_cut_without_a_thread_too(calls):
    messages = [{"role": role, "content": f"{role} {at}"} for at in range(50) for role in ("user", "assistant")]
    window = load(calls, {"messages": [*messages, {"role": "user", "content": "last"}]}, size=4, marker=False)
    assert window[1:] == messages[-4:] + [{"role": "user", "content": "last"}]
    assert window[0]["role"] == "system"
    assert window[0]["content"].startswith("[96 earlier messages are not shown.")
    assert window[0]["content"].endswith('- "user 46"\n- "user 47"]')


@pytest.mark.parametrize(
    ("request_json", "place"),
    [
        ("7", "$"),
        ("{}", "$"),
        ('{"thread": "t"}', '$["thread"]'),
        ('{"thread_id": 7}', "$.thread_id"),
        ('{"messages": [{"role": "user", "content": "a"}, {"content": "b"}]}', "$.messages[1]"),
        ('{"messages": [{"role": 7}]}', "$.messages[0]"),
        ('{"messages": [{"type": "robot"}]}', "$.messages[0]"),
        ('{"history": 7}', "$.history"),
        ('""', "thread_id"),
        ("null", "$"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_place(calls, request_json, place):
    with refused("22023") as refusal:
        calls.value("ckpt_load", request_json)
    assert place in refusal.message
    assert refusal.hint
