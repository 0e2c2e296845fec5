//! The SQL of one read: the fixed pieces that statements are made of. Values of callers are bound, never part of the text.

use std::fmt::Write as _;

use longhaul_engine::run::state::Status;
use longhaul_engine::visibility::{Comparison, Condition, Field, Kind, Matcher, Term, Test};
use rusqlite::types::Value;

use super::index::sql_value;
use crate::RunFilter;
use crate::sqlite::encode::{list_status, signed};

/// Values of one `IN` that are read one by one, each in the list's order.
const VALUES_MAX: usize = 16;

/// A statement and its values.
#[derive(Default)]
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

impl Sql {
    fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        // Numbered, so that a reader of the log can assign the values.
        let _ = write!(self.text, "?{}", self.values.len());
        self
    }

    fn bind_all<'t>(&mut self, terms: impl IntoIterator<Item = &'t Term>) -> &mut Self {
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
            Read::Status | Read::Queue | Read::Build => vec![self.read.clone()],
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
            Read::Attribute { .. } => 1,
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
        self.condition(&mut sql, filter.namespace.as_str());
        let (start, row_value, order) = if from_index {
            (
                " AND a.started_at >= ",
                " AND (a.started_at, a.run_id) < (",
                " ORDER BY a.started_at DESC, a.run_id DESC LIMIT ",
            )
        } else {
            (
                " AND r.started_at >= ",
                " AND (r.started_at, r.run_id) < (",
                " ORDER BY r.started_at DESC, r.run_id DESC LIMIT ",
            )
        };
        sql.push(row_value).bind(place.started_at).push(", ");
        sql.bind(place.run_id.clone()).push(")");
        if let Some(earliest) = earliest {
            sql.push(start).bind(earliest);
        }
        for condition in residual {
            sql.push(" AND ");
            check(&mut sql, condition);
        }
        sql.push(order).bind(signed(filter.limit as u64));
        sql
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

/// Writes a condition on the row of a run. The plus signs keep SQLite from reading another index than the chosen one.
fn check(sql: &mut Sql, condition: &Condition) {
    match condition {
        Condition::All(parts) => join(sql, parts, " AND ", "1"),
        Condition::Any(parts) => join(sql, parts, " OR ", "0"),
        Condition::Test(test) => check_test(sql, test),
        Condition::Status(statuses) => check_status(sql, statuses),
        Condition::FreeText(text) => {
            sql.push("(instr(lower(r.workflow_id), ").bind(text.clone());
            sql.push(") > 0 OR instr(lower(r.business_key), ")
                .bind(text.clone());
            sql.push(") > 0)");
        }
    }
}

fn join(sql: &mut Sql, parts: &[Condition], between: &'static str, empty: &'static str) {
    if parts.is_empty() {
        sql.push(empty);
        return;
    }
    sql.push("(");
    for (place, part) in parts.iter().enumerate() {
        if place > 0 {
            sql.push(between);
        }
        check(sql, part);
    }
    sql.push(")");
}

fn check_test(sql: &mut Sql, test: &Test) {
    let column = match &test.field {
        Field::WorkflowType => "+r.workflow_type",
        Field::WorkflowId => "+r.workflow_id",
        Field::RunId => "+r.run_id",
        Field::TaskQueue => "+r.task_queue",
        Field::BuildId => "+r.compatibility",
        Field::StartTime => "+r.started_at",
        Field::CloseTime => "+r.closed_at",
        Field::Attribute { name, kind } => {
            sql.push(
                "EXISTS (SELECT 1 FROM run_attributes x WHERE x.run_key = r.run_key AND x.name = ",
            );
            sql.bind(name.clone()).push(" AND x.kind = ");
            sql.bind(kind.as_str().to_owned()).push(" AND ");
            column_matches(sql, "x.value", &test.matcher);
            sql.push(")");
            return;
        }
    };
    column_matches(sql, column, &test.matcher);
}

/// Writes a condition on the status. Lists have five statuses; only the state of a run contains which of the three open ones it
/// has.
fn check_status(sql: &mut Sql, statuses: &[Status]) {
    let words: Vec<Term> = statuses
        .iter()
        .map(|status| Term::Text(list_status(*status).to_owned()))
        .collect();
    let is_open = |status: &&Status| list_status(**status) == "running";
    let open: Vec<Term> = statuses
        .iter()
        .filter(is_open)
        .map(|status| Term::Text(status.as_str().to_owned()))
        .collect();
    sql.push("(+r.list_status IN ").bind_all(&words);
    if open.len() == 1 || open.len() == 2 {
        sql.push(" AND (r.list_status <> 'running' OR json_extract(r.state, '$.status') IN ");
        sql.bind_all(&open).push(")");
    }
    sql.push(")");
}

fn column_matches(sql: &mut Sql, column: &'static str, matcher: &Matcher) {
    sql.push("(").push(column);
    match matcher {
        Matcher::OneOf(terms) => match terms.as_slice() {
            // One value as an equality, so that the order of the index is the order of the page.
            [term] => sql.push(" = ").bind(sql_value(term)),
            terms => sql.push(" IN ").bind_all(terms),
        },
        Matcher::NoneOf(terms) => sql.push(" NOT IN ").bind_all(terms),
        Matcher::Compare(comparison, term) => {
            sql.push(match comparison {
                Comparison::Less => " < ",
                Comparison::LessOrEqual => " <= ",
                Comparison::Greater => " > ",
                Comparison::GreaterOrEqual => " >= ",
            });
            sql.bind(sql_value(term))
        }
        Matcher::StartsWith(prefix) => {
            sql.push(" >= ").bind(prefix.clone());
            match after_prefix(prefix) {
                Some(bound) => sql.push(" AND ").push(column).push(" < ").bind(bound),
                None => sql,
            }
        }
        Matcher::StartsNotWith(prefix) => {
            sql.push(" < ").bind(prefix.clone());
            match after_prefix(prefix) {
                Some(bound) => sql.push(" OR ").push(column).push(" >= ").bind(bound),
                None => sql,
            }
        }
    };
    sql.push(")");
}

/// Returns the first text in the order of bytes that is greater than every text with this prefix; `None` if there is none.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = match last {
            // After the range that text cannot contain.
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}
