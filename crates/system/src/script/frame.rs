//! What parent and script process send each other: JSON in frames. A frame is four bytes with its length, most significant first, and then
//! that many bytes. Both sides refuse a frame over their bound before they allocate it.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Limit;

/// Bytes before the content of a frame.
pub(crate) const HEADER_BYTES: usize = 4;

/// The largest first frame, which has the limits.
pub(crate) const LIMITS_BYTES_MAX: usize = 4 << 10;

/// The answer of a script process to its limits.
pub(crate) const READY: &[u8] = b"ready";

/// A request to a script process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// Evaluate a script. `$` is the input.
    Evaluate {
        #[serde(borrow)]
        script: Cow<'a, str>,
        #[serde(borrow)]
        input: &'a RawValue,
    },
    /// Evaluate a jq program, and return the list of its results.
    Jq {
        #[serde(borrow)]
        program: Cow<'a, str>,
        #[serde(borrow)]
        input: &'a RawValue,
    },
    /// Compare a value with a JSON Schema, and return the list of differences.
    Compare {
        #[serde(borrow)]
        schema: &'a RawValue,
        #[serde(borrow)]
        value: &'a RawValue,
    },
    /// Parse a script, and do not run it.
    CheckSyntax {
        #[serde(borrow)]
        script: Cow<'a, str>,
    },
}

/// The answer to a request.
#[derive(Debug, Deserialize)]
pub(crate) struct Reply {
    /// The process ends after this answer, because the evaluation left it with much memory.
    pub(crate) retires: bool,
    pub(crate) outcome: Outcome<serde_json::Value>,
}

/// What became of an evaluation.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Outcome<V> {
    Value(V),
    Thrown { message: String, line: Option<u32> },
    Limit(Limit),
}

/// Returns the first bytes of a frame.
pub(crate) fn header(length: usize) -> io::Result<[u8; HEADER_BYTES]> {
    let length = u32::try_from(length).map_err(|_| io::Error::other("the frame is too long"))?;
    Ok(length.to_be_bytes())
}

/// Returns the length that a header contains, or an error if it is over `max`.
pub(crate) fn length(header: [u8; HEADER_BYTES], max: usize) -> io::Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    if length > max {
        return Err(io::Error::other("the frame is longer than its limit"));
    }
    Ok(length)
}

/// Reads one frame, and waits for it.
pub(crate) fn read(from: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut head = [0; HEADER_BYTES];
    from.read_exact(&mut head)?;
    let mut content = vec![0; length(head, max)?];
    from.read_exact(&mut content)?;
    Ok(content)
}

/// Writes one frame at once: a header of its own would cost a second switch between the processes.
pub(crate) fn write(to: &mut impl Write, content: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + content.len());
    frame.extend_from_slice(&header(content.len())?);
    frame.extend_from_slice(content);
    to.write_all(&frame)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"hello").unwrap();
        write(&mut bytes, b"").unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(read(&mut from, 5).unwrap(), b"hello");
        assert_eq!(read(&mut from, 5).unwrap(), b"");
        assert!(read(&mut from, 5).is_err(), "there is no third frame");
    }

    #[test]
    fn a_frame_over_its_bound_is_refused_before_it_is_allocated() {
        let mut from = [0xff; 8].as_slice();
        assert!(read(&mut from, 1 << 20).is_err());
    }
}
