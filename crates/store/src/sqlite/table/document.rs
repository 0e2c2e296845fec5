//! Registry documents: one table for all kinds.

use longhaul_engine::change::{Document, DocumentChange, DocumentKey, DocumentKind};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use crate::Error;
use crate::encode::signed;

/// Refuses a change that is based on another version than the stored one.
pub(in crate::sqlite) fn check_version(
    transaction: &Transaction<'_>,
    change: &DocumentChange,
) -> Result<(), Error> {
    let stored: Option<i64> = transaction
        .prepare_cached(
            "SELECT version FROM documents WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND qualifier = ?4",
        )?
        .query_row(columns(&change.key), |row| row.get(0))
        .optional()?;
    if stored == change.base_version.map(signed) {
        Ok(())
    } else {
        Err(Error::Conflict)
    }
}

pub(in crate::sqlite) fn write(
    transaction: &Transaction<'_>,
    change: &DocumentChange,
) -> Result<(), Error> {
    let key = columns(&change.key);
    match &change.body {
        Some(body) => put(transaction, key, signed(change.version), body),
        None => {
            transaction
                .prepare_cached(
                    "DELETE FROM documents WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND qualifier = ?4",
                )?
                .execute(key)?;
            Ok(())
        }
    }
}

/// Writes one document.
pub(in crate::sqlite) fn put(
    transaction: &Connection,
    [kind, namespace, name, qualifier]: [&str; 4],
    version: i64,
    body: &str,
) -> Result<(), Error> {
    transaction
        .prepare_cached(
            "INSERT INTO documents (kind, namespace, name, qualifier, version, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET version = excluded.version, body = excluded.body",
        )?
        .execute(params![kind, namespace, name, qualifier, version, body])?;
    Ok(())
}

pub(in crate::sqlite) fn document(
    connection: &Connection,
    key: &DocumentKey,
) -> Result<Option<Document>, Error> {
    let found = connection
        .prepare_cached(
            "SELECT version, body FROM documents WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND qualifier = ?4",
        )?
        .query_row(columns(key), |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.map(|(version, body)| Document {
        key: key.clone(),
        version: version.cast_unsigned(),
        body,
    }))
}

pub(in crate::sqlite) fn documents(
    connection: &Connection,
    kind: DocumentKind,
    namespace: Option<&str>,
) -> Result<Vec<Document>, Error> {
    let read = |row: &Row<'_>| {
        Ok(Document {
            key: DocumentKey {
                kind,
                namespace: row.get(0)?,
                name: row.get(1)?,
                qualifier: row.get(2)?,
            },
            version: row.get::<_, i64>(3)?.cast_unsigned(),
            body: row.get(4)?,
        })
    };
    let found: Result<Vec<Document>, rusqlite::Error> = match namespace {
        Some(namespace) => connection
            .prepare_cached(
                "SELECT namespace, name, qualifier, version, body FROM documents
                 WHERE kind = ?1 AND namespace = ?2 ORDER BY name, qualifier",
            )?
            .query_map([kind.as_str(), namespace], read)?
            .collect(),
        None => connection
            .prepare_cached(
                "SELECT namespace, name, qualifier, version, body FROM documents
                 WHERE kind = ?1 ORDER BY namespace, name, qualifier",
            )?
            .query_map([kind.as_str()], read)?
            .collect(),
    };
    Ok(found?)
}

fn columns(key: &DocumentKey) -> [&str; 4] {
    [key.kind.as_str(), &key.namespace, &key.name, &key.qualifier]
}
