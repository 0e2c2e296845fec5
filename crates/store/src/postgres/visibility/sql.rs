//! A statement that is built from pieces, with its values.

use std::fmt::Write as _;

use tokio_postgres::types::ToSql;

/// A statement and its values.
#[derive(Default)]
pub(in crate::postgres) struct Sql {
    text: String,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
    /// Whether it names `s`, the row of `run_states`.
    pub(super) uses_state: bool,
}

impl Sql {
    pub(in crate::postgres) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends another statement, whose values come after those of this one.
    pub(super) fn append(&mut self, other: Self) -> &mut Self {
        debug_assert!(
            self.values.is_empty(),
            "the numbers of values are in the text"
        );
        self.text.push_str(&other.text);
        self.values = other.values;
        self.uses_state |= other.uses_state;
        self
    }

    pub(in crate::postgres) fn bind(
        &mut self,
        value: impl ToSql + Sync + Send + 'static,
    ) -> &mut Self {
        self.values.push(Box::new(value));
        // A number never needs an escape.
        let _ = write!(self.text, "${}", self.values.len());
        self
    }

    pub(in crate::postgres) fn text(&self) -> &str {
        &self.text
    }

    pub(in crate::postgres) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        let values = self.values.iter();
        values
            .map(|value| &**value as &(dyn ToSql + Sync))
            .collect()
    }
}
