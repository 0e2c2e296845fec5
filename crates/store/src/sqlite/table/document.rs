//! Registry documents: one table for all kinds.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction};

use crate::Error;
use crate::document::{Document, DocumentKey, DocumentKind, Expected};

pub(in crate::sqlite) fn put(
    transaction: &Transaction<'_>,
    document: &Document,
    expected: Expected,
) -> Result<bool, Error> {
    let sql = match expected {
        Expected::Any => {
            "INSERT INTO documents (kind, namespace, name, qualifier, body) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE SET body = excluded.body"
        }
        Expected::Absent => {
            "INSERT INTO documents (kind, namespace, name, qualifier, body) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO NOTHING"
        }
        Expected::Present => {
            "UPDATE documents SET body = ?5 WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND qualifier = ?4"
        }
    };
    let [kind, namespace, name, qualifier] = columns(&document.key);
    let written = transaction.prepare_cached(sql)?.execute([
        kind,
        namespace,
        name,
        qualifier,
        &document.body,
    ])?;
    if written == 0 {
        Err(Error::Conflict)
    } else {
        Ok(true)
    }
}

pub(in crate::sqlite) fn delete(
    transaction: &Transaction<'_>,
    key: &DocumentKey,
) -> Result<bool, Error> {
    let deleted = transaction
        .prepare_cached(
            "DELETE FROM documents WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND qualifier = ?4",
        )?
        .execute(columns(key))?;
    Ok(deleted > 0)
}

pub(in crate::sqlite) fn document(
    connection: &Connection,
    key: &DocumentKey,
) -> Result<Option<Document>, Error> {
    let body = connection
        .prepare_cached(
            "SELECT body FROM documents WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND qualifier = ?4",
        )?
        .query_row(columns(key), |row| row.get(0))
        .optional()?;
    Ok(body.map(|body| Document {
        key: key.clone(),
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
            body: row.get(3)?,
        })
    };
    let found: Result<Vec<Document>, rusqlite::Error> = match namespace {
        Some(namespace) => connection
            .prepare_cached(
                "SELECT namespace, name, qualifier, body FROM documents
                 WHERE kind = ?1 AND namespace = ?2 ORDER BY name, qualifier",
            )?
            .query_map([kind.as_str(), namespace], read)?
            .collect(),
        None => connection
            .prepare_cached(
                "SELECT namespace, name, qualifier, body FROM documents
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
