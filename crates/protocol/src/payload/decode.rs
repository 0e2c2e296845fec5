//! Reads frames strictly. `decode` builds the value and `validate` builds nothing; both use the same walker, so they accept
//! the same frames.
//!
//! Invariant: no declared length or count allocates before it was compared with the bytes that are left.

use super::{CodecError, DEPTH_MAX, FRAME_MARKER, FRAME_PREFIX, Kind, Map, Value};

/// How many items a container reserves room for at once. A count is only bounded by the bytes left, and nested
/// containers could each claim all of them; a small first step keeps memory proportional to what is really there.
const ITEMS_RESERVED_MAX: usize = 32;

/// A 64-bit varint has at most this many bytes.
const VARINT_BYTES_MAX: usize = 10;

const ENDS_EARLY: CodecError =
    CodecError::InvalidFraming("the frame ends before its value is complete");

/// Decodes one whole frame.
///
/// # Errors
/// [`CodecError::InvalidFraming`], [`CodecError::TooDeep`] and [`CodecError::UnsupportedSchema`].
pub fn decode(frame: &[u8]) -> Result<Value, CodecError> {
    walk::<Tree>(frame)
}

/// Checks one whole frame without building its value and without allocating. Returns the case of the value.
///
/// # Errors
/// The same as [`decode`], for the same frames.
pub fn validate(frame: &[u8]) -> Result<Kind, CodecError> {
    walk::<Check>(frame)
}

/// The case of a frame's value, read from its first bytes only.
pub(super) fn peek_kind(frame: &[u8]) -> Result<Kind, CodecError> {
    Reader {
        rest: datum(frame)?,
        depth: 0,
    }
    .kind()
}

fn walk<B: Build>(frame: &[u8]) -> Result<B::Node, CodecError> {
    let mut reader = Reader {
        rest: datum(frame)?,
        depth: 0,
    };
    let node = reader.value::<B>()?;
    if reader.rest.is_empty() {
        Ok(node)
    } else {
        Err(CodecError::InvalidFraming("bytes follow the value"))
    }
}

fn datum(frame: &[u8]) -> Result<&[u8], CodecError> {
    if let Some(datum) = frame.strip_prefix(&FRAME_PREFIX) {
        return Ok(datum);
    }
    match frame
        .strip_prefix(&FRAME_MARKER)
        .and_then(<[u8]>::first_chunk)
    {
        Some(fingerprint) => Err(CodecError::UnsupportedSchema(u64::from_be_bytes(
            *fingerprint,
        ))),
        None => Err(CodecError::InvalidFraming(
            "the blob is not a single-object Avro frame",
        )),
    }
}

/// What a walk makes of the parts it meets.
trait Build {
    type Node;
    type Items;
    type Entries;

    fn scalar(scalar: Scalar<'_>) -> Self::Node;
    fn items(expected: usize) -> Self::Items;
    fn push(items: &mut Self::Items, item: Self::Node);
    fn array(items: Self::Items) -> Self::Node;
    fn entries(expected: usize) -> Self::Entries;
    fn insert(entries: &mut Self::Entries, key: &str, value: Self::Node);
    fn map(entries: Self::Entries) -> Self::Node;
}

enum Scalar<'a> {
    Null,
    Bool(bool),
    Long(i64),
    Double(f64),
    Bytes(&'a [u8]),
    String(&'a str),
}

struct Tree;

impl Build for Tree {
    type Node = Value;
    type Items = Vec<Value>;
    type Entries = Vec<(String, Value)>;

    fn scalar(scalar: Scalar<'_>) -> Value {
        match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Long(value) => Value::Long(value),
            Scalar::Double(value) => Value::Double(value),
            Scalar::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Scalar::String(text) => Value::String(text.to_owned()),
        }
    }

    fn items(expected: usize) -> Self::Items {
        Vec::with_capacity(expected.min(ITEMS_RESERVED_MAX))
    }

    fn push(items: &mut Self::Items, item: Value) {
        items.push(item);
    }

    fn array(items: Self::Items) -> Value {
        Value::Array(items)
    }

    fn entries(expected: usize) -> Self::Entries {
        Vec::with_capacity(expected.min(ITEMS_RESERVED_MAX))
    }

    fn insert(entries: &mut Self::Entries, key: &str, value: Value) {
        entries.push((key.to_owned(), value));
    }

    fn map(entries: Self::Entries) -> Value {
        Value::Map(Map::from_entries(entries))
    }
}

struct Check;

impl Build for Check {
    type Node = Kind;
    type Items = ();
    type Entries = ();

    fn scalar(scalar: Scalar<'_>) -> Kind {
        match scalar {
            Scalar::Null => Kind::Null,
            Scalar::Bool(_) => Kind::Bool,
            Scalar::Long(_) => Kind::Long,
            Scalar::Double(_) => Kind::Double,
            Scalar::Bytes(_) => Kind::Bytes,
            Scalar::String(_) => Kind::String,
        }
    }

    fn items(_: usize) {}
    fn push((): &mut (), _: Kind) {}
    fn array((): ()) -> Kind {
        Kind::Array
    }
    fn entries(_: usize) {}
    fn insert((): &mut (), _: &str, _: Kind) {}
    fn map((): ()) -> Kind {
        Kind::Map
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// Open containers around the current position; bounds the recursion.
    depth: usize,
}

impl<'a> Reader<'a> {
    fn value<B: Build>(&mut self) -> Result<B::Node, CodecError> {
        Ok(B::scalar(match self.kind()? {
            Kind::Null => Scalar::Null,
            Kind::Bool => Scalar::Bool(self.bool()?),
            Kind::Long => Scalar::Long(self.long()?),
            Kind::Double => Scalar::Double(self.double()?),
            Kind::Bytes => Scalar::Bytes(self.bytes()?),
            Kind::String => Scalar::String(self.string()?),
            Kind::Array => return self.array::<B>(),
            Kind::Map => return self.map::<B>(),
        }))
    }

    fn kind(&mut self) -> Result<Kind, CodecError> {
        Kind::from_index(self.long()?).ok_or(CodecError::InvalidFraming(
            "a value has none of the eight cases",
        ))
    }

    fn array<B: Build>(&mut self) -> Result<B::Node, CodecError> {
        self.open()?;
        let mut block = self.block()?;
        let mut items = B::items(block.count);
        while block.count > 0 {
            for _ in 0..block.count {
                B::push(&mut items, self.value::<B>()?);
            }
            self.end_block(&block)?;
            block = self.block()?;
        }
        self.depth -= 1;
        Ok(B::array(items))
    }

    fn map<B: Build>(&mut self) -> Result<B::Node, CodecError> {
        self.open()?;
        let mut block = self.block()?;
        let mut entries = B::entries(block.count);
        while block.count > 0 {
            for _ in 0..block.count {
                let key = self.string()?;
                B::insert(&mut entries, key, self.value::<B>()?);
            }
            self.end_block(&block)?;
            block = self.block()?;
        }
        self.depth -= 1;
        Ok(B::map(entries))
    }

    fn open(&mut self) -> Result<(), CodecError> {
        if self.depth == DEPTH_MAX {
            return Err(CodecError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    /// Reads a block's header: a count, and after a negative count the size of the block in bytes.
    fn block(&mut self) -> Result<Block, CodecError> {
        let count = self.long()?;
        let left_after = if count < 0 {
            let size = self.length()?;
            Some(self.rest.len() - size)
        } else {
            None
        };
        // An item costs at least one byte, so a larger count cannot be true.
        match usize::try_from(count.unsigned_abs()) {
            Ok(count) if count <= self.rest.len() => Ok(Block { count, left_after }),
            _ => Err(CodecError::InvalidFraming(
                "a block counts more items than there are bytes",
            )),
        }
    }

    fn end_block(&self, block: &Block) -> Result<(), CodecError> {
        match block.left_after {
            Some(left) if left != self.rest.len() => Err(CodecError::InvalidFraming(
                "a block's byte size does not match its items",
            )),
            _ => Ok(()),
        }
    }

    fn bool(&mut self) -> Result<bool, CodecError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::InvalidFraming("a boolean is neither 0 nor 1")),
        }
    }

    fn double(&mut self) -> Result<f64, CodecError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        let value = f64::from_le_bytes(*bytes);
        if value.is_finite() {
            Ok(value)
        } else {
            Err(CodecError::InvalidFraming("a double is not finite"))
        }
    }

    fn string(&mut self) -> Result<&'a str, CodecError> {
        std::str::from_utf8(self.bytes()?)
            .map_err(|_| CodecError::InvalidFraming("a string is not UTF-8"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(bytes)
    }

    /// A length that is known to lie within the bytes left.
    fn length(&mut self) -> Result<usize, CodecError> {
        match usize::try_from(self.long()?) {
            Ok(length) if length <= self.rest.len() => Ok(length),
            Ok(_) => Err(ENDS_EARLY),
            Err(_) => Err(CodecError::InvalidFraming("a length is negative")),
        }
    }

    fn long(&mut self) -> Result<i64, CodecError> {
        let first = self.byte()?;
        let mut bits = u64::from(first & 0x7f);
        if first >= 0x80 {
            bits |= self.long_tail()?;
        }
        Ok((bits >> 1).cast_signed() ^ -((bits & 1).cast_signed()))
    }

    /// The varint bytes after the first. Longer forms than needed are legal up to ten bytes.
    fn long_tail(&mut self) -> Result<u64, CodecError> {
        let mut bits = 0;
        for position in 1..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            if position == VARINT_BYTES_MAX - 1 && byte > 1 {
                break;
            }
            bits |= u64::from(byte & 0x7f) << (7 * position);
            if byte < 0x80 {
                return Ok(bits);
            }
        }
        Err(CodecError::InvalidFraming(
            "an integer has more than 64 bits",
        ))
    }

    fn byte(&mut self) -> Result<u8, CodecError> {
        let (byte, rest) = self.rest.split_first().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(*byte)
    }
}

struct Block {
    count: usize,
    /// How many bytes must be left after the block, if it said its size.
    left_after: Option<usize>,
}
