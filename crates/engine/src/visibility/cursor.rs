//! A place in the tokens of a query. Both languages of lists are read with it.

use super::QueryError;
use super::lexer::{Lexeme, Token};

/// The tokens of a query, and which of them is read next.
pub(super) struct Cursor<'a> {
    pub(super) tokens: &'a [Token],
    pub(super) next: usize,
    /// The character behind the last one, counted from 1.
    end: usize,
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the first token of `text`.
    pub(super) fn new(text: &str, tokens: &'a [Token]) -> Self {
        Self {
            tokens,
            next: 0,
            end: text.chars().count() + 1,
        }
    }

    pub(super) fn peek(&self) -> Option<&'a Lexeme> {
        self.tokens.get(self.next).map(|token| &token.is)
    }

    /// Returns where the next token begins.
    pub(super) fn at(&self) -> usize {
        self.place(self.next)
    }

    /// Returns where the token that was just read begins.
    pub(super) fn before(&self) -> usize {
        self.place(self.next.saturating_sub(1))
    }

    fn place(&self, number: usize) -> usize {
        self.tokens.get(number).map_or(self.end, |token| token.at)
    }

    /// Reads this word if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is_there = self.peek().is_some_and(|next| next.is_word(word));
        self.next += usize::from(is_there);
        is_there
    }

    /// Reads this token, or returns an error that shows what was wanted.
    pub(super) fn take(&mut self, wanted: &Lexeme, shown: &str) -> Result<(), QueryError> {
        if self.peek() != Some(wanted) {
            return Err(self.unexpected(shown));
        }
        self.next += 1;
        Ok(())
    }

    pub(super) fn unexpected(&self, wanted: &str) -> QueryError {
        let message = match self.peek() {
            None => format!("the query ends where {wanted} should be"),
            Some(_) => format!("{wanted} should be here"),
        };
        QueryError::new(self.at(), &message)
    }
}
