use super::*;
use proptest::prelude::*;

fn rule(kind: &str, pattern: &str, keep: &str, replacement: Option<&str>) -> Rule {
    Rule {
        kind: kind.to_owned(),
        pattern: pattern.to_owned(),
        keep: keep.to_owned(),
        replacement: replacement.map(str::to_owned),
    }
}

fn clean(rules: &[Rule], text: &str) -> String {
    Cleaner::new(rules).expect("the rules are sound").clean(text).into_owned()
}

fn tags() -> Vec<Rule> {
    vec![
        rule("tag", "think", "nothing", None),
        rule("tag", "cite", "text", None),
        rule("tag", "artifact", "replacement", Some("[artifact]")),
    ]
}

#[test]
fn of_a_tag_is_kept_what_its_rule_says() {
    for (text, expected) in [
        ("<think>hm</think>Yes.", "Yes."),
        ("Yes.<think>hm</think>", "Yes."),
        ("<THINK a=\"1\">hm</Think >\n\nYes.", "Yes."),
        ("One.\n\n<think>\nhm\n</think>\n\nTwo.", "One.\n\nTwo."),
        ("One <think>hm</think> two.", "One two."),
        ("It <cite source=\"1\">rains</cite>.", "It rains."),
        ("Here: <artifact id=\"a\">long</artifact>.", "Here: [artifact]."),
        ("<cite>a <think>b</think>c</cite>", "a c"),
        ("<think>a <cite>b</cite></think>c", "c"),
        ("<think><think>a</think>b</think>c", "c"),
        ("a<think/>b", "ab"),
    ] {
        assert_eq!(clean(&tags(), text), expected, "{text}");
    }
}

#[test]
fn what_is_no_pair_of_tags_stays() {
    for text in [
        "<think>the rest stays",
        "the start stays</think>",
        "<think <think",
        "a < b and c > d",
        "<thinking>no rule for this</thinking>",
        "<think.x>other</think.x>",
        "1<think",
        "<>",
        "</>",
        "<think>a</cite>",
    ] {
        assert_eq!(clean(&tags(), text), text);
    }
    // What is opened within a pair and not closed goes or stays with it.
    assert_eq!(clean(&tags(), "<cite>a<think>b</cite>c"), "a<think>bc");
    assert_eq!(clean(&tags(), "<think>a<cite>b</think>c</cite>"), "c</cite>");
}

#[test]
fn code_is_not_touched() {
    for text in [
        "```\n<think>a</think>\n```",
        "```xml\n<think>a</think>\n```\nafter",
        "~~~\n<think>a</think>\n```\n<think>b</think>\n~~~",
        "````\n```\n<think>a</think>\n```\n````",
        "- item\n\n    ```\n    <think>a</think>\n    ```",
        "```\n<think>a</think> in a block that is not closed",
        "write `<think>a</think>` for it",
        "``a ` <think>b</think>`` c",
    ] {
        assert_eq!(clean(&tags(), text), text);
    }
    assert_eq!(clean(&tags(), "`a` <think>b</think> `c`"), "`a` `c`");
    assert_eq!(clean(&tags(), "` <think>b</think> not code"), "` not code");
    // The end of a tag that stands in code is none.
    let text = "<think>a\n```\n</think>\n```\nb";
    assert_eq!(clean(&tags(), text), text);
    // But what is thought goes with its code.
    assert_eq!(clean(&tags(), "<think>a\n```\ncode\n```\n</think>\nb"), "b");
}

#[test]
fn of_a_pattern_is_kept_what_its_rule_says() {
    assert_eq!(clean(&[rule("pattern", r"【[^】]*】", "nothing", None)], "Rain【4†source】."), "Rain.");
    assert_eq!(clean(&[rule("pattern", r"\{\{(.*?)\}\}", "text", None)], "a {{b}} c"), "a b c");
    assert_eq!(clean(&[rule("pattern", r"(\d+) ?USD", "replacement", Some("$$$1"))], "5 USD"), "$5");
    assert_eq!(clean(&[rule("pattern", "x", "nothing", None)], "`x` x"), "`x`");
    // In order: the second sees what the first made.
    let rules = [rule("pattern", "a", "replacement", Some("b")), rule("pattern", "bb", "replacement", Some("c"))];
    assert_eq!(clean(&rules, "ab"), "c");
}

#[test]
fn data_becomes_a_note() {
    let rules = [rule("data", "image/", "replacement", Some("[{type}, {size}]"))];
    let data = "QUJD".repeat(1024);
    for (text, expected) in [
        (format!("![a cat](data:image/png;base64,{data})"), "a cat: [image/png, 3 kB]"),
        (format!("See ![](data:image/png;base64,{data}) here"), "See [image/png, 3 kB] here"),
        (format!("data:image/svg+xml;charset=utf-8;base64,{data}"), "[image/svg+xml, 3 kB]"),
        (format!("(data:image/jpeg;base64,{})", "QUJD".repeat(20)), "([image/jpeg, 60 bytes])"),
        (format!("data:image/webp;base64,{}", "QUJD".repeat(700_000)), "[image/webp, 2.0 MB]"),
    ] {
        assert_eq!(clean(&rules, &text), expected);
    }
    for text in [
        format!("data:audio/wav;base64,{data}"),
        "data:image/png;base64,QUJD".to_owned(),
        format!("data:image/png,{data}"),
        format!("data:image;base64,{data}"),
        format!("`data:image/png;base64,{data}`"),
        "data: none".to_owned(),
    ] {
        assert_eq!(clean(&rules, &text), text);
    }
}

#[test]
fn a_bad_rule_is_refused() {
    for (bad, column) in [
        (rule("tag", "a b", "nothing", None), "pattern"),
        (rule("tag", "", "nothing", None), "pattern"),
        (rule("pattern", "(", "nothing", None), "pattern"),
        (rule("pattern", "a*", "nothing", None), "pattern"),
        (rule("pattern", "(?=a)", "nothing", None), "pattern"),
        (rule("pattern", &"(a{1000}){1000}".repeat(2), "nothing", None), "pattern"),
        (rule("else", "a", "nothing", None), "kind"),
        (rule("tag", "a", "all", None), "keep"),
        (rule("data", "image/", "text", None), "keep"),
        (rule("tag", "a", "replacement", None), "replacement"),
        (rule("tag", "a", "nothing", Some("b")), "replacement"),
    ] {
        assert_eq!(Cleaner::new([&bad]).expect_err("it is bad").column, column, "{bad:?}");
    }
}

#[test]
fn without_markup_nothing_is_copied() {
    let cleaner = Cleaner::new(&tags()).expect("sound");
    assert!(matches!(cleaner.clean("No markup < here >, and `code`.  "), Cow::Borrowed(_)));
}

proptest! {
    #[test]
    fn any_text_is_cleaned_and_nothing_but_markup_goes(parts in prop::collection::vec(0_usize..14, 0..60)) {
        const PARTS: [&str; 14] = [
            "<think>", "</think>", "<cite>", "</cite>", "<artifact x=\"1\">", "</artifact>", "`", "```\n", "\n", " ", "wörd ", "<", "data:", "~~~\n",
        ];
        let text: String = parts.iter().map(|part| PARTS[*part]).collect();
        let cleaner = Cleaner::new(&tags()).expect("sound");
        let cleaned = cleaner.clean(&text).into_owned();
        // Words that stand before any markup stay.
        let plain = text.find(['<', '`', '~']).unwrap_or(text.len());
        let words: Vec<&str> = text[..plain].split_whitespace().collect();
        prop_assert!(cleaned.split_whitespace().collect::<Vec<_>>().starts_with(&words) || words.last().is_some_and(|last| text[plain..].starts_with(|c: char| !c.is_whitespace()) && !last.is_empty()));
        prop_assert!(cleaned.len() <= text.len() + 10 * "[artifact]".len());
    }

    #[test]
    fn any_bytes_do(text in "\\PC{0,200}") {
        let cleaner = Cleaner::new(&tags()).expect("sound");
        cleaner.clean(&text);
    }
}
