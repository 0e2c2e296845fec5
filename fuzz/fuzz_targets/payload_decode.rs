//! Arbitrary bytes as a frame: decoding and validation agree, and what decodes survives its canonical form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_protocol::payload::{Payload, Value, decode, display, encode, validate};

/// The fuzzer would need long to guess the fingerprint, so every input is also tried behind it.
const PREFIX: [u8; 10] = [0xc3, 0x01, 0xe2, 0xa3, 0x3d, 0xff, 0x55, 0x80, 0x22, 0x37];

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&[&PREFIX, bytes].concat());
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Payload::from_blob(text);
    }
});

fn check(frame: &[u8]) {
    let decoded = decode(frame);
    assert_eq!(
        decoded.as_ref().map(Value::kind).map_err(Clone::clone),
        validate(frame)
    );
    let Ok(value) = decoded else { return };

    let canonical = encode(&value).expect("what decodes can be encoded");
    assert!(canonical.len() <= frame.len());
    assert_eq!(decode(&canonical).as_ref(), Ok(&value));

    let payload = Payload::encode(&value).expect("what decodes can be encoded");
    assert_eq!(payload.kind(), Some(value.kind()));
    assert_eq!(Payload::from_blob(payload.blob()), Ok(payload));
    let _ = display(&value).to_string();
}
