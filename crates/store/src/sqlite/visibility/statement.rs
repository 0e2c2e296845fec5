//! The SQL of one read: the index that it reads along, and the statements made of it. [`check`](super::check) has the conditions on
//! rows. Values of callers are bound, never part of the text.

use std::fmt::Write as _;

use longhaul_engine::visibility::{Condition, Kind, Matcher, Term};
use rusqlite::types::Value;

use super::check::{check, column_matches};
use super::index::sql_value;
use crate::RunFilter;
use crate::encode::signed;

/// Values of one `IN` that are read one by one, each in the list's order.
const VALUES_MAX: usize = 16;

/// A statement and its values.
#[derive(Default)]
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

impl Sql {
    pub(crate) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        // Numbered, so that a reader of the log can assign the values.
        let _ = write!(self.text, "?{}", self.values.len());
        self
    }

    pub(crate) fn bind_all<'t>(&mut self, terms: impl IntoIterator<Item = &'t Term>) -> &mut Self {
        self.push("(");
        for (place, term) in terms.into_iter().enumerate() {
            if place > 0 {
                self.push(", ");
            }
            self.bind(sql_value(term));
        }
        self.push(")")
    }
}

/// A place in the order of lists: everything before it, in that order, is already shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) started_at: i64,
    pub(crate) run_id: String,
}

impl Place {
    /// Returns the place before everything: no start is as late as this.
    pub(crate) fn top() -> Self {
        Self::before(i64::MAX)
    }

    /// Returns the place before everything that started earlier.
    pub(crate) fn before(started_at: i64) -> Self {
        Self {
            started_at,
            run_id: String::new(),
        }
    }
}

/// Which index is read.
#[derive(Clone)]
pub(crate) enum Read {
    Status,
    Type {
        statuses: Vec<&'static str>,
    },
    Queue,
    Build,
    Workflow,
    RunId,
    Close,
    Correlation,
    Parent,
    Attribute {
        name: String,
        kind: Kind,
        statuses: Vec<&'static str>,
    },
}

/// One read of an index.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) read: Read,
    /// The entries of the index's column to read.
    pub(crate) matcher: Matcher,
    /// The test of the group that needs no further check.
    pub(crate) satisfies: Option<usize>,
}

impl Key {
    /// Returns the same as reads of one value and one status each, whose entries come in the order of lists; `None` if there is no
    /// such order or there would be too many.
    pub(crate) fn in_order(&self) -> Option<Vec<Self>> {
        let Matcher::OneOf(terms) = &self.matcher else {
            return None;
        };
        let reads: Vec<Read> = match &self.read {
            Read::Status | Read::Queue | Read::Build | Read::Correlation | Read::Parent => {
                vec![self.read.clone()]
            }
            Read::Type { statuses } => statuses
                .iter()
                .map(|status| Read::Type {
                    statuses: vec![*status],
                })
                .collect(),
            Read::Attribute {
                name,
                kind,
                statuses,
            } => statuses
                .iter()
                .map(|status| Read::Attribute {
                    name: name.clone(),
                    kind: *kind,
                    statuses: vec![*status],
                })
                .collect(),
            Read::Workflow | Read::RunId | Read::Close => return None,
        };
        let keys = terms.iter().flat_map(|term| {
            reads.iter().map(|read| Self {
                read: read.clone(),
                matcher: Matcher::OneOf(vec![term.clone()]),
                satisfies: self.satisfies,
            })
        });
        (terms.len() <= VALUES_MAX).then(|| keys.collect())
    }

    /// Returns a guess at the share of all runs that a long read visits; less is better.
    pub(crate) fn breadth(&self) -> u8 {
        match self.read {
            Read::Workflow | Read::RunId | Read::Close => 0,
            Read::Attribute { .. } | Read::Correlation | Read::Parent => 1,
            Read::Build => 2,
            Read::Type { .. } => 3,
            Read::Queue => 4,
            Read::Status => 5,
        }
    }

    /// Returns the statement that counts the entries, up to a bound.
    pub(crate) fn probe(&self, namespace: &str, most: i64) -> Sql {
        let mut sql = Sql::default();
        sql.push("SELECT count(*) FROM (SELECT 1 FROM ");
        sql.push(self.read.source());
        self.condition(&mut sql, namespace);
        sql.push(" LIMIT ").bind(most).push(")");
        sql
    }

    /// Returns the statement for the page of this read: start, run id and key of each run, newest first.
    pub(crate) fn select(
        &self,
        filter: &RunFilter,
        residual: &[&Condition],
        place: &Place,
        earliest: Option<i64>,
    ) -> Sql {
        let mut sql = Sql::default();
        let from_index = matches!(self.read, Read::Attribute { .. });
        let is_one = matches!(&self.matcher, Matcher::OneOf(terms) if terms.len() == 1);
        sql.push(match (from_index, is_one) {
            (true, true) => "SELECT a.started_at, a.run_id, a.run_key FROM ",
            // Several strings of one list may match.
            (true, false) => "SELECT DISTINCT a.started_at, a.run_id, a.run_key FROM ",
            (false, _) => "SELECT r.started_at, r.run_id, r.run_key FROM ",
        });
        self.rows(
            &mut sql,
            filter.namespace.as_str(),
            residual,
            place,
            earliest,
        );
        sql.push(if from_index {
            " ORDER BY a.started_at DESC, a.run_id DESC LIMIT "
        } else {
            " ORDER BY r.started_at DESC, r.run_id DESC LIMIT "
        });
        sql.bind(signed(filter.limit as u64));
        sql
    }

    /// Writes the tables and the conditions of this read.
    pub(crate) fn rows(
        &self,
        sql: &mut Sql,
        namespace: &str,
        residual: &[&Condition],
        place: &Place,
        earliest: Option<i64>,
    ) {
        sql.push(self.read.source());
        // Forced order: the index first, then the row of each run it names.
        match self.read {
            Read::Attribute { .. } if !residual.is_empty() => {
                sql.push(" CROSS JOIN runs r ON r.run_key = a.run_key");
            }
            Read::Workflow => {
                sql.push(" CROSS JOIN runs r ON r.run_key = w.run_key");
            }
            _ => {}
        }
        self.condition(sql, namespace);
        let (start, row_value) = match self.read {
            Read::Attribute { .. } => {
                (" AND a.started_at >= ", " AND (a.started_at, a.run_id) < (")
            }
            _ => (" AND r.started_at >= ", " AND (r.started_at, r.run_id) < ("),
        };
        sql.push(row_value).bind(place.started_at).push(", ");
        sql.bind(place.run_id.clone()).push(")");
        if let Some(earliest) = earliest {
            sql.push(start).bind(earliest);
        }
        for condition in residual {
            sql.push(" AND ");
            check(sql, condition);
        }
    }

    /// Writes the index's own part of the statement.
    fn condition(&self, sql: &mut Sql, namespace: &str) {
        let column = match &self.read {
            Read::Status => {
                sql.push(" WHERE r.namespace = ").bind(namespace.to_owned());
                "r.list_status"
            }
            Read::Type { statuses } => {
                sql.push(" WHERE r.namespace = ").bind(namespace.to_owned());
                sql.push(" AND ");
                column_matches(sql, "r.list_status", &words(statuses));
                "r.workflow_type"
            }
            Read::Queue => {
                sql.push(" WHERE r.namespace = ").bind(namespace.to_owned());
                "r.task_queue"
            }
            Read::Build => {
                sql.push(" WHERE r.namespace = ").bind(namespace.to_owned());
                // Repeated, because the index contains only these.
                sql.push(" AND r.compatibility IS NOT NULL");
                "r.compatibility"
            }
            Read::Workflow => {
                sql.push(" WHERE w.namespace = ").bind(namespace.to_owned());
                "w.workflow_id"
            }
            Read::RunId => {
                // The index has no namespaces; the plus prevents the choice of one that has.
                sql.push(" WHERE +r.namespace = ")
                    .bind(namespace.to_owned());
                "r.run_id"
            }
            Read::Close => {
                sql.push(" WHERE r.namespace = ").bind(namespace.to_owned());
                sql.push(" AND r.closed_at IS NOT NULL");
                "r.closed_at"
            }
            Read::Correlation => {
                sql.push(" WHERE r.namespace = ").bind(namespace.to_owned());
                sql.push(" AND r.correlation_id IS NOT NULL");
                "r.correlation_id"
            }
            Read::Parent => {
                sql.push(" WHERE r.namespace = ").bind(namespace.to_owned());
                sql.push(" AND r.parent_id IS NOT NULL");
                "r.parent_id"
            }
            Read::Attribute {
                name,
                kind,
                statuses,
            } => {
                sql.push(" WHERE a.namespace = ").bind(namespace.to_owned());
                sql.push(" AND a.name = ").bind(name.clone());
                sql.push(" AND a.kind = ").bind(kind.as_str().to_owned());
                sql.push(" AND ");
                column_matches(sql, "a.list_status", &words(statuses));
                "a.value"
            }
        };
        sql.push(" AND ");
        column_matches(sql, column, &self.matcher);
    }
}

impl Read {
    fn source(&self) -> &'static str {
        match self {
            Self::Status => "runs r INDEXED BY runs_by_status",
            Self::Type { .. } => "runs r INDEXED BY runs_by_type",
            Self::Queue => "runs r INDEXED BY runs_by_queue",
            Self::Build => "runs r INDEXED BY runs_by_build",
            Self::Close => "runs r INDEXED BY runs_by_close",
            Self::RunId => "runs r INDEXED BY sqlite_autoindex_runs_1",
            Self::Correlation => "runs r INDEXED BY runs_by_correlation",
            Self::Parent => "runs r INDEXED BY runs_by_parent",
            Self::Workflow => "workflow_runs w",
            Self::Attribute { .. } => "run_attributes a INDEXED BY run_attributes_by_value",
        }
    }
}

/// Matches one of these words.
pub(crate) fn words(words: &[&str]) -> Matcher {
    let term = |word: &&str| Term::Text((*word).to_owned());
    Matcher::OneOf(words.iter().map(term).collect())
}
