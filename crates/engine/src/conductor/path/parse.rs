//! From text to a [`Path`]. One pass over the text; parentheses and filters inside filters have a bounded depth.

use serde_json::Value;

use super::filter::{Compare, Filter, Operand};
use super::{Ending, Function, PATH_BYTES_MAX, Path, Select, Step, Steps};

/// How deeply filters and their parentheses may be nested.
const FILTER_DEPTH_MAX: usize = 16;

/// How many parts a path may have: names, unions, comparisons.
const PARTS_MAX: usize = 1000;

/// A text that is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} at character {at}")]
pub struct PathError {
    message: String,
    at: usize,
}

impl Path {
    /// Parses a path whose first name is a root, such as `workflow` or a task reference.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut parser = Parser::new(text);
        if text.len() > PATH_BYTES_MAX {
            return parser.fail("a path has at most 10000 bytes");
        }
        let root = if parser.eat('[') {
            let name = parser.quoted()?;
            parser.expect(']')?;
            name
        } else {
            parser.name(Names::Free)?
        };
        let steps = parser.steps(Names::Free)?;
        if !parser.at_end() {
            return parser.fail("unexpected character");
        }
        Ok(Self { root, steps })
    }
}

/// Which characters end a name that is not quoted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Only the syntax of paths: names may contain blanks.
    Free,
    /// Also blanks and operators, because the path is an operand.
    InFilter,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    parts: usize,
    /// Patterns are numbered in the whole path, so that an evaluation compiles each one once.
    patterns: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            parts: 0,
            patterns: 0,
        }
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, PathError> {
        Err(PathError {
            message: message.into(),
            at: self.at,
        })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn at_end(&self) -> bool {
        self.at == self.text.len()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn eat_text(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<(), PathError> {
        self.blanks();
        if self.eat(wanted) {
            return Ok(());
        }
        self.fail(format!("expected {wanted:?}"))
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn count_part(&mut self) -> Result<(), PathError> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return self.fail(format!("a path has at most {PARTS_MAX} parts"));
        }
        Ok(())
    }

    /// Parses everything after the root.
    fn steps(&mut self, names: Names) -> Result<Steps, PathError> {
        let mut steps = Steps::default();
        loop {
            let descend = self.eat_text("..");
            let dot = descend || self.eat('.');
            let select = match self.peek() {
                Some('[') => {
                    self.at += 1;
                    self.bracket()?
                }
                Some('*') if dot => {
                    self.at += 1;
                    Select::All
                }
                _ if !dot => break,
                _ => {
                    let name = self.name(names)?;
                    if self.eat('(') {
                        self.expect(')')?;
                        steps.ending = Ending::Function(self.function(&name)?);
                        break;
                    }
                    Select::Member(name)
                }
            };
            self.count_part()?;
            steps.list.push(Step { descend, select });
        }
        if matches!(steps.ending, Ending::Selected)
            && let Some(Step {
                descend: false,
                select: Select::Members(_),
            }) = steps.list.last()
            && let Some(Step {
                select: Select::Members(names),
                ..
            }) = steps.list.pop()
        {
            steps.ending = Ending::Merge(names);
        }
        Ok(steps)
    }

    fn function(&self, name: &str) -> Result<Function, PathError> {
        Ok(match name {
            "length" | "size" => Function::Length,
            "keys" => Function::Keys,
            "min" => Function::Min,
            "max" => Function::Max,
            "sum" => Function::Sum,
            "avg" => Function::Average,
            "first" => Function::First,
            "last" => Function::Last,
            _ => return self.fail(format!("unknown function {name}()")),
        })
    }

    fn name(&mut self, names: Names) -> Result<String, PathError> {
        let ends = |character: char| match character {
            '.' | '[' | ']' | '(' | ')' => true,
            ' ' | '\t' | '=' | '!' | '<' | '>' | '&' | '|' | ',' | '~' | '\'' | '"' => {
                names == Names::InFilter
            }
            _ => false,
        };
        let rest = self.rest();
        let length = rest.find(ends).unwrap_or(rest.len());
        let name = rest[..length].trim();
        if name.is_empty() {
            return self.fail("expected a name");
        }
        self.at += length;
        Ok(name.to_owned())
    }

    /// Parses the inside of brackets and the closing one.
    fn bracket(&mut self) -> Result<Select, PathError> {
        self.blanks();
        let select = match self.peek() {
            Some('*') => {
                self.at += 1;
                Select::All
            }
            Some('?') => {
                self.at += 1;
                Select::Filter(self.either()?)
            }
            Some('\'' | '"') => {
                let mut names = vec![self.quoted()?];
                while self.eat_comma()? {
                    names.push(self.quoted()?);
                }
                match <[String; 1]>::try_from(names) {
                    Ok([name]) => Select::Member(name),
                    Err(names) => Select::Members(names),
                }
            }
            _ => self.indexes()?,
        };
        self.expect(']')?;
        Ok(select)
    }

    fn eat_comma(&mut self) -> Result<bool, PathError> {
        self.blanks();
        self.count_part()?;
        let found = self.eat(',');
        self.blanks();
        Ok(found)
    }

    fn indexes(&mut self) -> Result<Select, PathError> {
        let from = self.optional_index()?;
        self.blanks();
        if self.eat(':') {
            self.blanks();
            let to = self.optional_index()?;
            self.blanks();
            let step = if self.eat(':') {
                self.blanks();
                self.optional_index()?.unwrap_or(1)
            } else {
                1
            };
            return match usize::try_from(step) {
                Ok(step) if step > 0 => Ok(Select::Slice { from, to, step }),
                _ => self.fail("the step of a slice must be above zero"),
            };
        }
        let Some(first) = from else {
            return self.fail("expected an index, a slice, a quoted name, * or a filter");
        };
        let mut list = vec![first];
        while self.eat_comma()? {
            match self.optional_index()? {
                Some(index) => list.push(index),
                None => return self.fail("expected an index"),
            }
        }
        Ok(match list[..] {
            [index] => Select::Index(index),
            _ => Select::Indexes(list),
        })
    }

    fn optional_index(&mut self) -> Result<Option<i64>, PathError> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Ok(None);
        }
        let number = &rest[..sign + digits];
        let Ok(index) = number.parse() else {
            return self.fail("the index is too large");
        };
        self.at += number.len();
        Ok(Some(index))
    }

    /// Parses text in single or double quotes, with a backslash before a character that is meant literally.
    fn quoted(&mut self) -> Result<String, PathError> {
        self.blanks();
        let Some(quote @ ('\'' | '"')) = self.peek() else {
            return self.fail("expected a quoted name");
        };
        self.at += 1;
        let mut text = String::new();
        let mut escaped = false;
        let start = self.at;
        for (offset, character) in self.text[start..].char_indices() {
            if escaped {
                text.push(match character {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                });
                escaped = false;
            } else if character == '\\' {
                escaped = true;
            } else if character == quote {
                self.at = start + offset + 1;
                return Ok(text);
            } else {
                text.push(character);
            }
        }
        self.fail("the quote is not closed")
    }

    /// Parses conditions joined by `||`.
    fn either(&mut self) -> Result<Filter, PathError> {
        self.depth += 1;
        if self.depth > FILTER_DEPTH_MAX {
            return self.fail(format!("filters nest at most {FILTER_DEPTH_MAX} levels"));
        }
        let mut list = vec![self.all()?];
        self.blanks();
        while self.eat_text("||") {
            list.push(self.all()?);
            self.blanks();
        }
        self.depth -= 1;
        Ok(Filter::Any(list))
    }

    /// Parses conditions joined by `&&`.
    fn all(&mut self) -> Result<Filter, PathError> {
        let mut list = vec![self.condition()?];
        self.blanks();
        while self.eat_text("&&") {
            list.push(self.condition()?);
            self.blanks();
        }
        Ok(Filter::All(list))
    }

    fn condition(&mut self) -> Result<Filter, PathError> {
        self.count_part()?;
        self.blanks();
        let mut negated = false;
        while self.eat('!') {
            negated = !negated;
            self.blanks();
        }
        let condition = if self.eat('(') {
            let inner = self.either()?;
            self.expect(')')?;
            inner
        } else {
            self.comparison()?
        };
        Ok(if negated {
            Filter::Not(Box::new(condition))
        } else {
            condition
        })
    }

    fn comparison(&mut self) -> Result<Filter, PathError> {
        let left = self.operand()?;
        self.blanks();
        let operators = [
            ("==", Compare::Equal),
            ("!=", Compare::NotEqual),
            ("<=", Compare::LessOrEqual),
            (">=", Compare::GreaterOrEqual),
            ("=~", Compare::Matches),
            ("<", Compare::Less),
            (">", Compare::Greater),
            ("in ", Compare::In),
            ("nin ", Compare::NotIn),
            ("in[", Compare::In),
            ("nin[", Compare::NotIn),
        ];
        for (text, operator) in operators {
            if self.eat_text(text) {
                if text.ends_with('[') {
                    self.at -= 1;
                }
                let right = self.operand()?;
                if (operator == Compare::Matches) != matches!(right, Operand::Pattern { .. }) {
                    return self.fail("=~ needs a pattern such as /a.*/ on its right side");
                }
                return Ok(Filter::Compare(left, operator, right));
            }
        }
        match left {
            Operand::Path { from_root, steps } => Ok(Filter::Exists { from_root, steps }),
            Operand::Literal(Value::Bool(constant)) => Ok(Filter::Constant(constant)),
            Operand::Literal(_) | Operand::Pattern { .. } => self.fail("expected a comparison"),
        }
    }

    fn operand(&mut self) -> Result<Operand, PathError> {
        self.count_part()?;
        self.blanks();
        match self.peek() {
            Some(root @ ('@' | '$')) => {
                self.at += 1;
                self.depth += 1;
                if self.depth > FILTER_DEPTH_MAX {
                    return self.fail(format!("filters nest at most {FILTER_DEPTH_MAX} levels"));
                }
                let steps = self.steps(Names::InFilter)?;
                self.depth -= 1;
                Ok(Operand::Path {
                    from_root: root == '$',
                    steps,
                })
            }
            Some('\'' | '"') => Ok(Operand::Literal(Value::String(self.quoted()?))),
            Some('/') => self.pattern(),
            Some('[') => {
                self.at += 1;
                let mut list = Vec::new();
                self.blanks();
                while !self.eat(']') {
                    match self.operand()? {
                        Operand::Literal(value @ (Value::Array(_) | Value::Object(_))) => {
                            return self.fail(format!("{value} cannot be in a list of a filter"));
                        }
                        Operand::Literal(value) => list.push(value),
                        Operand::Path { .. } | Operand::Pattern { .. } => {
                            return self.fail("a list of a filter contains only literals");
                        }
                    }
                    if !self.eat_comma()? {
                        self.expect(']')?;
                        break;
                    }
                }
                Ok(Operand::Literal(Value::Array(list)))
            }
            _ => self.literal(),
        }
    }

    /// Parses a number or one of the words `true`, `false` and `null`.
    fn literal(&mut self) -> Result<Operand, PathError> {
        let rest = self.rest();
        let length = rest
            .find(|character: char| !matches!(character, 'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '+'))
            .unwrap_or(rest.len());
        match serde_json::from_str::<Value>(&rest[..length]) {
            Ok(value) => {
                self.at += length;
                Ok(Operand::Literal(value))
            }
            Err(_) => self.fail("expected @, a number, quoted text, true, false or null"),
        }
    }

    /// Parses `/pattern/flags`. The pattern is compiled when it is used, because a definition may contain very many.
    fn pattern(&mut self) -> Result<Operand, PathError> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        let end = self.text[start..].char_indices().find(|(_, character)| {
            let ends = *character == '/' && !escaped;
            escaped = *character == '\\' && !escaped;
            ends
        });
        let Some((length, _)) = end else {
            return self.fail("the pattern is not closed");
        };
        let source = self.text[start..start + length].replace("\\/", "/");
        self.at = start + length + 1;
        let mut flags = String::new();
        while let Some(flag @ ('i' | 'm' | 's' | 'x')) = self.peek() {
            self.at += 1;
            if !flags.contains(flag) {
                flags.push(flag);
            }
        }
        let number = self.patterns;
        self.patterns += 1;
        Ok(Operand::Pattern {
            number,
            source,
            flags,
        })
    }
}
