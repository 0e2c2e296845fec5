//! A hand-written parser from the query language of lists to a typed [`Condition`].
//!
//! ```text
//! query     = group *( "OR" group )
//! group     = predicate *( "AND" predicate )
//! predicate = [ "NOT" ] ( field op literal | field "IN" "(" literal *( "," literal ) ")" | field "STARTS_WITH" literal
//!                       | field | "(" query ")" )
//! ```
//!
//! A text without any operator is searched in workflow ids and business keys instead. Every refusal names the error and its
//! character.

use super::attribute::{Definitions, Type};
use super::condition::{Comparison, Condition, Field, Matcher, Test};
use super::cursor::Cursor;
use super::lexer::{Dialect, Lexeme, Operator, Token, lex};
use super::literal::{ALL_STATUSES, Literal, statuses};
use super::term::{Kind, Term, read_time};

/// Bytes of a query. Far more than a person writes; a limit at all, because a query is planned before it is run.
pub(super) const QUERY_BYTES_MAX: usize = 16 << 10;

/// Nested parentheses. Each level costs a frame of the stack here and a level of the database's expression.
pub(super) const DEPTH_MAX: usize = 32;

/// Literals of a query altogether: each is a value bound to a statement.
pub(super) const LITERALS_MAX: usize = 500;

/// Why a text is not a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at character {at})")]
pub struct QueryError {
    /// Counted from 1.
    pub at: usize,
    pub message: String,
}

impl QueryError {
    pub(super) fn new(at: usize, message: &str) -> Self {
        Self {
            at,
            message: message.to_owned(),
        }
    }
}

/// Reads a query with the names that a namespace has defined.
pub fn parse(text: &str, definitions: &Definitions) -> Result<Condition, QueryError> {
    if text.len() > QUERY_BYTES_MAX {
        let message = format!("a query may have at most {QUERY_BYTES_MAX} bytes");
        return Err(QueryError::new(1, &message));
    }
    let tokens = lex(text, Dialect::Code)?;
    let mut parser = Parser {
        cursor: Cursor::new(text, &tokens),
        definitions,
        depth: 0,
        literals: 0,
    };
    if is_expression(&tokens) {
        return parser.whole();
    }
    // Words alone: flags joined by AND and OR if they are flags, else text to search for.
    match (parser.whole(), tokens.as_slice()) {
        (Ok(condition), _) => Ok(condition),
        (
            Err(_),
            [
                Token {
                    is: Lexeme::Quoted(text),
                    ..
                },
            ],
        ) if !text.is_empty() => Ok(Condition::FreeText(text.to_ascii_lowercase())),
        (Err(_), [_, ..])
            if tokens
                .iter()
                .all(|token| matches!(token.is, Lexeme::Word(_))) =>
        {
            Ok(Condition::FreeText(text.trim().to_ascii_lowercase()))
        }
        (Err(error), _) => Err(error),
    }
}

/// Returns whether the tokens contain more than words.
fn is_expression(tokens: &[Token]) -> bool {
    let has_operator = tokens
        .iter()
        .any(|token| matches!(token.is, Lexeme::Operator(_)));
    let has_keyword = tokens.windows(2).enumerate().any(|(place, pair)| {
        let (word, after) = (&pair[0].is, &pair[1].is);
        let negates = word.is_word("NOT") && matches!(after, Lexeme::Word(_) | Lexeme::Open);
        let lists = word.is_word("IN") && *after == Lexeme::Open;
        let starts = place > 0 && word.is_word("STARTS_WITH");
        negates || lists || starts
    });
    has_operator || has_keyword
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    definitions: &'a Definitions,
    depth: usize,
    literals: usize,
}

/// A resolved field name: its kind and the literals that it accepts.
#[derive(Clone)]
enum Named {
    Field(Field, Type),
    Status,
}

/// The operator after a field.
enum Verb {
    Compare(Operator),
    In,
    StartsWith,
}

/// Whether the text that is being read is under an odd number of `NOT`s.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polarity {
    Plain,
    Negated,
}

impl Polarity {
    /// Returns the opposite if the condition holds, otherwise the same.
    fn negated_if(self, condition: bool) -> Self {
        match (self, condition) {
            (Self::Plain, true) | (Self::Negated, false) => Self::Negated,
            (Self::Plain, false) | (Self::Negated, true) => Self::Plain,
        }
    }
}

/// The word between two conditions.
#[derive(Clone, Copy)]
enum Connective {
    And,
    Or,
}

impl Connective {
    /// Returns the connective of the inverted parts: under a negation AND and OR change places.
    fn under(self, polarity: Polarity) -> Self {
        match (self, polarity) {
            (Self::And, Polarity::Plain) | (Self::Or, Polarity::Negated) => Self::And,
            (Self::Or, Polarity::Plain) | (Self::And, Polarity::Negated) => Self::Or,
        }
    }
}

impl<'a> Parser<'a> {
    fn whole(&mut self) -> Result<Condition, QueryError> {
        let condition = self.query(Polarity::Plain)?;
        match self.cursor.peek() {
            None => Ok(condition),
            Some(_) => Err(self.cursor.unexpected("AND, OR or the end")),
        }
    }

    /// Parses a query. Inside a negated parenthesis AND and OR change places, and every predicate is inverted.
    fn query(&mut self, polarity: Polarity) -> Result<Condition, QueryError> {
        let mut groups = vec![self.group(polarity)?];
        while self.cursor.take_word("OR") {
            groups.push(self.group(polarity)?);
        }
        Ok(join(groups, Connective::Or.under(polarity)))
    }

    fn group(&mut self, polarity: Polarity) -> Result<Condition, QueryError> {
        let mut predicates = vec![self.predicate(polarity)?];
        while self.cursor.take_word("AND") {
            predicates.push(self.predicate(polarity)?);
        }
        Ok(join(predicates, Connective::And.under(polarity)))
    }

    fn predicate(&mut self, polarity: Polarity) -> Result<Condition, QueryError> {
        let polarity = polarity.negated_if(self.cursor.take_word("NOT"));
        if self.cursor.peek() == Some(&Lexeme::Open) {
            return self.parenthesis(polarity);
        }
        let at = self.cursor.at();
        let (named, name) = self.field()?;
        let (verb, polarity) = match self.verb()? {
            Some((verb, inverts)) => (verb, polarity.negated_if(inverts)),
            None => return self.bare(at, named, &name, polarity),
        };
        match named {
            Named::Status => self.status(&verb, polarity),
            Named::Field(field, literal_type) => {
                let matcher = self.matcher(&name, literal_type, &verb)?;
                let matcher = match polarity {
                    Polarity::Plain => matcher,
                    Polarity::Negated => matcher.inverted(),
                };
                check_list(at, &name, &field, &matcher)?;
                Ok(Condition::Test(Test { field, matcher }))
            }
        }
    }

    fn parenthesis(&mut self, polarity: Polarity) -> Result<Condition, QueryError> {
        if self.depth == DEPTH_MAX {
            return Err(self.refuse(&format!("parentheses may be {DEPTH_MAX} deep")));
        }
        self.cursor.next += 1;
        self.depth += 1;
        let condition = self.query(polarity)?;
        self.depth -= 1;
        self.cursor.take(&Lexeme::Close, ")")?;
        Ok(condition)
    }

    fn field(&mut self) -> Result<(Named, String), QueryError> {
        let Some(Lexeme::Word(word)) = self.cursor.peek() else {
            return Err(self.cursor.unexpected("a field"));
        };
        let word = word.clone();
        let is_name = word.starts_with(|first: char| first.is_ascii_alphabetic())
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name || is_keyword(&word) {
            return Err(self.cursor.unexpected("a field"));
        }
        let system = |field| Some(Named::Field(field, Type::Keyword));
        let time = |field| Some(Named::Field(field, Type::Datetime));
        let named = match word.as_str() {
            "WorkflowType" => system(Field::WorkflowType),
            "WorkflowId" => system(Field::WorkflowId),
            "RunId" => system(Field::RunId),
            "TaskQueue" => system(Field::TaskQueue),
            "BuildId" | "BuildIds" => system(Field::BuildId),
            "StartTime" | "ExecutionTime" => time(Field::StartTime),
            "CloseTime" => time(Field::CloseTime),
            "Status" | "ExecutionStatus" => Some(Named::Status),
            name => self.definitions.get(name).map(|defined| {
                let field = Field::Attribute {
                    name: name.to_owned(),
                    kind: defined.kind(),
                };
                Named::Field(field, defined)
            }),
        };
        let named = named.ok_or_else(|| {
            self.refuse(&format!(
                "`{word}` is neither a system field nor a search attribute of this namespace"
            ))
        })?;
        self.cursor.next += 1;
        Ok((named, word))
    }

    /// Returns the operator after a field and whether `NOT` preceded it; `None` if there is no operator.
    fn verb(&mut self) -> Result<Option<(Verb, bool)>, QueryError> {
        let inverts = self.cursor.take_word("NOT");
        let verb = match self.cursor.peek() {
            Some(Lexeme::Operator(operator)) if !inverts => Verb::Compare(*operator),
            Some(word) if word.is_word("IN") => Verb::In,
            Some(word) if word.is_word("STARTS_WITH") => Verb::StartsWith,
            _ if inverts => return Err(self.cursor.unexpected("IN or STARTS_WITH")),
            _ => return Ok(None),
        };
        self.cursor.next += 1;
        Ok(Some((verb, inverts)))
    }

    fn bare(
        &self,
        at: usize,
        named: Named,
        name: &str,
        polarity: Polarity,
    ) -> Result<Condition, QueryError> {
        match named {
            Named::Field(field, Type::Bool) => {
                let matcher = Matcher::OneOf(vec![Term::Flag(polarity == Polarity::Plain)]);
                Ok(Condition::Test(Test { field, matcher }))
            }
            Named::Field(..) | Named::Status => Err(QueryError::new(
                at,
                &format!("only a bool attribute can be used alone; compare `{name}` with a value"),
            )),
        }
    }

    fn status(&mut self, verb: &Verb, polarity: Polarity) -> Result<Condition, QueryError> {
        let (Verb::Compare(operator @ (Operator::Equal | Operator::NotEqual)), at) =
            (verb, self.cursor.at())
        else {
            return Err(self.refuse_verb("a status is compared with = and != only"));
        };
        let literal = self.literal("Status", Type::Keyword)?;
        let Term::Text(word) = literal else {
            return Err(QueryError::new(at, "a status is a word"));
        };
        let wanted = statuses(&word.to_ascii_lowercase()).ok_or_else(|| {
            QueryError::new(
                at,
                "a status is running, completed, failed, cancelled, terminated, pending or waiting",
            )
        })?;
        let polarity = polarity.negated_if(*operator == Operator::NotEqual);
        let chosen = ALL_STATUSES
            .into_iter()
            .filter(|status| wanted.contains(status) == (polarity == Polarity::Plain));
        Ok(Condition::Status(chosen.collect()))
    }

    fn matcher(
        &mut self,
        name: &str,
        literal_type: Type,
        verb: &Verb,
    ) -> Result<Matcher, QueryError> {
        let ordered = matches!(literal_type, Type::Int | Type::Double | Type::Datetime);
        match verb {
            Verb::In => {
                self.cursor.take(&Lexeme::Open, "(")?;
                let mut terms = vec![self.literal(name, literal_type)?];
                while self.cursor.peek() == Some(&Lexeme::Comma) {
                    self.cursor.next += 1;
                    terms.push(self.literal(name, literal_type)?);
                }
                self.cursor.take(&Lexeme::Close, ", or )")?;
                Ok(Matcher::OneOf(terms))
            }
            Verb::StartsWith => {
                let is_text = matches!(literal_type, Type::Keyword | Type::Text);
                if !is_text {
                    return Err(self.refuse_verb(&format!(
                        "STARTS_WITH needs a keyword or text field and `{name}` is {}",
                        literal_type.as_str()
                    )));
                }
                match self.literal(name, literal_type)? {
                    Term::Text(prefix) => Ok(Matcher::StartsWith(prefix)),
                    Term::Integer(_) | Term::Double(_) | Term::Flag(_) | Term::Time(_) => {
                        Err(self.refuse_verb("STARTS_WITH takes a string"))
                    }
                }
            }
            Verb::Compare(operator) => {
                let comparison = match operator {
                    Operator::Equal | Operator::NotEqual => None,
                    Operator::Less => Some(Comparison::Less),
                    Operator::LessOrEqual => Some(Comparison::LessOrEqual),
                    Operator::Greater => Some(Comparison::Greater),
                    Operator::GreaterOrEqual => Some(Comparison::GreaterOrEqual),
                };
                if comparison.is_some() && !ordered {
                    return Err(self.refuse_verb(&format!(
                        "`{name}` is {} and has no order",
                        literal_type.as_str()
                    )));
                }
                let term = self.literal(name, literal_type)?;
                Ok(match (comparison, operator) {
                    (Some(comparison), _) => Matcher::Compare(comparison, term),
                    (None, Operator::NotEqual) => Matcher::NoneOf(vec![term]),
                    (None, _) => Matcher::OneOf(vec![term]),
                })
            }
        }
    }

    /// Returns the next word as a value of the field's type. Values are never converted to another type.
    fn literal(&mut self, name: &str, wanted: Type) -> Result<Term, QueryError> {
        let (text, literal) = match self.cursor.peek() {
            Some(Lexeme::Word(word)) => (word.as_str(), Literal::of_word(word)),
            Some(Lexeme::Quoted(text)) => (text.as_str(), Some(Literal::Text)),
            _ => return Err(self.cursor.unexpected("a literal")),
        };
        let literal = literal.ok_or_else(|| {
            self.refuse("an unquoted literal has only A-Z a-z 0-9 _ . : -; put it in quotes")
        })?;
        self.literals += 1;
        if self.literals > LITERALS_MAX {
            return Err(self.refuse(&format!("a query may have at most {LITERALS_MAX} literals")));
        }
        let term = match (wanted, literal) {
            (Type::Keyword | Type::Text | Type::KeywordList, Literal::Text) => {
                Some(Term::Text(text.to_owned()))
            }
            (Type::Int | Type::Double, Literal::Integer(integer)) => Some(Term::Integer(integer)),
            (Type::Double, Literal::Decimal(decimal)) => Some(Term::Double(decimal)),
            (Type::Bool, Literal::Flag(flag)) => Some(Term::Flag(flag)),
            (Type::Datetime, Literal::Text) => read_time(text).map(Term::Time),
            _ => None,
        };
        let term = term.ok_or_else(|| {
            let takes = match wanted {
                Type::Keyword | Type::Text | Type::KeywordList => {
                    "a string, quoted when it looks like a number or a flag"
                }
                Type::Int => "an unquoted integer of 64 bits",
                Type::Double => "an unquoted number",
                Type::Bool => "true or false, unquoted",
                Type::Datetime => "an RFC 3339 time with its zone",
            };
            self.refuse(&format!(
                "`{name}` is {} and takes {takes}",
                wanted.as_str()
            ))
        })?;
        self.cursor.next += 1;
        Ok(term)
    }

    fn refuse(&self, message: &str) -> QueryError {
        QueryError::new(self.cursor.at(), message)
    }

    /// Returns an error at the operator that was just read.
    fn refuse_verb(&self, message: &str) -> QueryError {
        QueryError::new(self.cursor.before(), message)
    }
}

fn join(mut parts: Vec<Condition>, connective: Connective) -> Condition {
    match (parts.len(), connective) {
        (1, _) => parts.remove(0),
        (_, Connective::And) => Condition::All(parts),
        (_, Connective::Or) => Condition::Any(parts),
    }
}

fn is_keyword(word: &str) -> bool {
    ["AND", "OR", "NOT", "IN", "STARTS_WITH"]
        .iter()
        .any(|keyword| word.eq_ignore_ascii_case(keyword))
}

/// Refuses "is not" on a list: a list has several strings, so it could mean two things.
fn check_list(at: usize, name: &str, field: &Field, matcher: &Matcher) -> Result<(), QueryError> {
    let is_list = matches!(
        field,
        Field::Attribute {
            kind: Kind::Item,
            ..
        }
    );
    if is_list && matches!(matcher, Matcher::NoneOf(_)) {
        return Err(QueryError::new(
            at,
            &format!("`{name}` is keyword_list: only = and IN can be asked of it"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
