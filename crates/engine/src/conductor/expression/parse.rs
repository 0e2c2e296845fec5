//! From JSON to a [`Template`]. A text is read in one pass: open expressions are on a stack, and one that never closes is literal
//! text after all.

use longhaul_protocol::conductor::Object;
use serde_json::Value;

use super::{Expression, NESTING_MAX, Piece, Reference, Root, Template, Text};
use crate::conductor::path::{Path, PathError};

impl Template {
    /// Parses the texts of a value. Every value is a template; an expression that is not a path finds nothing when it is resolved.
    pub fn parse(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::parse_text(text),
            Value::Array(list) => {
                let list: Vec<_> = list.iter().map(Self::parse).collect();
                // A literal is not what was written where it contains an escape.
                let literals: Option<Vec<_>> = list.iter().map(Self::literal).collect();
                match literals {
                    Some(literals) => Self::Literal(literals.into_iter().cloned().collect()),
                    None => Self::List(list),
                }
            }
            Value::Object(map) => {
                let map: Vec<_> = map
                    .iter()
                    .map(|(name, value)| (name.clone(), Self::parse(value)))
                    .collect();
                let members = map.iter();
                let literals: Option<Object> = members
                    .map(|(name, value)| Some((name.clone(), value.literal()?.clone())))
                    .collect();
                match literals {
                    Some(literals) => Self::Literal(Value::Object(literals)),
                    None => Self::Map(map),
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Literal(value.clone()),
        }
    }

    fn literal(&self) -> Option<&Value> {
        if let Self::Literal(value) = self {
            Some(value)
        } else {
            None
        }
    }

    /// Parses one text.
    pub fn parse_text(text: &str) -> Self {
        if !text.contains("${") {
            return Self::Literal(Value::String(text.to_owned()));
        }
        let mut pieces = Text::parse(text).0;
        match pieces[..] {
            [] => Self::Literal(Value::String(String::new())),
            [Piece::Literal(ref mut literal)] => {
                Self::Literal(Value::String(std::mem::take(literal)))
            }
            _ => Self::Text(Text(pieces)),
        }
    }
}

/// An expression that is open, or the whole text.
#[derive(Default)]
struct Frame {
    pieces: Vec<Piece>,
    text: String,
    /// Braces that were opened inside and are not closed yet.
    braces: usize,
    /// The frame began with `$${`: its text is literal.
    escaped: bool,
    /// An expression inside would be nested too deeply.
    too_deep: bool,
}

impl Frame {
    fn push(&mut self, piece: Piece) {
        if !self.text.is_empty() {
            self.pieces
                .push(Piece::Literal(std::mem::take(&mut self.text)));
        }
        self.pieces.push(piece);
    }

    /// Takes back an inner frame that was never closed.
    fn absorb(&mut self, inner: Self) {
        self.text.push_str(if inner.escaped { "$${" } else { "${" });
        for piece in inner.pieces {
            match piece {
                Piece::Literal(text) => self.text.push_str(&text),
                Piece::Expression(_) => self.push(piece),
            }
        }
        self.text.push_str(&inner.text);
    }

    fn into_pieces(mut self) -> Vec<Piece> {
        if !self.text.is_empty() {
            self.pieces.push(Piece::Literal(self.text));
        }
        self.pieces
    }
}

impl Text {
    pub(super) fn parse(text: &str) -> Self {
        let mut outer: Vec<Frame> = Vec::new();
        let mut frame = Frame::default();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let opens = if frame.escaped {
                None
            } else if rest.starts_with("$${") {
                Some(true)
            } else if rest.starts_with("${") {
                Some(false)
            } else {
                None
            };
            let in_expression = !outer.is_empty();
            match (opens, character) {
                (Some(escaped), _) if outer.len() < NESTING_MAX => {
                    rest = &rest[if escaped { 3 } else { 2 }..];
                    let inner = Frame {
                        escaped,
                        ..Frame::default()
                    };
                    outer.push(std::mem::replace(&mut frame, inner));
                    continue;
                }
                (Some(_), _) => frame.too_deep = true,
                (None, '{') if in_expression => frame.braces += 1,
                (None, '}') if in_expression && frame.braces > 0 => frame.braces -= 1,
                (None, '}') if in_expression => {
                    rest = &rest[1..];
                    let closed = match outer.pop() {
                        Some(before) => std::mem::replace(&mut frame, before),
                        None => Frame::default(),
                    };
                    if closed.escaped {
                        frame.text.push_str("${");
                        frame.text.push_str(&closed.text);
                        frame.text.push('}');
                    } else {
                        frame.push(Piece::Expression(Expression::of(closed)));
                    }
                    continue;
                }
                (None, _) => {}
            }
            frame.text.push(character);
            rest = &rest[character.len_utf8()..];
        }
        while let Some(mut before) = outer.pop() {
            before.absorb(frame);
            frame = before;
        }
        Self(frame.into_pieces())
    }
}

impl Expression {
    fn of(frame: Frame) -> Self {
        if frame.too_deep {
            return Self::TooDeep;
        }
        if !frame.pieces.is_empty() {
            return Self::Nested(Text(frame.into_pieces()));
        }
        let source = frame.text.trim();
        if source.is_empty() {
            return Self::Blank;
        }
        match Reference::parse(source) {
            Ok(Some(reference)) => Self::Reference(reference),
            Ok(None) => Self::Secret {
                source: format!("${{{source}}}"),
            },
            Err(error) => Self::Invalid {
                source: source.to_owned(),
                message: error.to_string(),
            },
        }
    }
}

impl Reference {
    /// Parses a path. Returns `None` if it names a secret.
    pub(super) fn parse(source: &str) -> Result<Option<Self>, PathError> {
        let (name, mut steps) = Path::parse(source)?.into_parts();
        if name != "workflow" {
            let root = match steps.take_member() {
                None => Root::Name(name),
                Some(member) => Root::TaskMember {
                    reference: name,
                    member,
                },
            };
            return Ok(Some(Self { root, steps }));
        }
        let root = match steps.take_member() {
            None => Root::Workflow,
            Some(member) if member == "secrets" => return Ok(None),
            Some(member) if member == "env" => match steps.take_member() {
                Some(name) => Root::Environment(name),
                None => Root::WorkflowMember(member),
            },
            Some(member) => Root::WorkflowMember(member),
        };
        Ok(Some(Self { root, steps }))
    }
}
