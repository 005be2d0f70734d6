//! A pull parser: one event per key, scalar and bracket, with its byte range.

use super::{JsonError, Problem};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    BeginObject,
    EndObject,
    BeginArray,
    EndArray,
    Key,
    String,
    Number,
    Literal,
}

/// One step of the walk. For strings and keys the range includes the quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    KeyOrEnd,
    Key,
    CommaOrEnd,
    Nothing,
}

pub struct Walker<'a> {
    text: &'a [u8],
    pos: usize,
    /// True for an object, false for an array; one byte a level, on the heap.
    containers: Vec<bool>,
    expect: Expect,
    check_strings: bool,
}

impl<'a> Walker<'a> {
    /// Walks one value that fills `text`, and refuses lone surrogates in strings and keys.
    pub fn new(text: &'a str) -> Self {
        Walker { text: text.as_bytes(), pos: 0, containers: Vec::new(), expect: Expect::Value, check_strings: true }
    }

    /// The same without looking into strings, to find the way to one that was refused.
    pub fn lenient(text: &'a str) -> Self {
        Walker { check_strings: false, ..Walker::new(text) }
    }

    /// How many containers are open after the last event.
    pub fn depth(&self) -> usize {
        self.containers.len()
    }

    /// The next event, or `None` at the end of the text.
    pub fn next_event(&mut self) -> Result<Option<Event>, JsonError> {
        self.skip_space();
        let Some(&byte) = self.text.get(self.pos) else {
            return if self.expect == Expect::Nothing { Ok(None) } else { Err(self.malformed()) };
        };
        match (self.expect, byte) {
            (Expect::CommaOrEnd, b',') => {
                self.pos += 1;
                self.expect = if self.containers.last() == Some(&true) { Expect::Key } else { Expect::Value };
                self.next_event_after_comma()
            }
            (Expect::CommaOrEnd | Expect::KeyOrEnd, b'}') if self.containers.last() == Some(&true) => {
                Ok(Some(self.close(EventKind::EndObject)))
            }
            (Expect::CommaOrEnd | Expect::ValueOrEnd, b']') if self.containers.last() == Some(&false) => {
                Ok(Some(self.close(EventKind::EndArray)))
            }
            (Expect::Key | Expect::KeyOrEnd, b'"') => self.key().map(Some),
            (Expect::Value | Expect::ValueOrEnd, _) => self.value(byte).map(Some),
            _ => Err(self.malformed()),
        }
    }

    fn next_event_after_comma(&mut self) -> Result<Option<Event>, JsonError> {
        self.skip_space();
        match (self.expect, self.text.get(self.pos)) {
            (Expect::Key, Some(b'"')) => self.key().map(Some),
            (Expect::Value, Some(&byte)) => self.value(byte).map(Some),
            _ => Err(self.malformed()),
        }
    }

    fn key(&mut self) -> Result<Event, JsonError> {
        let event = self.string(EventKind::Key)?;
        self.skip_space();
        if self.text.get(self.pos) != Some(&b':') {
            return Err(self.malformed());
        }
        self.pos += 1;
        self.expect = Expect::Value;
        Ok(event)
    }

    fn value(&mut self, first: u8) -> Result<Event, JsonError> {
        let start = self.pos;
        match first {
            b'{' | b'[' => {
                let object = first == b'{';
                self.containers.push(object);
                self.pos += 1;
                self.expect = if object { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
                let kind = if object { EventKind::BeginObject } else { EventKind::BeginArray };
                Ok(Event { kind, start, end: self.pos })
            }
            b'"' => {
                let event = self.string(EventKind::String)?;
                self.after_value();
                Ok(event)
            }
            b'-' | b'0'..=b'9' => {
                let is_number = |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                self.scalar(EventKind::Number, is_number)
            }
            b'a'..=b'z' => {
                let event = self.scalar(EventKind::Literal, u8::is_ascii_lowercase)?;
                match &self.text[event.start..event.end] {
                    b"true" | b"false" | b"null" => Ok(event),
                    _ => Err(JsonError { problem: Problem::Malformed, offset: start }),
                }
            }
            _ => Err(self.malformed()),
        }
    }

    fn scalar(&mut self, kind: EventKind, belongs: impl Fn(&u8) -> bool) -> Result<Event, JsonError> {
        let start = self.pos;
        while self.text.get(self.pos).is_some_and(&belongs) {
            self.pos += 1;
        }
        self.after_value();
        Ok(Event { kind, start, end: self.pos })
    }

    fn string(&mut self, kind: EventKind) -> Result<Event, JsonError> {
        let start = self.pos;
        let mut at = start + 1;
        loop {
            match memchr::memchr2(b'"', b'\\', &self.text[at.min(self.text.len())..]) {
                None => {
                    return Err(JsonError { problem: Problem::Malformed, offset: start });
                }
                Some(found) if self.text[at + found] == b'"' => {
                    self.pos = at + found + 1;
                    return Ok(Event { kind, start, end: self.pos });
                }
                Some(found) => {
                    at += found;
                    at += self.escape(at)?;
                }
            }
        }
    }

    /// The length of the escape sequence at `at`, a surrogate pair being one sequence.
    fn escape(&self, at: usize) -> Result<usize, JsonError> {
        if self.text.get(at + 1) != Some(&b'u') || !self.check_strings {
            return Ok(2);
        }
        let lone = JsonError { problem: Problem::LoneSurrogate, offset: at };
        match self.code_unit(at)? {
            0xD800..=0xDBFF => {
                let is_pair =
                    self.text[at + 6..].starts_with(b"\\u") && (0xDC00..=0xDFFF).contains(&self.code_unit(at + 6)?);
                if is_pair { Ok(12) } else { Err(lone) }
            }
            0xDC00..=0xDFFF => Err(lone),
            _ => Ok(6),
        }
    }

    fn code_unit(&self, at: usize) -> Result<u16, JsonError> {
        self.text
            .get(at + 2..at + 6)
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u16::from_str_radix(hex, 16).ok())
            .ok_or(JsonError { problem: Problem::Malformed, offset: at })
    }

    fn close(&mut self, kind: EventKind) -> Event {
        let start = self.pos;
        self.containers.pop();
        self.pos += 1;
        self.after_value();
        Event { kind, start, end: self.pos }
    }

    fn after_value(&mut self) {
        self.expect = if self.containers.is_empty() { Expect::Nothing } else { Expect::CommaOrEnd };
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.pos), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.pos += 1;
        }
    }

    fn malformed(&self) -> JsonError {
        JsonError { problem: Problem::Malformed, offset: self.pos }
    }
}
