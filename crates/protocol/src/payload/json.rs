//! Turns plain JSON text into a value.
//!
//! The general JSON reader loses what matters here: whether a number was written as an integer, integers beyond 64 bits, the
//! order of members, and nesting up to the limit of the codec. So this module has its own reader.

use super::{CodecError, DEPTH_MAX, Map, Value};

/// Reads one JSON value. Objects keep their member order; the last of duplicate members wins.
///
/// # Errors
/// [`CodecError::IntegerOverflow`], [`CodecError::NonFiniteFloat`] (`1e999`), [`CodecError::UnpairedSurrogate`],
/// [`CodecError::TooDeep`], and [`CodecError::MalformedJson`] for text that is not JSON.
pub fn from_json(text: &str) -> Result<Value, CodecError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let value = parser.value()?;
    match parser.next_token() {
        None => Ok(value),
        Some(_) => Err(parser.malformed()),
    }
}

/// Returns a lower bound of the bytes that the frame of this JSON text will have, so that long text is refused before
/// anything is built from it. It takes one pass and allocates nothing. Members that occur twice count twice; text that is
/// not JSON also has a number.
#[must_use]
pub fn encoded_bytes_min(text: &str) -> usize {
    let mut bytes = text.bytes();
    let mut found = 0;
    let mut in_number = false;
    while let Some(byte) = bytes.next() {
        let was_in_number = std::mem::replace(&mut in_number, false);
        match byte {
            b'"' => {
                // Its length, and every character; an escape is one character of at least one byte.
                found += 1;
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => {
                            if bytes.next() == Some(b'u') {
                                bytes.nth(3);
                            }
                            found += 1;
                        }
                        _ => found += 1,
                    }
                }
            }
            // Its kind and at least one byte.
            b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E' => {
                found += if was_in_number { 0 } else { 2 };
                in_number = true;
            }
            _ => {}
        }
    }
    found
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset of the next unread character; always on a character boundary when text is sliced.
    at: usize,
    /// Open containers around the current position; bounds the recursion.
    depth: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self) -> Result<Value, CodecError> {
        match self.next_token() {
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'"') => self.string().map(Value::String),
            Some(b'[') => self.array(),
            Some(b'{') => self.object(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.malformed()),
        }
    }

    fn array(&mut self) -> Result<Value, CodecError> {
        self.open()?;
        let mut items = Vec::new();
        if !self.close_if(b']') {
            loop {
                items.push(self.value()?);
                if !self.another(b']')? {
                    break;
                }
            }
        }
        Ok(Value::Array(items))
    }

    fn object(&mut self) -> Result<Value, CodecError> {
        self.open()?;
        let mut entries = Vec::new();
        if !self.close_if(b'}') {
            loop {
                if self.next_token() != Some(b'"') {
                    return Err(self.malformed());
                }
                let key = self.string()?;
                if self.next_token() != Some(b':') {
                    return Err(self.malformed());
                }
                self.at += 1;
                entries.push((key, self.value()?));
                if !self.another(b'}')? {
                    break;
                }
            }
        }
        Ok(Value::Map(Map::from_entries(entries)))
    }

    /// Steps into the container whose bracket is next.
    fn open(&mut self) -> Result<(), CodecError> {
        if self.depth == DEPTH_MAX {
            return Err(CodecError::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    /// Steps out of the current container if its closing bracket is next.
    fn close_if(&mut self, bracket: u8) -> bool {
        let closes = self.next_token() == Some(bracket);
        if closes {
            self.at += 1;
            self.depth -= 1;
        }
        closes
    }

    /// Whether a comma announces another member, or the container ends.
    fn another(&mut self, bracket: u8) -> Result<bool, CodecError> {
        if self.close_if(bracket) {
            Ok(false)
        } else if self.peek() == Some(b',') {
            self.at += 1;
            Ok(true)
        } else {
            Err(self.malformed())
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, CodecError> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.malformed());
        }
        self.at += word.len();
        Ok(value)
    }

    /// An integer token is a long or refused; `-0`, a fraction or an exponent makes a double.
    fn number(&mut self) -> Result<Value, CodecError> {
        let start = self.at;
        self.skip_if(b"-");
        let leading_zero = self.peek() == Some(b'0');
        let digits = self.digits()?;
        if leading_zero && digits > 1 {
            return Err(self.malformed());
        }
        let mut integer = true;
        if self.skip_if(b".") {
            integer = false;
            self.digits()?;
        }
        if self.skip_if(b"eE") {
            integer = false;
            self.skip_if(b"+-");
            self.digits()?;
        }
        let token = &self.text[start..self.at];
        if integer && token != "-0" {
            return token
                .parse()
                .map(Value::Long)
                .map_err(|_| CodecError::IntegerOverflow);
        }
        match token.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Double(value)),
            _ => Err(CodecError::NonFiniteFloat),
        }
    }

    /// Skips one or more digits and returns how many.
    fn digits(&mut self) -> Result<usize, CodecError> {
        let count = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if count == 0 {
            return Err(self.malformed());
        }
        self.at += count;
        Ok(count)
    }

    /// Reads the string whose opening quote is next.
    fn string(&mut self) -> Result<String, CodecError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain = self.plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    // Most strings have no escapes and are copied once, at their exact size.
                    return Ok(if text.is_empty() {
                        plain.to_owned()
                    } else {
                        text + plain
                    });
                }
                Some(b'\\') => {
                    text.push_str(plain);
                    self.at += 1;
                    text.push(self.escape()?);
                }
                _ => return Err(self.malformed()),
            }
        }
    }

    /// The characters up to the next quote, escape, control character or the end.
    fn plain(&mut self) -> &'a str {
        let start = self.at;
        let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
        self.at = self
            .rest()
            .iter()
            .position(special)
            .map_or(self.text.len(), |length| start + length);
        &self.text[start..self.at]
    }

    /// Returns the character of an escape. The backslash is already read.
    fn escape(&mut self) -> Result<char, CodecError> {
        let escape = self.peek().ok_or_else(|| self.malformed())?;
        self.at += 1;
        Ok(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => {
                self.at -= 1;
                return Err(self.malformed());
            }
        })
    }

    fn unicode_escape(&mut self) -> Result<char, CodecError> {
        let first = self.hex()?;
        let scalar = match first {
            0xd800..=0xdbff => {
                if !self.rest().starts_with(b"\\u") {
                    return Err(CodecError::UnpairedSurrogate);
                }
                self.at += 2;
                match self.hex()? {
                    second @ 0xdc00..=0xdfff => {
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    _ => return Err(CodecError::UnpairedSurrogate),
                }
            }
            other => other,
        };
        char::from_u32(scalar).ok_or(CodecError::UnpairedSurrogate)
    }

    fn hex(&mut self) -> Result<u32, CodecError> {
        let digits = self
            .rest()
            .first_chunk::<4>()
            .ok_or_else(|| self.malformed())?;
        let mut unit = 0;
        for digit in digits {
            unit = unit * 16
                + char::from(*digit)
                    .to_digit(16)
                    .ok_or_else(|| self.malformed())?;
        }
        self.at += 4;
        Ok(unit)
    }

    fn skip_if(&mut self, any_of: &[u8]) -> bool {
        let skips = self.peek().is_some_and(|byte| any_of.contains(&byte));
        self.at += usize::from(skips);
        skips
    }

    /// Skips white space and looks at what follows.
    fn next_token(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn malformed(&self) -> CodecError {
        CodecError::MalformedJson(self.at)
    }
}

#[cfg(test)]
mod tests;
