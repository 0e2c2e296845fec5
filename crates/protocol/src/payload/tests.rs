//! The codec against the published golden vectors, tables of legal and refused frames, an independent Avro implementation,
//! and arbitrary bytes.

mod golden;
mod oracle;
mod properties;

use super::*;

/// A frame from the hexadecimal digits of its datum.
fn frame(datum: &str) -> Vec<u8> {
    let digits: Vec<u8> = datum
        .chars()
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    let datum = digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]);
    FRAME_PREFIX.into_iter().chain(datum).collect()
}

fn nested_frame(depth: usize) -> Vec<u8> {
    // Each level is an array block of one item; null is innermost.
    frame(&("0c02".repeat(depth) + "00" + &"00".repeat(depth)))
}

#[test]
fn a_payload_serializes_as_its_envelope_and_comes_back() {
    let payload = Payload::encode(&Value::Long(7)).unwrap();
    let json = serde_json::to_string(&payload).unwrap();
    assert_eq!(json, r#"{"codec":"avro","blob":"wwHioz3/VYAiNwQO"}"#);
    assert_eq!(serde_json::from_str::<Payload>(&json).unwrap(), payload);
    assert_eq!(
        serde_json::from_value::<Payload>(serde_json::to_value(&payload).unwrap()).unwrap(),
        payload
    );
    assert_eq!(
        serde_json::from_reader::<_, Payload>(json.as_bytes()).unwrap(),
        payload
    );
    assert!(serde_json::from_str::<Payload>(r#"{"codec":"json","blob":"7"}"#).is_err());
}

#[test]
fn the_constant_payloads_are_what_they_say() {
    assert_eq!(Payload::null().decode(), Ok(Value::Null));
    assert_eq!(Payload::null(), Payload::encode(&Value::Null).unwrap());
    assert_eq!(
        Payload::empty_list(),
        Payload::encode(&Value::Array(vec![])).unwrap()
    );
    assert!(
        Payload::empty_list().is_list()
            && !Payload::empty_list().is_map()
            && !Payload::null().is_list()
    );
}

#[test]
fn damaged_storage_is_an_error_not_a_panic() {
    for blob in [
        "",
        "%",
        "wwHioz3/VYAiNw==",
        "wwHioz3/VYAiNwwE",
        "wwHioz3/VYAiNxA=",
    ] {
        let json = serde_json::json!({"codec": "avro", "blob": blob});
        let payload: Payload = serde_json::from_value(json).unwrap();
        assert!(payload.decode().is_err());
        assert!(payload.display().is_err());
        let _ = (payload.kind(), payload.is_list(), payload.is_map());
    }
}

#[test]
fn the_limit_counts_characters_of_base64() {
    let payload = Payload::null();
    assert!(!payload.exceeds(16));
    assert!(payload.exceeds(15));
}

#[test]
fn the_kind_is_read_from_any_legal_index() {
    // The union index of an array, written in two and in ten bytes.
    for datum in ["0c00", "8c0000", "8c80808080808080800000"] {
        let payload = Payload::from_blob(&blob::to_text(&frame(datum))).unwrap();
        assert!(payload.is_list(), "{datum}");
    }
}

#[test]
fn depth_is_counted_not_trusted_to_the_stack() {
    let checks = || {
        let deepest = decode(&nested_frame(DEPTH_MAX)).unwrap();
        assert_eq!(validate(&nested_frame(DEPTH_MAX)), Ok(Kind::Array));
        assert_eq!(encode(&deepest).unwrap(), nested_frame(DEPTH_MAX));
        // What the value meets afterwards must live within the same stack.
        assert_eq!(deepest.clone(), deepest);
        let text = display(&deepest).to_string();
        assert_eq!(from_json(&text).as_ref(), Ok(&deepest));
        assert_eq!(display(&deepest).to_json().to_string(), text);
        let deeper = Value::Array(vec![deepest]);
        assert_eq!(encode(&deeper), Err(CodecError::TooDeep));

        for depth in [DEPTH_MAX + 1, 5000, 1_000_000] {
            assert_eq!(decode(&nested_frame(depth)), Err(CodecError::TooDeep));
            assert_eq!(validate(&nested_frame(depth)), Err(CodecError::TooDeep));
        }
        let maps = frame(&("0e020261".repeat(100_000) + "00"));
        assert_eq!(decode(&maps), Err(CodecError::TooDeep));
    };
    // A server's threads have 2 MiB; a quarter of it must do.
    std::thread::Builder::new()
        .stack_size(512 * 1024)
        .spawn(checks)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn claimed_counts_allocate_nothing() {
    // Each of 256 arrays claims as many items as there are bytes left; all of them reserving would be gigabytes.
    let tail = 1_000_000;
    let mut hostile = FRAME_PREFIX.to_vec();
    for _ in 0..DEPTH_MAX {
        hostile.extend_from_slice(&[0x0c, 0x80, 0x89, 0x7a]);
    }
    hostile.resize(hostile.len() + tail, 0);
    assert_eq!(decode(&hostile).is_err(), validate(&hostile).is_err());
}

#[test]
fn a_large_payload_round_trips() {
    let value = Value::Array((0..100_000).map(Value::Long).collect());
    let payload = Payload::encode(&value).unwrap();
    assert!(payload.blob().len() > 200_000);
    assert_eq!(
        Payload::from_blob(payload.blob()).unwrap().decode(),
        Ok(value)
    );
}
