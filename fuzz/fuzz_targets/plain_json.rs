//! Arbitrary text as plain JSON: the reader agrees with serde_json about what JSON is, and what it reads comes back
//! through the codec and the display form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_protocol::payload::{CodecError, Payload, activity_result, display, from_json, input_list};
use serde_json::value::RawValue;

fuzz_target!(|text: &str| {
    // Raw text is taken without resolving it, so this judges the grammar alone, at any depth.
    let raw = serde_json::from_str::<&RawValue>(text);
    match from_json(text) {
        Ok(value) => {
            assert!(raw.is_ok());
            let payload = Payload::encode(&value).expect("what JSON can say can be encoded");
            assert_eq!(payload.decode().as_ref(), Ok(&value));
            assert_eq!(from_json(&display(&value).to_string()).as_ref(), Ok(&value));
        }
        Err(CodecError::MalformedJson(_)) => assert!(raw.is_err()),
        // The reader stops at the first thing it refuses, so the rest may be anything.
        Err(_) => {}
    }
    if let Ok(raw) = raw {
        let _ = input_list(Some(raw), "input");
        let _ = activity_result(Some(raw), "result");
    }
});
