use super::*;
use crate::model::id::message_id;

fn message(json: &str) -> Message {
    Message::parse(json).expect("a message")
}

fn id(json: &str) -> String {
    let message = message(json);
    let body = message.body(json).expect("a body");
    message_id("t", &message.role, body.as_body(), "", 0)
}

#[test]
fn the_body_is_the_text_where_there_is_only_role_and_text() {
    let text_id = message_id("t", "user", Body::Text("hi"), "", 0);
    for json in [
        r#"{"role":"user","content":"hi"}"#,
        r#"{"content":"\u0068i","role":"user"}"#,
        r#"{"role":"user","content":"hi","id":null,"ephemeral":false}"#,
    ] {
        assert_eq!(id(json), text_id, "{json}");
    }
    let body = r#"{"content":"hi","name":"ann"}"#;
    assert_eq!(
        id(r#"{"role":"user","name":"ann","content":"hi"}"#),
        message_id("t", "user", Body::Canonical(body), "", 0)
    );
    let body = r#"{"content":null,"tool_calls":[{"id":"1"}]}"#;
    assert_eq!(
        id(r#"{"role":"a","content":null,"tool_calls":[{"id":"1"}]}"#),
        message_id("t", "a", Body::Canonical(body), "", 0)
    );
    assert_eq!(id(r#"{"role":"a"}"#), message_id("t", "a", Body::Canonical("{}"), "", 0));
}

#[test]
fn an_id_of_its_own_is_read() {
    assert_eq!(message(r#"{"role":"user","content":"hi","id":"mine"}"#).own_id.as_deref(), Some("mine"));
    assert_eq!(message(r#"{"role":"user","content":"hi","id":null}"#).own_id, None);
}

#[test]
fn bodies_are_equal_by_value() {
    let body = |json: &str| message(json).body(json).unwrap();
    let a = body(r#"{"role":"user","content":[{"type":"text","text":"x"}],"id":"1"}"#);
    assert_eq!(a, body(r#"{"id":"2","content":[{"text":"x","type":"text"}],"role":"tool"}"#));
    assert_ne!(a, body(r#"{"role":"user","content":[{"type":"text","text":"y"}]}"#));
}

#[test]
fn content_is_text_where_there_is_some() {
    for (json, content) in [
        (r#"{"role":"u","content":"a\nb"}"#, Some("a\nb")),
        (r#"{"role":"u","content":""}"#, Some("")),
        (r#"{"role":"u","content":null}"#, None),
        (r#"{"role":"u"}"#, None),
        (r#"{"role":"u","content":"a\u0000b"}"#, None),
        (
            r#"{"role":"u","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#,
            Some("a\nb"),
        ),
        (r#"{"role":"u","content":["a","b"]}"#, Some("a\nb")),
        (r#"{"role":"u","content":[{"type":"image"}]}"#, None),
    ] {
        assert_eq!(message(json).content.as_deref(), content, "{json}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for (json, expected) in [
        ("1", MessageError::NotAnObject("a number")),
        ("{}", MessageError::Member("role", "a text of 1 to 255 bytes")),
        (r#"{"role":""}"#, MessageError::Member("role", "a text of 1 to 255 bytes")),
        (r#"{"role":"a\u0000"}"#, MessageError::Member("role", "a text of 1 to 255 bytes")),
        (r#"{"role":7}"#, MessageError::Member("role", "a text of 1 to 255 bytes")),
        (r#"{"role":"u","id":""}"#, MessageError::Member("id", "a text of 1 to 255 bytes")),
        (r#"{"role":"u","id":5}"#, MessageError::Member("id", "a text of 1 to 255 bytes")),
        (r#"{"role":"u","ephemeral":1}"#, MessageError::Member("ephemeral", "true or false")),
    ] {
        assert_eq!(Message::parse(json), Err(expected), "{json}");
    }
    let json = r#"{"role":"u","content":[{"a":1,"a":2}]}"#;
    let Err(MessageError::Json { path, .. }) = message(json).body(json) else {
        panic!("a key twice has no canonical form");
    };
    assert_eq!(path, "$.content[0].a");
}

#[test]
fn user_messages_open_exchanges_but_not_those_that_answer_calls() {
    for (json, opens) in [
        (r#"{"role":"user","content":"x"}"#, true),
        (r#"{"role":"human","content":"x"}"#, true),
        (r#"{"role":"user","content":[{"type":"text","text":"x"}]}"#, true),
        (r#"{"role":"user","content":[]}"#, true),
        (r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}"#, false),
        (r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"text","text":"x"}]}"#, false),
        (r#"{"role":"assistant","content":"x"}"#, false),
        (r#"{"role":"system","content":"x"}"#, false),
    ] {
        assert_eq!(message(json).opens_exchange, opens, "{json}");
    }
}

#[test]
fn calls_and_answers_are_read_in_all_spellings() {
    for (json, calls, answers) in [
        (r#"{"role":"assistant","content":null,"tool_calls":[{"id":"1"},{"id":"2"}]}"#, vec!["1", "2"], vec![]),
        (r#"{"role":"assistant","tool_calls":[]}"#, vec![], vec![]),
        (r#"{"role":"assistant","tool_calls":null,"content":"x"}"#, vec![], vec![]),
        (
            r#"{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"1"}]}"#,
            vec!["1"],
            vec![],
        ),
        (r#"{"role":"ai","content":[{"type":"tool_use","id":"1"}],"tool_calls":[{"id":"1"}]}"#, vec!["1"], vec![]),
        (r#"{"role":"assistant","tool_calls":[{"function":{}}]}"#, vec![""], vec![]),
        (r#"{"role":"tool","tool_call_id":"1","content":"x"}"#, vec![], vec!["1"]),
        (r#"{"role":"tool","content":"x"}"#, vec![], vec![""]),
        (
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"tool_result","tool_use_id":"2"}]}"#,
            vec![],
            vec!["1", "2"],
        ),
    ] {
        let message = message(json);
        assert_eq!(
            (message.calls, message.answers),
            (calls.iter().map(ToString::to_string).collect(), answers.iter().map(ToString::to_string).collect()),
            "{json}"
        );
    }
}
