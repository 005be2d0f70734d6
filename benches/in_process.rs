//! What the pure parts cost by themselves, without a server: `make bench-units`.
//!
//! The extension is a library that only a server can load, so a benchmark cannot link it. The parts that know nothing of Postgres
//! are compiled into this one.

#[allow(dead_code, unused_imports)]
#[path = "../src/json/mod.rs"]
mod json;
#[allow(dead_code, unused_imports)]
#[path = "../src/model/mod.rs"]
mod model;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};

const MESSAGES: [usize; 3] = [10, 100, 1000];

fn main() {
    divan::main();
}

/// As many characters of words as are asked for, never the same twice.
fn text(seed: usize, length: usize) -> String {
    const WORDS: [&str; 16] = [
        "memory", "of", "the", "agent", "which", "resumes", "where", "it", "was", "and", "a", "window", "that",
        "costs", "what", "is",
    ];
    let mut state = seed as u64 + 1;
    let mut out = format!("{seed}");
    while out.len() < length {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        out.push(' ');
        out.push_str(WORDS[(state >> 60) as usize]);
    }
    out.truncate(length);
    out
}

fn json_message(number: usize) -> String {
    let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
    format!(r#"{{"role": "{role}", "content": "{}", "id": "message-{number}"}}"#, text(number, 600))
}

fn json_list(messages: usize) -> String {
    let elements: Vec<String> = (0..messages).map(json_message).collect();
    format!("[{}]", elements.join(", "))
}

/// A list of messages as msgpack: the form in which a framework's serializer hands them over.
fn msgpack_list(messages: usize) -> Vec<u8> {
    let mut out = match messages {
        0..16 => vec![0x90 | messages as u8],
        _ => [&[0xdc][..], &(messages as u16).to_be_bytes()].concat(),
    };
    for number in 0..messages {
        let content = text(number, 600);
        out.extend_from_slice(b"\x81\xa7content\xda");
        out.extend_from_slice(&(content.len() as u16).to_be_bytes());
        out.extend_from_slice(content.as_bytes());
    }
    out
}

mod hashing {
    use super::model::delta::Value;
    use super::model::id::{Body, message_id};
    use super::*;

    #[divan::bench(args = [600, 6000])]
    fn msg_id(bencher: Bencher, length: usize) {
        let content = text(1, length);
        bencher
            .counter(BytesCount::new(length))
            .bench(|| message_id(black_box("thread"), "user", Body::Text(black_box(&content)), "", 0));
    }

    #[divan::bench(args = MESSAGES)]
    fn digest(bencher: Bencher, messages: usize) {
        let value = msgpack_list(messages);
        bencher.counter(BytesCount::new(value.len())).bench(|| Value::new(black_box(&value)).digest);
    }
}

mod canonical_json {
    use super::*;

    #[divan::bench]
    fn message(bencher: Bencher) {
        let message = json_message(1);
        bencher.counter(BytesCount::new(message.len())).bench(|| json::canonical(black_box(&message)));
    }

    #[divan::bench(args = MESSAGES)]
    fn list(bencher: Bencher, messages: usize) {
        let list = json_list(messages);
        bencher.counter(BytesCount::new(list.len())).bench(|| json::canonical(black_box(&list)));
    }

    /// The walk that every state goes through once.
    #[divan::bench(args = MESSAGES)]
    fn split_state(bencher: Bencher, messages: usize) {
        let state = format!(r#"{{"messages": {}, "turn": 1, "cost": 0.1}}"#, json_list(messages));
        bencher.counter(BytesCount::new(state.len())).bench(|| json::shallow(black_box(&state)).is_ok());
    }
}

/// The stored value has `messages` messages; two more come.
mod delta_encoding {
    use super::model::delta::{Plan, Value};
    use super::model::recipe::Recipe;
    use super::*;

    fn stored(value: &[u8]) -> Recipe {
        Plan::whole(Value::new(value)).recipe(0)
    }

    /// A list that grew: recognised by hash.
    #[divan::bench(args = MESSAGES)]
    fn append(bencher: Bencher, messages: usize) {
        let base = stored(&msgpack_list(messages));
        let next = msgpack_list(messages + 2);
        bencher.counter(BytesCount::new(next.len())).bench(|| {
            let (value, from) = Value::after(black_box(&next), &base);
            let plan = from.and_then(|from| Plan::append(value, &base, from)).expect("the list goes on");
            plan.recipe(0)
        });
    }

    /// A list whose first messages were removed: compared with its predecessor's bytes.
    #[divan::bench(args = MESSAGES)]
    fn difference(bencher: Bencher, messages: usize) {
        let before = msgpack_list(messages);
        let base = stored(&before);
        let kept = &before[before.len() / 2..];
        bencher
            .counter(BytesCount::new(kept.len()))
            .bench(|| Plan::difference(Value::new(black_box(kept)), &base, &before).map(|plan| plan.recipe(0)));
    }

    #[divan::bench(args = MESSAGES)]
    fn recipe_there_and_back(bencher: Bencher, messages: usize) {
        let recipe = stored(&msgpack_list(messages));
        bencher.bench(|| Recipe::decode(&black_box(&recipe).encode()).is_some());
    }
}

/// Two messages are folded into a list of `messages`.
mod folding {
    use super::model::fold::{Task, fold};
    use super::model::reducer::Reducer;
    use super::model::writes::Write;
    use super::*;
    use std::collections::HashMap;

    fn folded(bencher: Bencher, messages: usize, reducer: Reducer) {
        let write = format!("[{}, {}]", json_message(messages), json_message(messages + 1));
        let task = Task {
            task_id: "agent".to_owned(),
            task_path: String::new(),
            epoch: 0,
            rows: vec![Write::new(0, "messages", "json", write.into_bytes())],
        };
        let reducers = HashMap::from([("messages".to_owned(), reducer)]);
        let current = HashMap::from([("messages".to_owned(), json_list(messages))]);
        bencher.bench(|| fold("base", black_box(&[&task]), &reducers, &current, |_| true).is_ok());
    }

    #[divan::bench(args = MESSAGES)]
    fn append(bencher: Bencher, messages: usize) {
        folded(bencher, messages, Reducer::Append);
    }

    #[divan::bench(args = MESSAGES)]
    fn add_messages(bencher: Bencher, messages: usize) {
        folded(bencher, messages, Reducer::AddMessages);
    }
}

/// A window of 60 messages out of exchanges of four: a question, a call, its result, an answer.
mod window {
    use super::model::window::{Entry, Selection};
    use super::*;

    fn exchange(number: usize) -> Vec<Entry<usize>> {
        let call = format!("call-{number}");
        let entry = |item, calls, answers| Entry { item, calls, answers };
        vec![
            entry(0, vec![], vec![]),
            entry(1, vec![call.clone()], vec![]),
            entry(2, vec![], vec![call]),
            entry(3, vec![], vec![]),
        ]
    }

    #[divan::bench(args = [60, 600])]
    fn select(bencher: Bencher, size: usize) {
        let log: Vec<Vec<Entry<usize>>> = (0..1000).map(exchange).collect();
        bencher.with_inputs(|| log.iter().rev().take(size / 4 + 1).cloned().collect::<Vec<_>>()).bench_values(|log| {
            let mut selection = Selection::new(size);
            for exchange in log {
                selection.offer(exchange, true);
            }
            selection.into_exchanges()
        });
    }
}

/// What front ends put into an answer, taken out of it.
mod cleaning {
    use super::*;
    use model::markup::{Cleaner, Rule};

    fn cleaner() -> Cleaner {
        let rule = |kind: &str, pattern: &str, keep: &str| {
            let [kind, pattern, keep] = [kind, pattern, keep].map(str::to_owned);
            Rule { kind, pattern, keep, replacement: None }
        };
        let rules = [
            rule("tag", "think", "nothing"),
            rule("tag", "cite", "text"),
            rule("pattern", "[ \t]?【[^【】\n]+】", "nothing"),
            rule("pattern", r"[ \t]?\[[1-9][0-9]{0,2}\]", "nothing"),
        ];
        Cleaner::new(&rules).expect("the rules are sound")
    }

    #[divan::bench(args = [600, 60_000])]
    fn marked_up(bencher: Bencher, length: usize) {
        let cleaner = cleaner();
        let part = format!("<think>{}</think><cite>{}</cite> [1][2].【3†x】\n", text(1, 150), text(2, 150));
        let answer = part.repeat(length / part.len() + 1);
        bencher.counter(BytesCount::new(answer.len())).bench(|| cleaner.clean(black_box(&answer)).len());
    }

    #[divan::bench(args = [600, 60_000])]
    fn plain(bencher: Bencher, length: usize) {
        let (cleaner, answer) = (cleaner(), text(3, length));
        bencher.counter(BytesCount::new(answer.len())).bench(|| cleaner.clean(black_box(&answer)).len());
    }
}

mod counting {
    use super::*;
    use model::tokens::{Encoding, of_message};

    #[divan::bench(args = [600, 60_000])]
    fn o200k_base(bencher: Bencher, length: usize) {
        let text = text(4, length);
        bencher.counter(BytesCount::new(text.len())).bench(|| Encoding::O200kBase.count(black_box(&text)));
    }

    #[divan::bench]
    fn message(bencher: Bencher) {
        let message = json_message(1);
        bencher.counter(BytesCount::new(message.len())).bench(|| of_message(black_box(&message)).is_ok());
    }
}
