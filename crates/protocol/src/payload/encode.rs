//! Writes a value as one frame in canonical form: shortest varints, one block with a positive count per container, entries
//! in the order of the map.

use super::{CodecError, DEPTH_MAX, FRAME_PREFIX, Value};

/// Encodes `value` as a frame: marker, fingerprint, datum.
///
/// # Errors
/// [`CodecError::NonFiniteFloat`] and [`CodecError::TooDeep`]; nothing else can go wrong.
pub fn encode(value: &Value) -> Result<Vec<u8>, CodecError> {
    let mut frame = Vec::with_capacity(64);
    frame.extend_from_slice(&FRAME_PREFIX);
    write_value(&mut frame, value, 0)?;
    Ok(frame)
}

/// `depth` counts the containers around this value, so the recursion is bounded by [`DEPTH_MAX`].
fn write_value(out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), CodecError> {
    out.push(value.kind().index_byte());
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Long(value) => write_long(out, *value),
        Value::Double(value) if value.is_finite() => out.extend_from_slice(&value.to_le_bytes()),
        Value::Double(_) => return Err(CodecError::NonFiniteFloat),
        Value::Bytes(bytes) => write_bytes(out, bytes),
        Value::String(text) => write_bytes(out, text.as_bytes()),
        Value::Array(_) | Value::Map(_) if depth == DEPTH_MAX => return Err(CodecError::TooDeep),
        Value::Array(items) => {
            write_count(out, items.len());
            for item in items {
                write_value(out, item, depth + 1)?;
            }
            end_blocks(out, items.len());
        }
        Value::Map(map) => {
            write_count(out, map.len());
            for (key, value) in map.iter() {
                write_bytes(out, key.as_bytes());
                write_value(out, value, depth + 1)?;
            }
            end_blocks(out, map.len());
        }
    }
    Ok(())
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Ends a container. An empty one is its zero count alone, which already ends it.
fn end_blocks(out: &mut Vec<u8>, items: usize) {
    if items > 0 {
        out.push(0);
    }
}

fn write_count(out: &mut Vec<u8>, count: usize) {
    write_long(
        out,
        i64::try_from(count).expect("a length in memory is below 2^63"),
    );
}

fn write_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
