//! The plain-JSON reader: numbers, strings, members, and what it refuses.

use super::*;

fn long(value: i64) -> Result<Value, CodecError> {
    Ok(Value::Long(value))
}

fn double(value: f64) -> Result<Value, CodecError> {
    Ok(Value::Double(value))
}

#[test]
fn numbers_keep_the_kind_of_their_token() {
    assert_eq!(from_json("7"), long(7));
    assert_eq!(from_json("7.0"), double(7.0));
    assert_eq!(from_json("7e0"), double(7.0));
    assert_eq!(from_json("1E+2"), double(100.0));
    assert_eq!(from_json("0"), long(0));
    assert_eq!(from_json("-0"), double(-0.0));
    assert_eq!(from_json("-0.0"), double(-0.0));
    assert_eq!(from_json("5e-324"), double(5e-324));
    assert_eq!(from_json("1e-400"), double(0.0));
    assert_eq!(from_json("9007199254740993"), long(9_007_199_254_740_993));
}

#[test]
fn doubles_are_read_to_the_nearest() {
    // A fast approximate reader is one unit off on values like these.
    for text in [
        "0.1",
        "9007199254740993.0",
        "2.2250738585072011e-308",
        "8.988465674311579e307",
    ] {
        assert_eq!(from_json(text), double(text.parse().unwrap()));
    }
}

#[test]
fn integers_outside_i64_are_refused_never_rounded() {
    assert_eq!(from_json("9223372036854775807"), long(i64::MAX));
    assert_eq!(from_json("-9223372036854775808"), long(i64::MIN));
    for text in [
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "1".repeat(400).as_str(),
    ] {
        assert_eq!(from_json(text), Err(CodecError::IntegerOverflow), "{text}");
    }
    assert_eq!(from_json("1e400"), Err(CodecError::NonFiniteFloat));
    assert_eq!(from_json("-1e400"), Err(CodecError::NonFiniteFloat));
}

#[test]
fn escapes_are_resolved() {
    let text = r#" "a\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\uD83D\uDE00é😀z" "#;
    assert_eq!(
        from_json(text),
        Ok(Value::from("a\"\\/\u{8}\u{c}\n\r\tAé€😀é😀z"))
    );
    assert_eq!(from_json(r#""\u0000""#), Ok(Value::from("\0")));
    assert_eq!(from_json(r#""""#), Ok(Value::from("")));
}

#[test]
fn unpaired_surrogates_are_refused() {
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\u0041""#,
        r#""\ud800\ud800""#,
        r#"{"\udfff":1}"#,
    ] {
        assert_eq!(
            from_json(text),
            Err(CodecError::UnpairedSurrogate),
            "{text}"
        );
    }
}

#[test]
fn members_keep_their_order_and_the_last_duplicate_wins() {
    let value = from_json(r#"{"b":1,"a":2,"b":3}"#).unwrap();
    let entries: Vec<_> = value
        .as_map()
        .unwrap()
        .iter()
        .map(|(key, value)| (key, value.clone()))
        .collect();
    assert_eq!(entries, [("b", Value::Long(3)), ("a", Value::Long(2))]);
}

#[test]
fn what_is_not_json_is_refused() {
    let texts = [
        "",
        " ",
        "nul",
        "nulll",
        "tru",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,]",
        "[1 2]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "01",
        "-",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "+1",
        "0x1",
        "NaN",
        "Infinity",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"\n\"",
        "\"\u{1}\"",
        "1 2",
        "[]]",
        "\u{feff}1",
        "'a'",
        "\"\\é\"",
        "\"\\ud83d\\u\"",
    ];
    for text in texts {
        assert!(
            matches!(from_json(text), Err(CodecError::MalformedJson(_))),
            "{text:?}"
        );
        assert!(
            serde_json::from_str::<serde_json::Value>(text).is_err(),
            "{text:?}"
        );
    }
}

#[test]
fn depth_is_counted_not_trusted_to_the_stack() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(from_json(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(from_json(&nested(DEPTH_MAX + 1)), Err(CodecError::TooDeep));
    assert_eq!(from_json(&"[".repeat(1_000_000)), Err(CodecError::TooDeep));
    assert_eq!(
        from_json(&"{\"a\":".repeat(1_000_000)),
        Err(CodecError::TooDeep)
    );
    let wide = format!("[{}]", vec!["[[]]"; 1000].join(","));
    assert!(from_json(&wide).is_ok());
}

#[test]
fn the_least_size_is_never_above_the_real_one() {
    for json in [
        "[]",
        "[1,2,3]",
        "[-1.5e-7, 0, 123456789012, true, false, null]",
        r#"{"key": "value", "other": ["\u00e9\n\"", {"deep": 1}]}"#,
        r#""é😀 \ud83d\ude00 text""#,
        r#"  [  "   "  ,  1  ]  "#,
    ] {
        let value = from_json(json).unwrap();
        let real = crate::payload::encode(&value).unwrap().len();
        let least = encoded_bytes_min(json);
        assert!(least <= real, "{json}: {least} and {real}");
    }
    assert_eq!(
        encoded_bytes_min(&format!("[\"{}\"]", "x".repeat(1000))),
        1001
    );
    assert_eq!(encoded_bytes_min("[1,2,3]"), 6);
}
