//! Lists of runs by condition: the index entries that a commit writes (`index`), the SQL that reads along them (`statement`), and
//! the pages (`find`).

pub(super) mod find;
pub(super) mod index;
pub(super) mod statement;
