//! Cleaning: what chat front ends put into messages for people (citations, thinking, artifacts, cards, images) and a model need
//! not read again. Rules say what to look for and what to keep of it; code, fenced or between backticks, is never touched.
//!
//! Every pass takes time linear in the text: tags are matched with a stack, patterns by an automaton, and no search goes back over
//! what it has read.

use regex::Regex;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A rule as people write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub kind: String,
    pub pattern: String,
    pub keep: String,
    pub replacement: Option<String>,
}

/// Changes with what rules do: a message cleaned by an earlier version is cleaned again.
const VERSION: &[u8] = b"checkpointer/markup/1";

/// A rule's part in the fingerprint of a set of rules, which is the (wrapping) sum of these. `texts` are all its columns that say
/// what it does and where it stands.
pub fn fingerprint(ordinal: i32, texts: [Option<&str>; 5]) -> i64 {
    let mut hash = blake3::Hasher::new();
    hash.update(VERSION).update(&ordinal.to_le_bytes());
    for text in texts {
        let bytes = text.unwrap_or_default().as_bytes();
        hash.update(&[u8::from(text.is_some())]).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }
    let mut fingerprint = [0; 8];
    hash.finalize_xof().fill(&mut fingerprint);
    i64::from_le_bytes(fingerprint)
}

/// What is wrong with a rule: the column, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    pub column: &'static str,
    pub problem: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Keep {
    Nothing,
    Text,
    Replacement(String),
}

#[derive(Debug)]
enum Pass {
    /// By name, in lower case. Neighbouring rules for tags make one pass.
    Tags(HashMap<String, Keep>),
    Pattern(Regex, Keep),
    /// Base64 of a media type that begins so.
    Data(String, Keep),
}

/// Rules that are ready to be applied, in order.
#[derive(Debug, Default)]
pub struct Cleaner {
    passes: Vec<Pass>,
}

impl Cleaner {
    pub fn new<'r>(rules: impl IntoIterator<Item = &'r Rule>) -> Result<Cleaner, RuleError> {
        let mut passes: Vec<Pass> = Vec::new();
        for rule in rules {
            let pass = Pass::of(rule)?;
            match (passes.last_mut(), pass) {
                // Of two rules for one tag the first takes all, as it would in passes of their own.
                (Some(Pass::Tags(tags)), Pass::Tags(more)) => {
                    for (name, keep) in more {
                        tags.entry(name).or_insert(keep);
                    }
                }
                (_, pass) => passes.push(pass),
            }
        }
        Ok(Cleaner { passes })
    }

    /// The text after all rules.
    pub fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        apply(self.passes.iter(), text)
    }

    /// The text after the rules for base64 alone, which nobody reads. What looks like markup in what a person or a tool said may be meant.
    pub fn clean_data<'t>(&self, text: &'t str) -> Cow<'t, str> {
        apply(self.passes.iter().filter(|pass| matches!(pass, Pass::Data(..))), text)
    }
}

fn apply<'t, 'p>(passes: impl Iterator<Item = &'p Pass>, text: &'t str) -> Cow<'t, str> {
    let mut clean = Cow::Borrowed(text);
    for pass in passes {
        if let Some(changed) = pass.apply(&clean) {
            clean = Cow::Owned(changed);
        }
    }
    match clean {
        Cow::Owned(mut text) => {
            text.truncate(text.trim_end().len());
            Cow::Owned(text)
        }
        untouched => untouched,
    }
}

impl Pass {
    fn of(rule: &Rule) -> Result<Pass, RuleError> {
        let error = |column, problem: &str| Err(RuleError { column, problem: problem.to_owned() });
        let keep = match (rule.keep.as_str(), &rule.replacement) {
            ("nothing", None) => Keep::Nothing,
            ("text", None) => Keep::Text,
            ("replacement", Some(replacement)) => Keep::Replacement(replacement.clone()),
            ("replacement", None) => return error("replacement", "is missing"),
            ("nothing" | "text", Some(_)) => return error("replacement", "is given, and keep is not 'replacement'"),
            _ => return error("keep", "must be 'nothing', 'text' or 'replacement'"),
        };
        match rule.kind.as_str() {
            "tag" if is_tag_name(&rule.pattern) => {
                Ok(Pass::Tags(HashMap::from([(rule.pattern.to_ascii_lowercase(), keep)])))
            }
            "tag" => error("pattern", "must be the name of a tag: letters, digits, '-', '_', ':' and '.'"),
            "pattern" => match Regex::new(&rule.pattern) {
                Ok(regex) if regex.is_match("") => error("pattern", "matches the empty text"),
                Ok(regex) => Ok(Pass::Pattern(regex, keep)),
                Err(why) => {
                    // The lines before the last draw the place.
                    let why = why.to_string();
                    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                    Err(RuleError { column: "pattern", problem: format!("is no regular expression: {why}") })
                }
            },
            "data" if keep == Keep::Text => error("keep", "cannot be 'text' for data"),
            "data" => Ok(Pass::Data(rule.pattern.to_ascii_lowercase(), keep)),
            _ => error("kind", "must be 'tag', 'pattern' or 'data'"),
        }
    }

    /// The text after this pass; `None` where it found nothing.
    fn apply(&self, text: &str) -> Option<String> {
        match self {
            Pass::Tags(tags) => text.contains('<').then(|| edits_of_tags(tags, text)),
            Pass::Pattern(regex, keep) => regex.is_match(text).then(|| edits_of_pattern(regex, keep, text)),
            Pass::Data(media_type, keep) => text.contains("data:").then(|| edits_of_data(media_type, keep, text)),
        }
        .filter(|edits| !edits.is_empty())
        .map(|edits| edited(text, &edits))
    }
}

fn is_tag_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_:.".contains(&byte)
}

/// A stretch of the text, and what stands there instead. In order and disjoint.
struct Edit {
    range: Range<usize>,
    instead: String,
}

/// The text with its edits. Where something was taken out, no more than one empty line, or one space, is left.
fn edited(text: &str, edits: &[Edit]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for Edit { range, instead } in edits {
        out.push_str(&text[at..range.start]);
        out.push_str(instead);
        at = range.end;
        if instead.is_empty() {
            let rest = &text[at..];
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            let newlines = rest[..blank].matches('\n').count();
            let last_line = rest[..blank].rfind('\n').map_or(0, |newline| newline + 1);
            // How many line ends stand before the cut, as far as they matter.
            let before = if out.is_empty() { 2 } else { out.bytes().rev().take_while(|byte| *byte == b'\n').count() };
            if before > 0 && newlines > 0 {
                // What follows keeps its indentation.
                out.push_str(&"\n".repeat(newlines.min(2_usize.saturating_sub(before))));
                at += last_line;
            } else if before == 0 && newlines == 0 && out.ends_with([' ', '\t']) {
                at += rest[..blank].len();
            }
        }
    }
    out.push_str(&text[at..]);
    out
}

/// The code of a text: fenced blocks, closed or not, and spans between runs of backticks of one length in a line. In order.
fn code(text: &str) -> Vec<Range<usize>> {
    let mut code = Vec::new();
    if !text.contains(['`', '~']) {
        return code;
    }
    let mut fence: Option<(usize, char, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let inner = line.trim_start_matches([' ', '\t', '>']);
        let marker = inner.chars().next().filter(|first| ['`', '~'].contains(first));
        let count = marker.map_or(0, |marker| inner.chars().take_while(|c| *c == marker).count());
        let after = &inner[count..];
        match fence {
            Some((start, open, length)) => {
                if marker == Some(open) && count >= length && after.trim().is_empty() {
                    code.push(start..at + line.len());
                    fence = None;
                }
            }
            None if count >= 3 && !(marker == Some('`') && after.contains('`')) => {
                fence = marker.map(|marker| (at, marker, count));
            }
            None => code.extend(spans(line).into_iter().map(|span| at + span.start..at + span.end)),
        }
        at += line.len();
    }
    if let Some((start, ..)) = fence {
        code.push(start..text.len());
    }
    code
}

fn spans(line: &str) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in line.match_indices('`') {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    // For each run the next of its length.
    let mut next = vec![None; runs.len()];
    let mut nearest: HashMap<usize, usize> = HashMap::new();
    for (at, run) in runs.iter().enumerate().rev() {
        next[at] = nearest.insert(run.len(), at);
    }
    let mut spans = Vec::new();
    let mut at = 0;
    while at < runs.len() {
        match next[at] {
            Some(closing) => {
                spans.push(runs[at].start..runs[closing].end);
                at = closing + 1;
            }
            None => at += 1,
        }
    }
    spans
}

/// The stretches between those of `code`.
fn outside(text: &str, code: &[Range<usize>]) -> Vec<Range<usize>> {
    let starts = std::iter::once(0).chain(code.iter().map(|range| range.end));
    let ends = code.iter().map(|range| range.start).chain(std::iter::once(text.len()));
    starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end).collect()
}

struct Tag {
    range: Range<usize>,
    name: String,
    opens: bool,
    closes: bool,
}

/// The tag that begins at a `<`; its attributes hold no other.
fn tag_at(text: &str, start: usize) -> Option<Tag> {
    let end = start + 1 + text[start + 1..].find(['<', '>']).filter(|at| text.as_bytes()[start + 1 + at] == b'>')?;
    let inner = &text[start + 1..end];
    let (inner, is_end) = inner.strip_prefix('/').map_or((inner, false), |inner| (inner, true));
    let name_len = inner.bytes().take_while(|byte| is_name_byte(*byte)).count();
    let rest = &inner[name_len..];
    let sound = name_len > 0 && (rest.is_empty() || rest.starts_with(|c: char| c.is_whitespace() || c == '/'));
    let alone = rest.trim_end().ends_with('/');
    sound.then(|| Tag {
        range: start..end + 1,
        name: inner[..name_len].to_ascii_lowercase(),
        opens: !is_end,
        closes: is_end || alone,
    })
}

fn edits_of_tags(tags: &HashMap<String, Keep>, text: &str) -> Vec<Edit> {
    let mut found: Vec<Tag> = Vec::new();
    for stretch in outside(text, &code(text)) {
        let starts = text[stretch.clone()].match_indices('<').map(|(at, _)| stretch.start + at);
        found.extend(starts.filter_map(|at| tag_at(text, at)).filter(|tag| tags.contains_key(&tag.name)));
    }
    // Pairs: an end closes the nearest open tag of its name; those opened within and not closed are none.
    let mut closing: Vec<Option<usize>> = vec![None; found.len()];
    let mut open: Vec<usize> = Vec::new();
    let mut open_of: HashMap<&str, usize> = HashMap::new();
    for (at, tag) in found.iter().enumerate() {
        match (tag.opens, tag.closes) {
            (true, true) => closing[at] = Some(at),
            (true, false) => {
                open.push(at);
                *open_of.entry(&tag.name).or_default() += 1;
            }
            (false, _) if open_of.get(tag.name.as_str()).is_none_or(|count| *count == 0) => {}
            (false, _) => {
                while let Some(opened) = open.pop() {
                    *open_of.entry(&found[opened].name).or_default() -= 1;
                    if found[opened].name == tag.name {
                        closing[opened] = Some(at);
                        break;
                    }
                }
            }
        }
    }
    let mut edits = Vec::new();
    let mut dropped_ends = HashSet::new();
    let mut at = 0;
    while at < found.len() {
        let here = found[at].range.clone();
        match (closing[at], tags.get(&found[at].name)) {
            (Some(end), Some(Keep::Text)) => {
                edits.push(Edit { range: here, instead: String::new() });
                dropped_ends.insert(end);
                at += 1;
            }
            (Some(end), Some(keep)) => {
                let instead = if let Keep::Replacement(text) = keep { text.clone() } else { String::new() };
                edits.push(Edit { range: here.start..found[end].range.end, instead });
                at = end + 1;
            }
            _ => {
                if dropped_ends.contains(&at) {
                    edits.push(Edit { range: here, instead: String::new() });
                }
                at += 1;
            }
        }
    }
    edits
}

/// The most steps that the matches of one pattern in one text may take. One match is found in time linear in what is left of the
/// text; but there are patterns, such as `a.*b|a`, that look at all of it for each of many matches. Up to 64 kB no text gets here; beyond
/// that, what is left of a text that was made for it stays as it is.
const MOST_STEPS: usize = 1 << 31;

fn edits_of_pattern(regex: &Regex, keep: &Keep, text: &str) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut steps = 0_usize;
    for stretch in outside(text, &code(text)) {
        for found in regex.captures_iter(&text[stretch.clone()]) {
            let Some(whole) = found.get(0).filter(|whole| !whole.is_empty()) else { continue };
            steps = steps.saturating_add(stretch.len() - whole.start());
            if steps > MOST_STEPS {
                return edits;
            }
            let mut instead = String::new();
            match keep {
                Keep::Nothing => {}
                Keep::Text => instead.push_str(found.get(1).map_or("", |group| group.as_str())),
                Keep::Replacement(text) => found.expand(text, &mut instead),
            }
            edits.push(Edit { range: stretch.start + whole.start()..stretch.start + whole.end(), instead });
        }
    }
    edits
}

/// Shorter data is left where it is: a note would not be shorter.
const LEAST_DATA: usize = 64;

fn edits_of_data(media_type: &str, keep: &Keep, text: &str) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for stretch in outside(text, &code(text)) {
        for (at, _) in text[stretch.clone()].match_indices("data:") {
            let start = stretch.start + at;
            if edits.last().is_some_and(|last| start < last.range.end) {
                continue;
            }
            let Some((found, size, end)) = data_at(text, start, stretch.end) else { continue };
            if !found.starts_with(media_type) {
                continue;
            }
            let (range, alt) = image_around(text, start..end, &stretch);
            let instead = match keep {
                Keep::Replacement(template) => template.replace("{type}", &found).replace("{size}", &size_text(size)),
                _ => String::new(),
            };
            let instead = match alt {
                Some(alt) if !instead.is_empty() && !alt.trim().is_empty() => format!("{}: {instead}", alt.trim()),
                _ => instead,
            };
            edits.push(Edit { range, instead });
        }
    }
    edits
}

/// Media type, size in bytes and end of the base64 data that begins here.
fn data_at(text: &str, start: usize, limit: usize) -> Option<(String, usize, usize)> {
    const LONGEST_TYPE: usize = 128;
    let rest = &text.as_bytes()[start + "data:".len()..limit];
    let comma = rest.iter().take(LONGEST_TYPE).position(|byte| *byte == b',')?;
    let head = std::str::from_utf8(&rest[..comma]).ok()?.to_ascii_lowercase();
    let head = head.strip_suffix(";base64")?;
    let found = head.split(';').next()?;
    let is_type = |byte: u8| byte.is_ascii_alphanumeric() || b"/+-._".contains(&byte);
    let sound = found.contains('/') && found.bytes().all(is_type);
    let length =
        rest[comma + 1..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte)).count();
    let end = start + "data:".len() + comma + 1 + length;
    (sound && length >= LEAST_DATA).then(|| (found.to_owned(), length / 4 * 3, end))
}

/// The Markdown image that the data is the address of, with its text; else the data alone.
fn image_around<'t>(text: &'t str, data: Range<usize>, stretch: &Range<usize>) -> (Range<usize>, Option<&'t str>) {
    const LONGEST_ALT: usize = 512;
    let alone = (data.clone(), None);
    let Some(before) = text[stretch.start..data.start].strip_suffix("](") else { return alone };
    // A title may stand behind it.
    let mut behind = text.as_bytes()[data.end..stretch.end].iter().take(LONGEST_ALT);
    let Some(length) = behind.position(|byte| b"\n)".contains(byte)) else { return alone };
    if text.as_bytes()[data.end + length] != b')' {
        return alone;
    }
    let mut from = before.len().saturating_sub(LONGEST_ALT);
    while !before.is_char_boundary(from) {
        from += 1;
    }
    match before[from..].rfind("![") {
        Some(at) => {
            let start = stretch.start + from + at;
            (start..data.end + length + 1, Some(&text[start + 2..stretch.start + before.len()]))
        }
        None => alone,
    }
}

fn size_text(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} kB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
#[path = "markup_tests.rs"]
mod tests;
