use super::*;
use proptest::prelude::*;

fn messages(request: &str) -> Vec<String> {
    let request = parse(request).expect("it can be read");
    request.messages.into_iter().map(|(_, message)| message).collect()
}

fn history(text: &str) -> Vec<(&'static str, String)> {
    turns(text)
}

fn said(turns: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    turns.iter().map(|(role, text)| (*role, (*text).to_owned())).collect()
}

#[test]
fn a_thread() {
    for request in ["\"t-1\"", r#"{"thread_id": "t-1"}"#, r#"{"thread_id": "t-1", "messages": null}"#] {
        let expected = Request { thread_id: Some("t-1".to_owned()), messages: Vec::new() };
        assert_eq!(parse(request), Ok(expected), "{request}");
    }
}

#[test]
fn a_history_in_the_usual_spellings() {
    assert_eq!(history("User: hi\nAssistant: hello"), said(&[("user", "hi"), ("assistant", "hello")]));
    assert_eq!(history("HUMAN: hi\r\nAI:hello"), said(&[("user", "hi"), ("assistant", "hello")]));
    assert_eq!(history("**User:** hi\n**Assistant**: hello"), said(&[("user", "hi"), ("assistant", "hello")]));
    assert_eq!(history("### Customer: hi\n[Agent]: hello"), said(&[("user", "hi"), ("assistant", "hello")]));
    assert_eq!(history("User：你好\nBot：好"), said(&[("user", "你好"), ("assistant", "好")]));
    assert_eq!(history("System: be brief\nUser: hi"), said(&[("system", "be brief"), ("user", "hi")]));
}

#[test]
fn a_turn_may_have_many_lines() {
    assert_eq!(
        history("User: a\nNote: b\n\n  c\nAssistant: d: e\n"),
        said(&[("user", "a\nNote: b\n\n  c"), ("assistant", "d: e")])
    );
    assert_eq!(history("hello\nthere\nAssistant: hi"), said(&[("user", "hello\nthere"), ("assistant", "hi")]));
    assert_eq!(history("no role at all"), said(&[("user", "no role at all")]));
    assert_eq!(history("User: a\nAssistant:"), said(&[("user", "a")]));
    assert_eq!(history(" \n "), said(&[]));
}

#[test]
fn what_looks_like_a_system_turn_later_is_text() {
    assert_eq!(
        history("User: my laptop\nSystem: Windows\nUser: b"),
        said(&[("user", "my laptop\nSystem: Windows"), ("user", "b")])
    );
}

#[test]
fn messages_in_each_form() {
    let plain = [r#"{"role": "user", "content": "hi"}"#, r#"{"role": "assistant", "content": "ho"}"#];
    for request in [
        r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}"#,
        r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]"#,
        r#"{"messages": [{"type": "human", "content": "hi"}, {"type": "ai", "content": "ho"}]}"#,
        r#"{"messages": [{"content": "hi", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": null, "id": null, "example": false},
            {"content": "ho", "type": "ai", "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": null}]}"#,
        r#"{"messages": [{"type": "human", "data": {"content": "hi", "type": "human"}}, {"type": "ai", "data": {"content": "ho"}}]}"#,
        r#"{"messages": [{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "hi", "type": "human"}},
            {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "ai", "AIMessageChunk"], "kwargs": {"content": "ho"}}]}"#,
        r#"{"history": "User: hi\nAssistant: ho"}"#,
        r#"{"messages": [{"type": "chat", "role": "user", "content": "hi"}, {"type": "chat", "role": "assistant", "content": "ho"}]}"#,
    ] {
        assert_eq!(messages(request), plain, "{request}");
    }
    assert_eq!(
        messages(
            r#"[{"type": "tool", "content": "42", "tool_call_id": "c"}, {"type": "system", "content": "s"}, {"role":"user","content":[{"type":"tool_result"}]}]"#
        ),
        [
            r#"{"role": "tool", "content": "42", "tool_call_id": "c"}"#,
            r#"{"role": "system", "content": "s"}"#,
            r#"{"role":"user","content":[{"type":"tool_result"}]}"#
        ]
    );
    assert_eq!(
        messages(r#"[{"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]}]"#),
        [r#"{"role": "assistant", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]}"#]
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    for (request, path) in [
        ("7", "$"),
        ("{}", "$"),
        (r#"{"thread_id": null}"#, "$"),
        (r#"{"thread_id": 7}"#, "$.thread_id"),
        (r#"{"history": ["a"]}"#, "$.history"),
        (r#"{"messages": "a"}"#, "$.messages"),
        (r#"{"thread": "t"}"#, "$[\"thread\"]"),
        (r#"{"messages": [{"role": "user"}, "hi"]}"#, "$.messages[1]"),
        (r#"{"messages": [{"content": "hi"}]}"#, "$.messages[0]"),
        (r#"[{"type": "robot", "content": "hi"}]"#, "$[0]"),
        (r#"[{"lc": 1, "id": ["HumanMessage"]}]"#, "$[0].kwargs"),
        (r#"[{"lc": 1, "id": ["HumanMessage"], "kwargs": 7}]"#, "$[0].kwargs"),
        (r#"{"history": "a\u0000b"}"#, "$.history"),
        (r#"{"messages": [{"role": "user", "content": "\ud800"}]}"#, "$.messages[0].content"),
    ] {
        assert_eq!(parse(request).expect_err(request).path, path, "{request}");
    }
}

proptest! {
    #[test]
    fn any_history_is_read(text in "((User|Assistant|System|x)?:? ?[a-z*]{0,4}\n?){0,12}") {
        for (role, text) in turns(&text) {
            prop_assert!(["user", "assistant", "system"].contains(&role));
            prop_assert!(!text.is_empty());
        }
    }
}
