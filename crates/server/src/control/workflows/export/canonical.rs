//! The canonical bytes of a bundle, `json-recursive-ksort-v1`, its checksum and its signature. A reader of an export parses it, renders
//! this form and compares. Every byte counts, so numbers are copied from the text and never parsed and rounded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hmac::{Hmac, Mac};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// Returns the canonical form of JSON text: keys sorted, no spaces, ASCII only.
pub(super) fn canonical(json: &str) -> Result<String, serde_json::Error> {
    let mut out = String::with_capacity(json.len());
    write_value(json.trim(), &mut out)?;
    Ok(out)
}

/// Returns the members of an object in canonical form, with commas and without braces.
pub(super) fn members<'a>(
    members: impl Iterator<Item = (&'a &'static str, &'a String)>,
) -> Result<String, serde_json::Error> {
    let mut out = String::new();
    for (name, value) in members {
        if !out.is_empty() {
            out.push(',');
        }
        write_string(name, &mut out);
        out.push(':');
        write_value(value, &mut out)?;
    }
    Ok(out)
}

fn write_value(json: &str, out: &mut String) -> Result<(), serde_json::Error> {
    match json.as_bytes().first() {
        Some(b'{') => {
            // The last value of a repeated key counts, as for every reader. UTF-8 sorts as its characters do.
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json)?;
            out.push('{');
            for (number, (key, value)) in members.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_value(value.get(), out)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json)?;
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                write_value(item.get(), out)?;
            }
            out.push(']');
        }
        Some(b'"') => write_string(&serde_json::from_str::<String>(json)?, out),
        Some(b'-' | b'0'..=b'9') => write_number(json, out),
        _ => out.push_str(json),
    }
    Ok(())
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='\u{7f}' => out.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// Writes integers unchanged. A number with a fraction or an exponent is a float, in the shortest form that reads back the same.
fn write_number(text: &str, out: &mut String) {
    if text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        out.push_str(if text == "-0" { "0" } else { text });
        return;
    }
    // JSON text that was parsed once is a number; the parser of the standard library rounds exactly.
    let value: f64 = text.parse().unwrap_or(f64::NAN);
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..=16).contains(&exponent) {
        let fixed = value.to_string();
        out.push_str(&fixed);
        if !fixed.contains('.') {
            out.push_str(".0");
        }
    } else {
        out.push_str(mantissa);
        if !mantissa.contains('.') {
            out.push_str(".0");
        }
        let _ = write!(out, "e{exponent:+}");
    }
}

/// The checksum and the signature of canonical bytes that come piece by piece. The signature is HMAC-SHA256 (RFC 2104).
pub(super) struct Seal {
    sum: Sha256,
    signing: Option<Hmac<Sha256>>,
}

impl Seal {
    pub(super) fn new(key: Option<&[u8]>) -> Self {
        let signing = key.map(|key| {
            Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length")
        });
        Self {
            sum: Sha256::new(),
            signing,
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
        if let Some(signing) = &mut self.signing {
            signing.update(bytes);
        }
    }

    /// Checksum and signature, hexadecimal.
    pub(super) fn close(self) -> (String, Option<String>) {
        let signature = self
            .signing
            .map(|signing| hex(&signing.finalize().into_bytes()));
        (hex(&self.sum.finalize()), signature)
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        assert_eq!(canonical(json).unwrap(), expected, "{json}");
    }

    #[test]
    fn keys_are_sorted_and_nothing_else_is_moved() {
        check(
            r#" {"b": [3, 1, {"z": null, "a": true}], "a": {}, "a/b": [], "Z": false} "#,
            r#"{"Z":false,"a":{},"a/b":[],"b":[3,1,{"a":true,"z":null}]}"#,
        );
        check(r#"{"a": 1, "a": 2}"#, r#"{"a":2}"#);
    }

    #[test]
    fn strings_are_ascii_with_utf16_escapes() {
        check(
            r#""é😀\u20AC\/\"\\\n\u0001\u007f""#,
            "\"\\u00e9\\ud83d\\ude00\\u20ac/\\\"\\\\\\n\\u0001\u{7f}\"",
        );
        check(r#"{"ü": 1, "z": 2}"#, "{\"z\":2,\"\\u00fc\":1}");
    }

    #[test]
    fn numbers_keep_their_kind() {
        for (json, expected) in [
            ("0", "0"),
            ("-0", "0"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
            ("1.0", "1.0"),
            ("1.10", "1.1"),
            ("-0.0", "-0.0"),
            ("1e2", "100.0"),
            ("0.0001", "0.0001"),
            ("0.00001", "1.0e-5"),
            ("12.5e-7", "1.25e-6"),
            ("1e16", "10000000000000000.0"),
            ("12345678901234567.0", "12345678901234568.0"),
            ("1e17", "1.0e+17"),
            ("1.5E+25", "1.5e+25"),
            ("0.1", "0.1"),
            ("2.2250738585072014e-308", "2.2250738585072014e-308"),
        ] {
            check(json, expected);
        }
    }

    fn sealed(key: &[u8], bytes: &[u8]) -> (String, Option<String>) {
        let mut seal = Seal::new(Some(key));
        // In pieces, as an export comes.
        bytes.chunks(7).for_each(|piece| seal.add(piece));
        seal.close()
    }

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        let (_, signature) = sealed(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(
            signature.as_deref(),
            Some("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
        );
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let (_, signature) = sealed(&[0xaa; 131], text);
        assert_eq!(
            signature.as_deref(),
            Some("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54")
        );
        assert_eq!(
            Seal::new(None).close(),
            (
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned(),
                None
            )
        );
    }
}
