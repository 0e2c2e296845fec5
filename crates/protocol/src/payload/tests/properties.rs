//! Properties over random values, random layouts of the same value, and random bytes.

use proptest::prelude::*;

use super::super::*;
use super::oracle;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Long),
        (-70i64..70).prop_map(Value::Long),
        any::<f64>()
            .prop_filter("finite", |double| double.is_finite())
            .prop_map(Value::Double),
        prop::collection::vec(any::<u8>(), 0..80).prop_map(Value::Bytes),
        ".{0,20}".prop_map(Value::String),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((".{0,5}", inner), 0..6)
                .prop_map(|entries| Value::Map(entries.into_iter().collect())),
        ]
    })
}

/// A value below up to as many containers as are allowed, of both sorts.
fn deep_value() -> impl Strategy<Value = Value> {
    (
        scalar(),
        prop::collection::vec(any::<bool>(), 0..=DEPTH_MAX),
    )
        .prop_map(|(innermost, levels)| {
            levels.into_iter().fold(innermost, |inner, array| {
                if array {
                    Value::Array(vec![inner, Value::Null])
                } else {
                    Value::Map([("k".to_owned(), inner)].into_iter().collect())
                }
            })
        })
}

/// Writes a value in one of its many legal layouts, steered by a tape of choices: long varints, several blocks,
/// blocks with a size.
struct Layout<'a> {
    tape: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Layout<'_> {
    fn choose(&mut self) -> u8 {
        *self.tape.next().unwrap()
    }

    fn long(&mut self, out: &mut Vec<u8>, value: i64) {
        let mut bits = ((value << 1) ^ (value >> 63)) as u64;
        let wanted = usize::from(self.choose() % 11);
        let mut written = 0;
        loop {
            written += 1;
            let last = bits < 0x80 && (written >= wanted || written == 10);
            out.push((bits & 0x7f) as u8 | if last { 0 } else { 0x80 });
            bits >>= 7;
            if last {
                return;
            }
        }
    }

    fn bytes(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        self.long(out, bytes.len() as i64);
        out.extend_from_slice(bytes);
    }

    fn blocks<T>(
        &mut self,
        out: &mut Vec<u8>,
        items: &[T],
        write: fn(&mut Self, &mut Vec<u8>, &T),
    ) {
        let mut rest = items;
        while !rest.is_empty() {
            let (block, after) = rest.split_at(1 + usize::from(self.choose()) % rest.len());
            let mut body = Vec::new();
            for item in block {
                write(self, &mut body, item);
            }
            if self.choose().is_multiple_of(2) {
                self.long(out, -(block.len() as i64));
                self.long(out, body.len() as i64);
            } else {
                self.long(out, block.len() as i64);
            }
            out.append(&mut body);
            rest = after;
        }
        self.long(out, 0);
    }

    fn value(&mut self, out: &mut Vec<u8>, value: &Value) {
        self.long(out, value.kind() as i64);
        match value {
            Value::Null => {}
            Value::Bool(value) => out.push(u8::from(*value)),
            Value::Long(value) => self.long(out, *value),
            Value::Double(value) => out.extend_from_slice(&value.to_le_bytes()),
            Value::Bytes(bytes) => self.bytes(out, bytes),
            Value::String(text) => self.bytes(out, text.as_bytes()),
            Value::Array(items) => {
                self.blocks(out, items, |layout, out, item| layout.value(out, item))
            }
            Value::Map(map) => {
                let entries: Vec<_> = map.iter().collect();
                self.blocks(out, &entries, |layout, out, (key, value)| {
                    layout.bytes(out, key.as_bytes());
                    layout.value(out, value);
                });
            }
        }
    }
}

/// Decoding and validation agree, and what decodes has a canonical form of the same meaning.
fn check_bytes(frame: &[u8]) -> Result<(), TestCaseError> {
    let decoded = decode(frame);
    prop_assert_eq!(
        decoded.as_ref().map(Value::kind).map_err(Clone::clone),
        validate(frame)
    );
    if let Ok(value) = decoded {
        let canonical = encode(&value).unwrap();
        prop_assert!(canonical.len() <= frame.len());
        prop_assert_eq!(decode(&canonical).unwrap(), value);
    }
    Ok(())
}

/// JSON cannot express bytes; everything else reads back as it was.
fn without_bytes(value: Value) -> Value {
    match value {
        Value::Bytes(_) => Value::Null,
        Value::Array(items) => Value::Array(items.into_iter().map(without_bytes).collect()),
        Value::Map(map) => Value::Map(
            map.into_iter()
                .map(|(key, value)| (key, without_bytes(value)))
                .collect(),
        ),
        other => other,
    }
}

proptest! {
    #[test]
    fn values_round_trip(value in prop_oneof![value(), deep_value()]) {
        let payload = Payload::encode(&value).unwrap();
        prop_assert_eq!(payload.kind(), Some(value.kind()));
        prop_assert_eq!(Payload::from_blob(payload.blob()).unwrap(), payload.clone());
        prop_assert_eq!(payload.decode().unwrap(), value);
    }

    #[test]
    fn every_legal_layout_means_the_same(value in value(), tape in prop::collection::vec(any::<u8>(), 1..40)) {
        let mut frame = FRAME_PREFIX.to_vec();
        Layout { tape: tape.iter().cycle() }.value(&mut frame, &value);
        prop_assert_eq!(decode(&frame).unwrap(), value);
        check_bytes(&frame)?;
    }

    #[test]
    fn the_other_implementation_agrees(value in value()) {
        oracle::check(&oracle::schema(), &value);
    }

    #[test]
    fn projections_read_back(value in value()) {
        let value = without_bytes(value);
        prop_assert_eq!(from_json(&display(&value).to_string()).unwrap(), value.clone());
        prop_assert_eq!(from_json(&display(&value).to_json().to_string()).unwrap(), value);
    }

    #[test]
    fn random_bytes_never_panic(datum in prop::collection::vec(any::<u8>(), 0..200)) {
        check_bytes(&datum)?;
        check_bytes(&[&FRAME_PREFIX[..], &datum].concat())?;
    }

    /// Uniform bytes fail at once; bytes that are mostly legal get deeper.
    #[test]
    fn likely_bytes_never_panic(
        datum in prop::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..200)
    ) {
        check_bytes(&[&FRAME_PREFIX[..], &datum].concat())?;
    }

    #[test]
    fn damaged_frames_never_panic(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut frame = encode(&value).unwrap();
        let at = at.index(frame.len());
        frame[at] = byte;
        check_bytes(&frame)?;
    }

    #[test]
    fn random_text_is_json_for_both_readers_or_for_none(text in r#"[\[\]{}",:0-9.eE+\-ntrufals\\ é]{0,40}"#) {
        let ours = from_json(&text);
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        match ours {
            Ok(_) => prop_assert!(theirs.is_ok(), "{}", text),
            Err(CodecError::MalformedJson(_)) => prop_assert!(theirs.is_err(), "{}", text),
            Err(_) => {}
        }
    }

    #[test]
    fn json_strings_read_as_the_general_reader_reads_them(text in any::<String>()) {
        let json = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(from_json(&json).unwrap(), Value::String(text));
    }
}
