//! A parser from the query language of searches for definition runs to a typed [`Condition`], and from a sort order to its keys.
//!
//! ```text
//! query = group *( "OR" group )
//! group = term *( "AND" term )
//! term  = field op value | field "IN" "(" value *( "," value ) ")" | field "STARTS_WITH" value
//!       | field "BETWEEN" value "AND" value | field "IS" ( "null" | "not null" ) | "(" query ")"
//! ```
//!
//! A value is a quoted text or a word. Every refusal names the error and its character.

use super::Order;
use super::compare::{Literal, Verb, number, status, text, time};
use super::names::{NAMES, Named, TASK_NAMES};
use super::order::{Direction, SortKey};
use crate::visibility::condition::Condition;
use crate::visibility::cursor::Cursor;
use crate::visibility::lexer::{Dialect, Lexeme, lex};
use crate::visibility::parse::{DEPTH_MAX, LITERALS_MAX, QUERY_BYTES_MAX, QueryError};

/// Stars in one value. Each costs a search in the text that is compared.
const STARS_MAX: usize = 16;

/// Fields of a sort order: there are not more.
const SORT_KEYS_MAX: usize = NAMES.len();

/// The names of one kind of search.
#[derive(Clone, Copy)]
struct Names {
    read: fn(&str) -> Option<Named>,
    all: &'static [&'static str],
    /// What has the fields.
    of: &'static str,
}

const OF_WORKFLOWS: Names = Names {
    read: Named::read,
    all: &NAMES,
    of: "workflows",
};

const OF_TASKS: Names = Names {
    read: Named::read_of_task,
    all: &TASK_NAMES,
    of: "tasks",
};

/// Reads a query for definition runs.
pub fn parse_search(text: &str) -> Result<Condition, QueryError> {
    parse(text, OF_WORKFLOWS)
}

/// Reads a query for tasks.
pub fn parse_task_search(text: &str) -> Result<Condition, QueryError> {
    parse(text, OF_TASKS)
}

fn parse(text: &str, names: Names) -> Result<Condition, QueryError> {
    check_length(text)?;
    let tokens = lex(text, Dialect::Definition)?;
    let mut parser = Parser {
        names,
        cursor: Cursor::new(text, &tokens),
        depth: 0,
        literals: 0,
    };
    let condition = parser.query()?;
    match parser.cursor.peek() {
        None => Ok(condition),
        Some(_) => Err(parser.cursor.unexpected("AND, OR or the end")),
    }
}

/// Reads free text: the condition that a summary contains it. `None` if it is empty or `*`, which every run matches.
pub fn free_text(text: &str) -> Result<Option<Condition>, QueryError> {
    check_length(text)?;
    let text = text.trim();
    let is_any = text.chars().all(|character| character == '*');
    Ok((!is_any).then(|| Condition::SummaryText(text.to_ascii_lowercase())))
}

/// Reads a sort order: `field:ASC` or `field:DESC`, several joined by `|`. Unknown fields are ignored.
pub fn parse_sort(text: &str) -> Result<Order, QueryError> {
    sort_of(text, OF_WORKFLOWS)
}

/// Reads a sort order of tasks, as [`parse_sort`].
pub fn parse_task_sort(text: &str) -> Result<Order, QueryError> {
    sort_of(text, OF_TASKS)
}

fn sort_of(text: &str, names: Names) -> Result<Order, QueryError> {
    check_length(text)?;
    let mut keys = Vec::new();
    let mut at = 1;
    for part in text.split('|') {
        let (name, direction) = part.split_once(':').unwrap_or((part, "ASC"));
        let direction = match direction.trim().to_ascii_uppercase().as_str() {
            "ASC" => Direction::Ascending,
            "DESC" => Direction::Descending,
            _ => {
                let message = "a sort order is field:ASC or field:DESC, joined by |";
                return Err(QueryError::new(at, message));
            }
        };
        if let Some(named) = (names.read)(name.trim()) {
            keys.push(SortKey {
                field: named.into_sort_field(),
                direction,
            });
        }
        if keys.len() > SORT_KEYS_MAX {
            let message = format!("a sort order may have at most {SORT_KEYS_MAX} fields");
            return Err(QueryError::new(at, &message));
        }
        at += part.chars().count() + 1;
    }
    Ok(Order { keys })
}

fn check_length(text: &str) -> Result<(), QueryError> {
    if text.len() <= QUERY_BYTES_MAX {
        return Ok(());
    }
    let message = format!("this may have at most {QUERY_BYTES_MAX} bytes");
    Err(QueryError::new(1, &message))
}

struct Parser<'a> {
    names: Names,
    cursor: Cursor<'a>,
    depth: usize,
    literals: usize,
}

impl<'a> Parser<'a> {
    fn query(&mut self) -> Result<Condition, QueryError> {
        let mut groups = vec![self.group()?];
        while self.cursor.take_word("OR") {
            groups.push(self.group()?);
        }
        Ok(match groups.len() {
            1 => groups.remove(0),
            _ => Condition::Any(groups),
        })
    }

    fn group(&mut self) -> Result<Condition, QueryError> {
        let mut terms = vec![self.term()?];
        while self.cursor.take_word("AND") {
            terms.push(self.term()?);
        }
        Ok(match terms.len() {
            1 => terms.remove(0),
            _ => Condition::All(terms),
        })
    }

    fn term(&mut self) -> Result<Condition, QueryError> {
        if self.cursor.peek() == Some(&Lexeme::Open) {
            return self.parenthesis();
        }
        let at = self.cursor.at();
        let Some(Lexeme::Word(name)) = self.cursor.peek() else {
            return Err(self.cursor.unexpected("a field"));
        };
        let names = self.names;
        let named = (names.read)(name).ok_or_else(|| {
            let message = format!(
                "`{name}` is not a field of {}; the fields are {}",
                names.of,
                names.all.join(", ")
            );
            QueryError::new(at, &message)
        })?;
        self.cursor.next += 1;
        let verb = self.verb()?;
        match &named {
            Named::Status => status(at, verb),
            Named::Text(field) => text(field, verb),
            Named::Number(field) => number(at, name, field, verb),
            Named::Time(field) => time(at, name, field, verb),
        }
    }

    fn parenthesis(&mut self) -> Result<Condition, QueryError> {
        if self.depth == DEPTH_MAX {
            let message = format!("parentheses may be {DEPTH_MAX} deep");
            return Err(QueryError::new(self.cursor.at(), &message));
        }
        self.cursor.next += 1;
        self.depth += 1;
        let condition = self.query()?;
        self.depth -= 1;
        self.cursor.take(&Lexeme::Close, ")")?;
        Ok(condition)
    }

    fn verb(&mut self) -> Result<Verb<'a>, QueryError> {
        if let Some(Lexeme::Operator(operator)) = self.cursor.peek() {
            self.cursor.next += 1;
            return Ok(Verb::Compare(*operator, self.literal()?));
        }
        if self.cursor.take_word("IN") {
            self.cursor.take(&Lexeme::Open, "(")?;
            let mut literals = vec![self.literal()?];
            while self.cursor.peek() == Some(&Lexeme::Comma) {
                self.cursor.next += 1;
                literals.push(self.literal()?);
            }
            self.cursor.take(&Lexeme::Close, ", or )")?;
            return Ok(Verb::In(literals));
        }
        if self.cursor.take_word("STARTS_WITH") {
            return Ok(Verb::StartsWith(self.literal()?));
        }
        if self.cursor.take_word("BETWEEN") {
            let from = self.literal()?;
            if !self.cursor.take_word("AND") {
                return Err(self.cursor.unexpected("AND and the upper bound"));
            }
            return Ok(Verb::Between(from, self.literal()?));
        }
        if self.cursor.take_word("IS") {
            let is_not = self.cursor.take_word("not");
            if !self.cursor.take_word("null") {
                return Err(self.cursor.unexpected("null or not null"));
            }
            return Ok(if is_not {
                Verb::IsNotNull
            } else {
                Verb::IsNull
            });
        }
        Err(self
            .cursor
            .unexpected("an operator (=, !=, <, <=, >, >=, IN, STARTS_WITH, BETWEEN or IS)"))
    }

    fn literal(&mut self) -> Result<Literal<'a>, QueryError> {
        if self.literals == LITERALS_MAX {
            let message = format!("a query may have at most {LITERALS_MAX} values");
            return Err(QueryError::new(self.cursor.at(), &message));
        }
        let (Some(Lexeme::Quoted(text) | Lexeme::Word(text)), at) =
            (self.cursor.peek(), self.cursor.at())
        else {
            return Err(self.cursor.unexpected("a value"));
        };
        if text.bytes().filter(|byte| *byte == b'*').count() > STARS_MAX {
            let message = format!("a value may have at most {STARS_MAX} stars");
            return Err(QueryError::new(at, &message));
        }
        self.literals += 1;
        self.cursor.next += 1;
        Ok(Literal { at, text })
    }
}
