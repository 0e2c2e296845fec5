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

/// Returns the tokens of a query.
pub(super) fn lex(text: &str) -> Result<Vec<Token>, QueryError> {
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
            '\'' | '"' => Lexeme::Quoted(quoted(&mut characters, character, at)?),
            _ if is_word_character(character) => {
                let mut word = String::from(character);
                while let Some((_, next)) = characters.next_if(|(_, next)| is_word_character(*next))
                {
                    word.push(next);
                }
                if word.contains("--") {
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

/// Returns whether a character may be part of a word. This allows more than a literal: free text consists of words too.
fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || "_.:-@+".contains(character)
}

fn quoted(
    characters: &mut impl Iterator<Item = (usize, char)>,
    quote: char,
    at: usize,
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
        let (place, escaped) = characters.next().ok_or_else(unterminated)?;
        if !matches!(escaped, '\\' | '\'' | '"') {
            return Err(QueryError::new(
                place,
                r#"a backslash may only precede \, ' or ""#,
            ));
        }
        text.push(escaped);
    }
}
