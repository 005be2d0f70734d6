use super::*;
use proptest::prelude::*;

fn canon(text: &str) -> String {
    canonical(text).expect("canonical form")
}

fn problem(text: &str) -> (Problem, String) {
    let error = shallow(text).expect_err("refused");
    (error.problem.clone(), path_at(text, error.offset))
}

#[test]
fn canonical_numbers_are_exact_decimal_values() {
    for (text, expected) in [
        ("0", "0"),
        ("-0.0", "0"),
        ("0e99999999999999999999", "0"),
        ("1", "1"),
        ("1.0", "1"),
        ("10e-1", "1"),
        ("100", "1e2"),
        ("1.50", "15e-1"),
        ("-0.00120", "-12e-4"),
        ("1e16", "1e16"),
        ("1180591620717411303424", "1180591620717411303424"),
        ("1E+2", "1e2"),
        ("1e000000000000000000000000001", "1e1"),
    ] {
        assert_eq!(canon(text), expected, "{text}");
    }
    assert_eq!(canonical("[1e9999999999999999999]").unwrap_err().problem, Problem::ExponentTooLong);
}

#[test]
fn canonical_objects_are_sorted_by_utf8_bytes_at_every_depth() {
    // U+FF5E sorts before U+1F600 by UTF-8 bytes, and after it by UTF-16 code units.
    assert_eq!(
        canon(r#"{"😀":1,"～":2,"a":{"z":[ ],"b":[{"y":1,"x":2}, 3]}}"#),
        r#"{"a":{"b":[{"x":2,"y":1},3],"z":[]},"～":2,"😀":1}"#
    );
    assert_eq!(canon(" [ true , false,null, { } ] "), "[true,false,null,{}]");
}

#[test]
fn canonical_strings_escape_only_what_must_be() {
    assert_eq!(canon(r#""\u0000\n\/\u00e9\ud83d\ude00\"\\""#), "\"\\u0000\\u000a/é😀\\\"\\\\\"");
}

#[test]
fn canonical_without_leaves_out_top_level_members_only() {
    assert_eq!(canonical_without(r#"{"role":"x","id":1,"a":{"id":2}}"#, &["role", "id"]).unwrap(), r#"{"a":{"id":2}}"#);
    assert_eq!(canonical_without(r#"[{"id":1}]"#, &["id"]).unwrap(), r#"[{"id":1}]"#);
}

#[test]
fn a_nested_duplicate_key_has_no_canonical_form() {
    let text = r#"[0,{"a":{"b":1,"c":2,"b":3}}]"#;
    let error = canonical(text).unwrap_err();
    assert_eq!(error.problem, Problem::DuplicateKey("b".to_owned()));
    assert_eq!(path_at(text, error.offset), "$[1].a.b");
}

#[test]
fn refusals_name_the_path() {
    assert_eq!(problem(r#"{"a":1,"b":2,"a":3}"#), (Problem::DuplicateKey("a".to_owned()), "$.a".to_owned()));
    assert_eq!(problem(r#"{"a":1,"\u0061":3}"#), (Problem::DuplicateKey("a".to_owned()), "$.a".to_owned()));
    for (text, path) in [
        (r#""\ud83d""#, "$"),
        (r#"{"m":[0,[],{"x":1,"text":"ok \ude00"}]}"#, "$.m[2].text"),
        (r#"{"a key":["\ud83d\u0041"]}"#, r#"$["a key"][0]"#),
        (r#"{"m":{"\ud83d":1}}"#, r#"$.m["\"\\ud83d\""]"#),
    ] {
        assert_eq!(problem(text), (Problem::LoneSurrogate, path.to_owned()), "{text}");
    }
}

#[test]
fn escaped_backslashes_are_not_surrogates_or_nul() {
    let text = r#"{"a":"\\ud83d \\u0000 \u0000 \ud83d\ude00"}"#;
    assert_eq!(shallow(text).unwrap().member("a"), Some(r#""\\ud83d \\u0000 \u0000 \ud83d\ude00""#));
}

#[test]
fn a_shallow_split_keeps_the_text_of_each_part() {
    let text = " { \"n\" : 1e16 , \"k\\u0065y\" : [ 1.0, {\"x\" : -0.0} ], \"e\":{} } ";
    let Shallow::Object(members) = shallow(text).unwrap() else { panic!("an object") };
    let parts: Vec<_> = members.iter().map(|m| (m.key.as_ref(), m.raw_key, m.value)).collect();
    assert_eq!(
        parts,
        [("n", "\"n\"", "1e16"), ("key", "\"k\\u0065y\"", "[ 1.0, {\"x\" : -0.0} ]"), ("e", "\"e\"", "{}")]
    );
    assert_eq!(shallow("[ [], \"a\" ,null]").unwrap(), Shallow::Array(vec!["[]", "\"a\"", "null"]));
}

#[test]
fn malformed_texts_are_refused() {
    for text in
        ["", " ", "{", "[1,]", "{\"a\"}", "{\"a\":}", "[1 2]", "nul", "\"a", "1 2", "]", "{]", "[}", "{\"a\":1,}"]
    {
        assert!(shallow(text).is_err(), "{text}");
    }
}

#[test]
fn depth_costs_no_stack() {
    let depth = 1_000_000;
    let text = format!("{}1.0{}", "[{\"b\":".repeat(depth), ",\"a\":2}]".repeat(depth));
    assert!(matches!(shallow(&text), Ok(Shallow::Array(elements)) if elements.len() == 1));
    let expected = format!("{}1{}", "[{\"a\":2,\"b\":".repeat(depth), "}]".repeat(depth));
    assert!(canonical(&text).unwrap() == expected);
}

/// JSON values, written with random spacing and key order by `spell`.
fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn spell(value: &serde_json::Value, seed: u64) -> String {
    let space = [" ", "", "\n\t", ""][(seed % 4) as usize];
    let next = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    let (open, mut parts, close) = match value {
        serde_json::Value::Array(items) => ("[", items.iter().map(|v| spell(v, next)).collect::<Vec<_>>(), "]"),
        serde_json::Value::Object(map) => {
            let parts = map.iter().map(|(k, v)| format!("{}{space}:{}", quote(k), spell(v, next)));
            ("{", parts.collect(), "}")
        }
        other => return format!("{space}{other}"),
    };
    if open == "{" && seed % 2 == 1 {
        parts.reverse();
    }
    format!("{open}{space}{}{space}{close}", parts.join(&format!("{space},")))
}

proptest! {
    #[test]
    fn all_spellings_have_one_canonical_form(value in value(), a in any::<u64>(), b in any::<u64>()) {
        let form = canonical(&spell(&value, a)).unwrap();
        prop_assert_eq!(&form, &canonical(&spell(&value, b)).unwrap());
        prop_assert_eq!(&form, &canonical(&form).unwrap());
        if !form.contains('e') {
            // Without exponents (which turn integers into floats there) an independent parser reads the same value.
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&form).unwrap(), value);
        }
    }

    #[test]
    fn any_text_is_walked_without_panic(text in any::<String>(), noise in r#"[\[\]{}:,"\\u0-9a-f tnl-]{0,40}"#) {
        for text in [text, noise] {
            if let Err(error) = shallow(&text) {
                path_at(&text, error.offset);
            }
            let _ = canonical(&text);
        }
    }

    #[test]
    fn quoting_is_undone_by_unquoting(text in any::<String>()) {
        let quoted = quote(&text);
        prop_assert_eq!(unquote(&quoted).unwrap(), text);
    }
}
