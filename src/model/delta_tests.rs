use super::*;
use crate::model::recipe::Piece;
use proptest::prelude::*;

/// A log in memory, with the latest value's recipe.
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    latest: Option<Recipe>,
}

impl Log {
    fn plan<'a>(&self, bytes: &'a [u8]) -> Plan<'a> {
        let Some(base) = &self.latest else {
            return Plan::whole(Value::new(bytes));
        };
        let (value, goes_on) = Value::after(bytes, base);
        assert_eq!(value.digest, Value::new(bytes).digest, "one pass and two give the same digest");
        if let Some(plan) = goes_on.and_then(|from| Plan::append(value.clone(), base, from)) {
            return plan;
        }
        if Plan::worth_comparing(base, &value)
            && let Some(plan) = Plan::difference(value.clone(), base, &self.read(base))
        {
            return plan;
        }
        Plan::whole(value).missed(base)
    }

    /// Stores a value and says how many bytes went to the log.
    fn store(&mut self, bytes: &[u8]) -> usize {
        let plan = self.plan(bytes);
        let before = self.bytes.len();
        let recipe = plan.recipe(before as u64);
        for part in plan.log_bytes() {
            self.bytes.extend_from_slice(part);
        }
        let recipe = Recipe::decode(&recipe.encode()).expect("a recipe comes back");
        assert_eq!(self.read(&recipe), bytes);
        self.latest = Some(recipe);
        self.bytes.len() - before
    }

    fn read(&self, recipe: &Recipe) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in &recipe.pieces {
            match piece {
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
                Piece::Extent { start, len } => {
                    out.extend_from_slice(&self.bytes[*start as usize..(*start + *len) as usize]);
                }
            }
        }
        out
    }

    fn pieces(&self) -> usize {
        self.latest.as_ref().map_or(0, |recipe| recipe.pieces.len())
    }
}

/// Bytes without repetition, as of compressed or encrypted content.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

/// A message as a msgpack element of 800 bytes or so, of text alone, so that it begins and ends like any other.
fn message(number: usize) -> Vec<u8> {
    let text: String = noise(number as u64, 400).iter().map(|byte| format!("{byte:02x}")).collect();
    [&b"\x82\xa2id\xd9\x24"[..], text.as_bytes()].concat()
}

/// A msgpack list: its header has 1, 3 or 5 bytes.
fn msgpack(messages: &[Vec<u8>]) -> Vec<u8> {
    let header = match messages.len() {
        len @ 0..16 => vec![0x90 | len as u8],
        len @ 16..65536 => [&[0xdc][..], &(len as u16).to_be_bytes()].concat(),
        len => [&[0xdd][..], &(len as u32).to_be_bytes()].concat(),
    };
    [header, messages.concat()].concat()
}

fn json(messages: &[Vec<u8>]) -> Vec<u8> {
    let texts: Vec<String> =
        messages.iter().map(|m| format!("{{\"role\": \"user\", \"content\": \"{}\"}}", hex(m))).collect();
    format!("[{}]", texts.join(", ")).into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn growing(encode: fn(&[Vec<u8>]) -> Vec<u8>, turns: usize) -> (Log, usize) {
    let mut log = Log::default();
    let mut messages = Vec::new();
    let mut last = 0;
    for turn in 0..turns {
        messages.extend([message(2 * turn), message(2 * turn + 1)]);
        let value = encode(&messages);
        last = value.len();
        log.store(&value);
    }
    (log, last)
}

#[test]
fn a_growing_list_is_stored_once() {
    for encode in [msgpack, json] {
        let (log, last) = growing(encode, 300);
        assert!(log.bytes.len() <= last, "{} bytes for a list of {last}", log.bytes.len());
        assert!(log.pieces() <= 4, "{} pieces", log.pieces());
    }
}

#[test]
fn a_list_that_shrinks_at_the_front_costs_little() {
    let mut log = Log::default();
    let messages: Vec<Vec<u8>> = (0..400).map(message).collect();
    let mut raw = 0;
    for end in 50..400 {
        let value = msgpack(&messages[end - 50..end]);
        raw += value.len();
        log.store(&value);
    }
    assert!(log.bytes.len() * 10 < raw, "{} bytes for {raw}", log.bytes.len());
}

#[test]
fn a_summarised_history_keeps_its_end() {
    let mut log = Log::default();
    let messages: Vec<Vec<u8>> = (0..200).map(message).collect();
    log.store(&msgpack(&messages));
    let shortened = msgpack(&[&[b"\xa7summary".to_vec()], &messages[150..]].concat());
    assert_eq!(log.store(&shortened), 0);
}

#[test]
fn an_edit_in_the_middle_costs_the_edit() {
    let mut log = Log::default();
    let mut messages: Vec<Vec<u8>> = (0..200).map(message).collect();
    log.store(&json(&messages));
    messages[100] = message(5000);
    let stored = log.store(&json(&messages));
    assert!(stored < 2 * json(&messages[100..101]).len(), "{stored} bytes");
}

#[test]
fn small_appends_wait_in_the_recipe_and_then_go_to_the_log() {
    let mut log = Log::default();
    let mut numbers: Vec<String> = (1000..1300).map(|n| n.to_string()).collect();
    for next in 2000..2500 {
        numbers.push(next.to_string());
        log.store(format!("[{}]", numbers.join(", ")).as_bytes());
        let literals: u64 = log
            .latest
            .iter()
            .flat_map(|r| &r.pieces)
            .map(|p| match p {
                Piece::Literal(bytes) => bytes.len() as u64,
                Piece::Extent { .. } => 0,
            })
            .sum();
        assert!(literals < 3 * SHORT as u64 + FRAME as u64, "{literals} bytes of literals");
    }
    assert!(log.bytes.len() < 2 * numbers.join(", ").len());
}

#[test]
fn noise_costs_itself_and_comparing_is_given_up() {
    let mut log = Log::default();
    let mut compared = 0;
    for seed in 0..100 {
        let bytes = noise(seed, 20_000);
        if let Some(base) = &log.latest {
            compared += usize::from(Plan::worth_comparing(base, &Value::new(&bytes)));
        }
        assert!(log.store(&bytes) <= bytes.len());
    }
    assert!(compared <= 10, "{compared} comparisons");
}

#[test]
fn a_value_in_many_pieces_is_stored_whole() {
    let mut log = Log::default();
    let mut value = noise(0, 200_000);
    log.store(&value);
    for round in 0..300 {
        let at = (round * 7919) % (value.len() - 200);
        value[at..at + 100].copy_from_slice(&noise(round as u64 + 1, 100));
        log.store(&value);
        assert!(log.pieces() <= 2 * (200_000 / 2048), "{} pieces", log.pieces());
    }
}

#[test]
fn a_hostile_value_of_one_byte_is_fast() {
    let mut log = Log::default();
    log.store(&vec![b'a'; 3_000_000]);
    log.store(&[noise(1, 1_000_000), vec![b'a'; 1_000_000], noise(2, 1000)].concat());
}

#[derive(Debug, Clone)]
enum Edit {
    Append(usize),
    Insert(usize, usize),
    Remove(usize, usize),
    Prepend(usize),
    New(usize),
    Bracket,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (0..3000_usize).prop_map(Edit::Append),
        1 => (any::<usize>(), 0..2000_usize).prop_map(|(at, len)| Edit::Insert(at, len)),
        1 => (any::<usize>(), 0..4000_usize).prop_map(|(at, len)| Edit::Remove(at, len)),
        1 => (0..5_usize).prop_map(Edit::Prepend),
        1 => (0..6000_usize).prop_map(Edit::New),
        1 => Just(Edit::Bracket),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_sequence_of_versions_reads_back(edits in prop::collection::vec(edit(), 1..25), seed: u64) {
        let mut log = Log::default();
        let mut value = noise(seed, 1500);
        for (round, edit) in edits.into_iter().enumerate() {
            let fresh = |len| noise(seed ^ (round as u64 + 1), len);
            match edit {
                Edit::Append(len) => value.extend(fresh(len)),
                Edit::Insert(at, len) => {
                    let at = at % (value.len() + 1);
                    value.splice(at..at, fresh(len));
                }
                Edit::Remove(at, len) => {
                    let at = at % (value.len() + 1);
                    value.drain(at..(at + len).min(value.len()));
                }
                Edit::Prepend(len) => { value.splice(0..0, fresh(len)); }
                Edit::New(len) => value = fresh(len),
                Edit::Bracket => value.extend(b"\n ]"),
            }
            let stored = log.store(&value);
            prop_assert!(stored <= value.len());
        }
    }
}
