//! Lists of runs by condition: the index entries that a commit writes (`index`), the SQL that reads along them (`statement`) and
//! checks rows (`check`), and the pages (`find`, and `search` for
//! definition runs). `tasks` finds tasks of definition runs.

mod check;
pub(super) mod find;
pub(super) mod index;
pub(super) mod search;
pub(super) mod statement;
pub(super) mod tasks;
