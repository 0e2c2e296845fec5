//! From the text of a query to its tokens. Every token records where it began, for messages.

use super::parse::QueryError;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    /// The character it begins at, counted from 1.
    pub(super) at: usize,
    pub(super) is: Lexeme,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lexeme {
    /// A field, a keyword or an unquoted literal: its position decides which.
    Word(String),
    Quoted(String),
    Operator(Operator),
    Open,
    Close,
    Comma,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Lexeme {
    pub(super) fn is_word(&self, wanted: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(wanted))
    }
}

/// The language of a query. The languages have the same operators and differ in what a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Queries for runs of code. Words are narrow, because text without operators is searched for.
    Code,
    /// Queries for definition runs. A word has every character that is not part of another token.
    Definition,
}

/// Returns the tokens of a query.
pub(super) fn lex(text: &str, dialect: Dialect) -> Result<Vec<Token>, QueryError> {
    let mut characters = text.chars().enumerate().peekable();
    let mut tokens = Vec::new();
    while let Some((place, character)) = characters.next() {
        let at = place + 1;
        let mut follows = |wanted: char| characters.next_if(|(_, next)| *next == wanted).is_some();
        let is = match character {
            _ if character.is_whitespace() => continue,
            '(' => Lexeme::Open,
            ')' => Lexeme::Close,
            ',' => Lexeme::Comma,
            '=' => Lexeme::Operator(Operator::Equal),
            '!' if follows('=') => Lexeme::Operator(Operator::NotEqual),
            '<' if follows('=') => Lexeme::Operator(Operator::LessOrEqual),
            '<' => Lexeme::Operator(Operator::Less),
            '>' if follows('=') => Lexeme::Operator(Operator::GreaterOrEqual),
            '>' => Lexeme::Operator(Operator::Greater),
            '\'' | '"' => Lexeme::Quoted(quoted(&mut characters, character, at, dialect)?),
            _ if dialect.has_in_word(character) => {
                let mut word = String::from(character);
                while let Some((_, next)) =
                    characters.next_if(|(_, next)| dialect.has_in_word(*next))
                {
                    word.push(next);
                }
                if dialect == Dialect::Code && word.contains("--") {
                    return Err(QueryError::new(
                        at,
                        "`--` outside quotes is not part of a query",
                    ));
                }
                Lexeme::Word(word)
            }
            _ => {
                return Err(QueryError::new(
                    at,
                    &format!("{character:?} is not part of a query; put text in quotes"),
                ));
            }
        };
        tokens.push(Token { at, is });
    }
    Ok(tokens)
}

impl Dialect {
    /// Returns whether a character may be part of a word. In queries for code this allows more than a literal: free text consists of
    /// words too.
    fn has_in_word(self, character: char) -> bool {
        match self {
            Self::Code => character.is_alphanumeric() || "_.:-@+".contains(character),
            Self::Definition => !character.is_whitespace() && !"()'\",=<>!".contains(character),
        }
    }
}

fn quoted(
    characters: &mut std::iter::Peekable<impl Iterator<Item = (usize, char)>>,
    quote: char,
    at: usize,
    dialect: Dialect,
) -> Result<String, QueryError> {
    let unterminated = || QueryError::new(at, "this string has no closing quote");
    let mut text = String::new();
    loop {
        let (_, character) = characters.next().ok_or_else(unterminated)?;
        if character == quote {
            return Ok(text);
        }
        if character != '\\' {
            text.push(character);
            continue;
        }
        let escaped = characters.next_if(|(_, next)| matches!(next, '\\' | '\'' | '"'));
        if let Some((_, escaped)) = escaped {
            text.push(escaped);
            continue;
        }
        // Definition runs may be named after paths of files.
        if dialect == Dialect::Definition {
            text.push('\\');
            continue;
        }
        let (place, _) = characters.next().ok_or_else(unterminated)?;
        return Err(QueryError::new(
            place,
            r#"a backslash may only precede \, ' or ""#,
        ));
    }
}
