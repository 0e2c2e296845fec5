//! Columns as they are stored. None of them stops a check, whatever it contains.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, ToSql, params};

use crate::Error;
use crate::inspection::Columns;

/// Returns what `read` makes of every row.
pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn ToSql],
    mut read: impl FnMut(&Row<'_>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// Returns the row with a key, which must exist.
pub(super) fn one<T>(
    connection: &Connection,
    sql: &str,
    key: i64,
    read: impl FnMut(&Row<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut found = all(connection, sql, params![key], read)?;
    found
        .pop()
        .ok_or_else(|| Error::Corrupt(format!("run key {key} is listed but not stored")))
}

/// Returns a text. One that is not UTF-8 becomes a text that no body can be parsed from.
pub(super) fn text(row: &Row<'_>, column: usize) -> Result<String, Error> {
    let value = row.get_ref(column)?;
    let bytes = value.as_bytes().map_err(rusqlite::Error::from)?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| "not UTF-8".to_owned()))
}

/// Returns columns that follow each other, with their names.
pub(super) fn columns(
    row: &Row<'_>,
    first: usize,
    names: &[&'static str],
) -> Result<Columns, Error> {
    let mut columns = Columns::new();
    for (place, name) in names.iter().enumerate() {
        let value = match row.get_ref(first + place)? {
            ValueRef::Null => None,
            ValueRef::Integer(integer) => Some(integer.to_string()),
            ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
                Some(text(row, first + place)?)
            }
        };
        columns.push((*name, value));
    }
    Ok(columns)
}

/// Returns a value with its type, because 1, 1.0 and `1` are different values.
pub(super) fn shown(value: &Value) -> String {
    format!("{value:?}")
}
