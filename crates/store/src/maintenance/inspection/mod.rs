//! Checks a whole store: its schema, and the rules that rows keep. It only reads, and works beside a server that writes.
//!
//! `rows` has rows as they are stored, without any of them parsed; a store reads them in pages, each page in one snapshot. `run`, `task`
//! and `record` compare them with what they must be; the rules of one run are in `longhaul_engine::inspection`. `schema` compares tables
//! and indexes with the migrations. `sqlite::inspection` and `postgres::inspection` are the two kinds of [`Inspected`] stores.

mod record;
mod rows;
mod run;
pub(crate) mod schema;
mod task;

pub use longhaul_engine::inspection::{Problem, ProblemKind};

pub(crate) use rows::{
    AttributeRow, BeforeRows, Columns, CommandRows, DocumentRows, KeyRows, OpenTasks, RunBase,
    RunRows, SessionRows, TaskRows, Wanted,
};

use crate::postgres::inspection::PostgresInspection;
use crate::sqlite::inspection::SqliteInspection;
use crate::{Error, StoreAddress};
use longhaul_engine::visibility::Term;

/// Rows of one page. A page is one snapshot, and a long snapshot keeps the server from removing old versions of rows.
pub(crate) const PAGE_ROWS: i64 = 100;

/// Orphans of one table, and repeated ids, that are shown. More have the same cause.
pub(crate) const ORPHANS_MAX: i64 = 100;

/// A problem and the row that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub problem: Problem,
    /// The run of the row, if it has one.
    pub run_id: Option<String>,
    /// The row, such as `task 01K…`.
    pub row: String,
}

/// What a check tells while it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    Finding(Finding),
    Progress(Totals),
}

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub runs: u64,
    pub tasks: u64,
    pub sessions: u64,
    pub documents: u64,
    pub problems: u64,
}

/// A store that is checked.
pub(crate) trait Inspected {
    /// Returns what is wrong with the schema. With problems here the rows cannot be read.
    async fn schema(&mut self) -> Result<Vec<Problem>, Error>;

    /// Hands over the next runs after an id. Returns the last id, or `None` if there are no more runs.
    async fn runs(
        &mut self,
        after: &str,
        each: &mut impl FnMut(&RunRows),
    ) -> Result<Option<String>, Error>;

    /// As [`Inspected::runs`], for tasks.
    async fn tasks(
        &mut self,
        after: &str,
        each: &mut impl FnMut(&TaskRows),
    ) -> Result<Option<String>, Error>;

    /// Returns the next sessions after a namespace and an id.
    async fn sessions(&mut self, after: [&str; 2]) -> Result<Vec<SessionRows>, Error>;

    /// Returns the next documents after a key.
    async fn documents(&mut self, after: [&str; 4]) -> Result<Vec<DocumentRows>, Error>;

    /// Returns the next idempotency keys after one.
    async fn keys(&mut self, after: [&str; 3]) -> Result<Vec<KeyRows>, Error>;

    /// Returns ids of events that two runs have.
    async fn repeated_events(&mut self) -> Result<Vec<String>, Error>;

    /// Returns rows that belong to nothing, as a table and the id that it names.
    async fn orphans(&mut self) -> Result<Vec<(&'static str, String)>, Error>;

    /// Returns a value of a search attribute as [`AttributeRow`] has it.
    fn indexed(term: &Term) -> String;
}

/// Checks a store. `report` gets every problem, and the progress after each page.
///
/// # Errors
/// [`Error::Settings`], [`Error::Unavailable`] or [`Error::NewerSchema`] if the store cannot be checked. Rows that cannot be read are
/// problems, not errors.
pub async fn check(
    address: &StoreAddress,
    report: &mut dyn FnMut(Report),
) -> Result<Totals, Error> {
    let mut checker = Checker {
        report,
        totals: Totals::default(),
    };
    // Boxed: a store has the futures of all its statements.
    let checked = match address {
        StoreAddress::Sqlite(path) => {
            Box::pin(checker.check(&mut SqliteInspection::open(path)?)).await
        }
        StoreAddress::Postgres(options) => {
            let mut store = PostgresInspection::open(options).await?;
            Box::pin(checker.check(&mut store)).await
        }
    };
    match checked {
        // The database engine found it while it read.
        Err(Error::Damaged(detail)) => {
            checker.found(
                None,
                "database",
                Problem::new(ProblemKind::FileDamaged, detail),
            );
        }
        other => other?,
    }
    Ok(checker.totals)
}

struct Checker<'r> {
    report: &'r mut dyn FnMut(Report),
    totals: Totals,
}

impl Checker<'_> {
    fn found(&mut self, run_id: Option<&str>, row: &str, problem: Problem) {
        self.totals.problems += 1;
        (self.report)(Report::Finding(Finding {
            problem,
            run_id: run_id.map(str::to_owned),
            row: row.to_owned(),
        }));
    }

    fn progress(&mut self) {
        (self.report)(Report::Progress(self.totals));
    }

    async fn check<I: Inspected>(&mut self, store: &mut I) -> Result<(), Error> {
        let problems = store.schema().await?;
        let is_readable = !problems
            .iter()
            .any(|problem| problem.kind == ProblemKind::SchemaDiffers);
        for problem in problems {
            self.found(None, "schema", problem);
        }
        if !is_readable {
            return Ok(());
        }
        self.check_runs(store).await?;
        self.check_tasks(store).await?;
        self.check_records(store).await?;
        for id in store.repeated_events().await? {
            let detail = format!("events of two runs have the id {id}");
            let problem = Problem::new(ProblemKind::EventIdRepeated, detail);
            self.found(None, "events", problem);
        }
        for (table, id) in store.orphans().await? {
            let detail =
                format!("a row of {table} belongs to {id}, which is not stored or another one");
            self.found(None, table, Problem::new(ProblemKind::OrphanRow, detail));
        }
        Ok(())
    }

    async fn check_runs<I: Inspected>(&mut self, store: &mut I) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let mut each = |rows: &RunRows| {
                self.totals.runs += 1;
                for problem in run::check(rows, I::indexed) {
                    self.found(Some(&rows.run_id), "run", problem);
                }
            };
            match store.runs(&after, &mut each).await? {
                Some(last) => after = last,
                None => return Ok(()),
            }
            self.progress();
        }
    }

    async fn check_tasks<I: Inspected>(&mut self, store: &mut I) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let mut each = |rows: &TaskRows| {
                self.totals.tasks += 1;
                let (run_id, problems) = task::check(rows);
                for problem in problems {
                    let row = format!("task {}", rows.task_id);
                    self.found(run_id.as_deref(), &row, problem);
                }
            };
            match store.tasks(&after, &mut each).await? {
                Some(last) => after = last,
                None => return Ok(()),
            }
            self.progress();
        }
    }

    async fn check_records<I: Inspected>(&mut self, store: &mut I) -> Result<(), Error> {
        let mut page = store.keys(["", "", ""]).await?;
        while let Some(last) = page.last() {
            let after = last.key.clone();
            for rows in &page {
                if let Some(problem) = record::check_key(rows) {
                    let row = format!("key {}", rows.key.join("/"));
                    self.found(Some(&rows.run_id), &row, problem);
                }
            }
            page = store.keys(after.each_ref().map(String::as_str)).await?;
        }
        let mut page = store.sessions(["", ""]).await?;
        while let Some(last) = page.last() {
            let after = [last.namespace.clone(), last.session_id.clone()];
            for rows in &page {
                self.totals.sessions += 1;
                let row = format!("session {}/{}", rows.namespace, rows.session_id);
                for problem in record::check_session(rows) {
                    self.found(None, &row, problem);
                }
            }
            self.progress();
            page = store.sessions(after.each_ref().map(String::as_str)).await?;
        }
        let mut page = store.documents(["", "", "", ""]).await?;
        while let Some(last) = page.last() {
            let after = last.key.clone();
            for rows in &page {
                self.totals.documents += 1;
                let row = format!("document {}", rows.key.join("/"));
                for problem in record::check_document(rows) {
                    self.found(None, &row, problem);
                }
            }
            self.progress();
            page = store
                .documents(after.each_ref().map(String::as_str))
                .await?;
        }
        Ok(())
    }
}
