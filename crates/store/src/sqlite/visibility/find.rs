//! Pages of runs by condition. Each alternative of a condition is read along one index, chosen by probing how much of it would be
//! read; the other tests of the alternative are checked row by row. The pages of all reads are merged.
//!
//! No text of a caller ever becomes SQL: statements are made of the fixed pieces in `statement.rs`, values are bound.

use std::collections::BTreeSet;

use longhaul_engine::run::state::{Program, Status};
use longhaul_engine::visibility::execution::ExecutionField;
use longhaul_engine::visibility::{Comparison, Condition, Field, Matcher, Term, Test};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use rusqlite::{Connection, params_from_iter};

use super::statement::{Key, Place, Read, Sql, words};
use crate::sqlite::list;
use crate::status::{condition_of, words_of_program, words_of_status};
use crate::{Error, PAGE_BYTES_MAX, RunFilter, RunSummary};

/// Index entries that a probe counts. Fewer than this are read and sorted whole, in some milliseconds at most; of more the newest
/// are usually found soon by reading in the order of the list.
const PROBE_MAX: i64 = 5000;

/// With so few entries no other index is probed.
const SHORT_ENOUGH: i64 = 100;

/// Alternatives that are read one by one. A condition with more of them is checked row by row as a whole.
const ALTERNATIVES_MAX: usize = 16;

pub(crate) fn runs(connection: &Connection, filter: &RunFilter) -> Result<Vec<RunSummary>, Error> {
    // A transaction, because the keys and the rows of the page must be of one snapshot. Dropping it ends it.
    let snapshot = connection.unchecked_transaction()?;
    let mut runs = Vec::new();
    let mut bytes = 0;
    for entry in newest(&snapshot, filter)? {
        if bytes > PAGE_BYTES_MAX {
            break;
        }
        let run = list::summary(&snapshot, entry.run_key)?;
        bytes += run.bytes();
        runs.push(run);
    }
    Ok(runs)
}

/// Returns the ids of a page of runs.
pub(crate) fn run_ids(connection: &Connection, filter: &RunFilter) -> Result<Vec<RunId>, Error> {
    let snapshot = connection.unchecked_transaction()?;
    let entries = newest(&snapshot, filter)?;
    Ok(entries.map(|entry| RunId::from(entry.run_id)).collect())
}

/// Returns the places of a page of runs, newest first.
pub(super) fn newest(
    snapshot: &Connection,
    filter: &RunFilter,
) -> Result<impl Iterator<Item = Entry>, Error> {
    let mut page = Page {
        limit: filter.limit,
        entries: BTreeSet::new(),
    };
    visit(snapshot, filter, &mut |statement| {
        if page.limit > 0 {
            page.take(snapshot, statement)?;
        }
        Ok(page.floor())
    })?;
    Ok(page.entries.into_iter().rev())
}

/// The place of a run in a list; the order of the fields is the order of the list.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    started_at: i64,
    run_id: String,
    pub(super) run_key: i64,
}

/// The newest runs that any read has found.
struct Page {
    limit: usize,
    entries: BTreeSet<Entry>,
}

impl Page {
    fn take(&mut self, connection: &Connection, statement: &Sql) -> Result<(), Error> {
        let mut prepared = connection.prepare_cached(&statement.text)?;
        let mut rows = prepared.query(params_from_iter(&statement.values))?;
        while let Some(row) = rows.next()? {
            self.entries.insert(Entry {
                started_at: row.get(0)?,
                run_id: row.get(1)?,
                run_key: row.get(2)?,
            });
            if self.entries.len() > self.limit {
                self.entries.pop_first();
            }
        }
        Ok(())
    }

    /// Returns the earliest start that can still be on this page.
    fn floor(&self) -> Option<i64> {
        let is_full = self.entries.len() >= self.limit;
        self.entries
            .first()
            .filter(|_| is_full)
            .map(|entry| entry.started_at)
    }
}

/// Builds the statements of a page one after the other and passes each to `visit`, which returns the earliest start that still
/// counts.
fn visit(
    connection: &Connection,
    filter: &RunFilter,
    visit: &mut dyn FnMut(&Sql) -> Result<Option<i64>, Error>,
) -> Result<(), Error> {
    let wanted = condition_of(filter);
    let mut floor = None;
    for group in groups(filter, &wanted) {
        for key in group.choose(connection)? {
            floor = visit(&group.statement(&key, floor))?;
        }
    }
    Ok(())
}

/// Returns the alternatives of a filter's condition, each with the statuses that can match.
pub(super) fn groups<'a>(filter: &'a RunFilter, wanted: &'a Condition) -> Vec<Group<'a>> {
    alternatives(wanted)
        .into_iter()
        .map(|tests| Group {
            filter,
            statuses: list_statuses(&tests),
            tests,
        })
        .collect()
}

/// Returns the condition as alternatives, each a list of tests that must all be true; one alternative if there would be too many.
fn alternatives(condition: &Condition) -> Vec<Vec<&Condition>> {
    distribute(condition).unwrap_or_else(|| vec![vec![condition]])
}

fn distribute(condition: &Condition) -> Option<Vec<Vec<&Condition>>> {
    match condition {
        Condition::Any(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.append(&mut distribute(part)?);
            }
            (all.len() <= ALTERNATIVES_MAX).then_some(all)
        }
        Condition::All(parts) => {
            let mut all = vec![Vec::new()];
            for part in parts {
                let ways = distribute(part)?;
                all = all
                    .iter()
                    .flat_map(|before| ways.iter().map(move |way| [&before[..], way].concat()))
                    .collect();
                if all.len() > ALTERNATIVES_MAX {
                    return None;
                }
            }
            Some(all)
        }
        Condition::Test(_)
        | Condition::Absent(_)
        | Condition::Status(_)
        | Condition::Program(_)
        | Condition::ExecutionStatus(_)
        | Condition::FreeText(_)
        | Condition::SummaryText(_) => Some(vec![vec![condition]]),
    }
}

/// Returns the list statuses that can match.
fn list_statuses(tests: &[&Condition]) -> Vec<&'static str> {
    let allows = |word: &&str| {
        tests.iter().all(|test| match test {
            Condition::Status(statuses) => statuses
                .iter()
                .any(|status| words_of_status(*status).contains(word)),
            Condition::Program(program) => words_of_program(*program).contains(word),
            Condition::ExecutionStatus(statuses) => {
                statuses.iter().any(|status| status.as_str() == *word)
            }
            Condition::All(_)
            | Condition::Any(_)
            | Condition::Test(_)
            | Condition::Absent(_)
            | Condition::FreeText(_)
            | Condition::SummaryText(_) => true,
        })
    };
    let mut all = words_of_program(Program::Code);
    all.extend(words_of_program(Program::Definition));
    all.into_iter().filter(allows).collect()
}

/// Tests that must all be true.
pub(super) struct Group<'a> {
    filter: &'a RunFilter,
    statuses: Vec<&'static str>,
    tests: Vec<&'a Condition>,
}

impl Group<'_> {
    /// Returns the reads that could find every run of this group.
    fn candidates(&self) -> Vec<Key> {
        let tests = self.tests.iter().enumerate();
        let mut candidates: Vec<Key> = tests
            .filter_map(|(place, test)| match test {
                Condition::Test(test) => self.key(place, test),
                Condition::All(_)
                | Condition::Any(_)
                | Condition::Absent(_)
                | Condition::Status(_)
                | Condition::Program(_)
                | Condition::ExecutionStatus(_)
                | Condition::FreeText(_)
                | Condition::SummaryText(_) => None,
            })
            .collect();
        candidates.push(self.by_status());
        candidates
    }

    /// Returns the shortest of the reads, if one is short enough to be read whole.
    fn shortest<'k>(
        &self,
        connection: &Connection,
        candidates: &'k [Key],
    ) -> Result<Option<&'k Key>, Error> {
        let mut shortest: Option<(i64, &Key)> = None;
        // A single candidate needs no probe.
        for key in candidates.iter().filter(|_| candidates.len() > 1) {
            let entries = self.probe(connection, key)?;
            if shortest.is_none_or(|(fewest, _)| entries < fewest) {
                shortest = Some((entries, key));
            }
            if entries < SHORT_ENOUGH {
                break;
            }
        }
        let short = shortest.filter(|(entries, _)| *entries < PROBE_MAX);
        Ok(short.map(|(_, key)| key))
    }

    /// Returns the reads that find every run of this group, and not many others.
    fn choose(&self, connection: &Connection) -> Result<Vec<Key>, Error> {
        let candidates = self.candidates();
        if let Some(key) = self.shortest(connection, &candidates)? {
            return Ok(vec![key.clone()]);
        }
        // All are long: read in the order of the list then, along the index that probably excludes most.
        let ordered = candidates.iter().filter_map(Key::in_order);
        let narrowest = ordered.min_by_key(|keys| keys.first().map(Key::breadth));
        Ok(narrowest.unwrap_or_default())
    }

    /// Returns the read that finds every run of this group and probably the fewest others, in any order.
    pub(super) fn narrowest(&self, connection: &Connection) -> Result<Key, Error> {
        let candidates = self.candidates();
        let short = self.shortest(connection, &candidates)?;
        let narrowest = || candidates.iter().min_by_key(|key| key.breadth());
        let key = short.or_else(narrowest).cloned();
        Ok(key.unwrap_or_else(|| self.by_status()))
    }

    /// Counts the entries that this read would visit, at most [`PROBE_MAX`].
    fn probe(&self, connection: &Connection, key: &Key) -> Result<i64, Error> {
        let statement = key.probe(self.filter.namespace.as_str(), PROBE_MAX);
        let mut prepared = connection.prepare_cached(&statement.text)?;
        Ok(prepared.query_row(params_from_iter(&statement.values), |row| row.get(0))?)
    }

    /// Returns the read along the index of this test; `None` if it has no index or would read most of it.
    fn key(&self, place: usize, test: &Test) -> Option<Key> {
        let statuses = self.statuses.clone();
        let read = match &test.field {
            Field::WorkflowType => Read::Type { statuses },
            Field::WorkflowId => Read::Workflow,
            Field::RunId => Read::RunId,
            Field::TaskQueue => Read::Queue,
            Field::BuildId => Read::Build,
            Field::CloseTime => Read::Close,
            Field::Attribute { name, kind } => Read::Attribute {
                name: name.clone(),
                kind: *kind,
                statuses,
            },
            // Part of every other index, and of the place where a read begins and ends.
            Field::StartTime => return None,
            Field::Execution(ExecutionField::CorrelationId) => Read::Correlation,
            Field::Execution(ExecutionField::ParentId) if names_parents(&test.matcher) => {
                Read::Parent
            }
            Field::Execution(_) | Field::Task(_) => return None,
        };
        match &test.matcher {
            Matcher::OneOf(_) | Matcher::Compare(..) | Matcher::StartsWith(_) => Some(Key {
                read,
                matcher: test.matcher.clone(),
                satisfies: Some(place),
            }),
            Matcher::NoneOf(_)
            | Matcher::StartsNotWith(_)
            | Matcher::Like(_)
            | Matcher::NotLike(_)
            | Matcher::Present => None,
        }
    }

    fn by_status(&self) -> Key {
        Key {
            read: Read::Status,
            matcher: words(&self.statuses),
            satisfies: None,
        }
    }

    fn statement(&self, key: &Key, floor: Option<i64>) -> Sql {
        let residual = self.residual(key);
        let (place, earliest) = self.window();
        let earliest = earliest.into_iter().chain(floor).max();
        key.select(self.filter, &residual, &place, earliest)
    }

    /// Appends the tables and the conditions of a read to a statement, without an order.
    pub(super) fn rows(&self, sql: &mut Sql, key: &Key) {
        let (place, earliest) = self.window();
        let namespace = self.filter.namespace.as_str();
        key.rows(sql, namespace, &self.residual(key), &place, earliest);
    }

    /// Returns the tests that a read does not satisfy by itself.
    fn residual(&self, key: &Key) -> Vec<&Condition> {
        self.tests
            .iter()
            .enumerate()
            .filter(|(place, test)| {
                key.satisfies != Some(*place) && !self.is_in_status(key, test) && !is_start(test)
            })
            .map(|(_, test)| *test)
            .collect()
    }

    /// Returns whether reading one list status satisfies this test completely.
    fn is_in_status(&self, key: &Key, test: &Condition) -> bool {
        let reads_statuses = matches!(
            key.read,
            Read::Status | Read::Type { .. } | Read::Attribute { .. }
        );
        let Condition::Status(statuses) = test else {
            let by_word = matches!(test, Condition::Program(_) | Condition::ExecutionStatus(_));
            return reads_statuses && by_word;
        };
        const OPEN: [Status; 3] = [Status::Pending, Status::Running, Status::Waiting];
        let has_open = OPEN
            .iter()
            .filter(|status| statuses.contains(status))
            .count();
        let is_whole = has_open == 0 || has_open == OPEN.len();
        is_whole && reads_statuses
    }

    /// Returns the range of the list to read, by the caller's place and by the tests on the start time.
    fn window(&self) -> (Place, Option<i64>) {
        let mut place = self
            .filter
            .after
            .as_ref()
            .map_or_else(Place::top, Place::of);
        let mut earliest: Option<i64> = None;
        for (comparison, at) in self.tests.iter().filter_map(|test| start_bound(test)) {
            let at = at.as_micros();
            match comparison {
                Comparison::Less => place = place.min(Place::before(at)),
                Comparison::LessOrEqual => place = place.min(Place::before(at.saturating_add(1))),
                Comparison::Greater => earliest = earliest.max(Some(at.saturating_add(1))),
                Comparison::GreaterOrEqual => earliest = earliest.max(Some(at)),
            }
        }
        (place, earliest)
    }
}

/// Returns whether a test on the parent finds only runs that have one. Runs without one have an empty id and no entry in the index.
fn names_parents(matcher: &Matcher) -> bool {
    let is_empty = |term: &Term| *term == Term::Text(String::new());
    matches!(matcher, Matcher::OneOf(terms) if !terms.iter().any(is_empty))
}

fn is_start(condition: &Condition) -> bool {
    start_bound(condition).is_some()
}

fn start_bound(condition: &Condition) -> Option<(Comparison, Timestamp)> {
    match condition {
        Condition::Test(Test {
            field: Field::StartTime,
            matcher: Matcher::Compare(comparison, Term::Time(at)),
        }) => Some((*comparison, *at)),
        _ => None,
    }
}

impl Place {
    fn of(after: &(Timestamp, RunId)) -> Self {
        Self {
            started_at: after.0.as_micros(),
            run_id: after.1.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
