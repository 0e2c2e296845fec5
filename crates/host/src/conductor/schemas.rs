//! Registered schemas. Workers write them when they start. A definition that enforces one gets its content when it is compiled, so they
//! are not kept in memory.

use longhaul_engine::conductor::validate::{Violation, check_schema_def};
use longhaul_protocol::conductor::SchemaDef;
use longhaul_protocol::id::Namespace;
use longhaul_store::{SchemaRow, document};

use super::refusal::ConductorRefusal;
use crate::Host;
use crate::error::{Error, Result};
use crate::views::Definitions;

/// The most schemas of one registration.
const SCHEMAS_MAX: usize = 1000;

/// How often the next version is chosen again because another caller took it.
const NEXT_VERSION_TRIES: u32 = 10;

/// Which version a registration writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaVersion {
    /// The one in the schema. It replaces what is stored.
    Given,
    /// The one after the newest.
    Next,
}

impl Definitions<'_> {
    /// Registers schemas. Nothing is stored if one of them is invalid.
    pub async fn put_schemas(
        self,
        namespace: &Namespace,
        schemas: Vec<SchemaDef>,
        version: SchemaVersion,
    ) -> Result<()> {
        let violations = check(&schemas);
        if !violations.is_empty() {
            return Err(ConductorRefusal::InvalidDefinition(violations).into());
        }
        let namespace = namespace.clone();
        let write = |host: Host| async move {
            let write = host
                .definitions()
                .write_schemas(&namespace, schemas, version);
            write.await
        };
        self.host.to_the_end(write).await
    }

    async fn write_schemas(
        self,
        namespace: &Namespace,
        schemas: Vec<SchemaDef>,
        version: SchemaVersion,
    ) -> Result<()> {
        // Snapshots for starts contain schemas.
        let mut change = self.change(namespace).await?;
        change.begin_writing();
        for schema in schemas {
            match version {
                SchemaVersion::Given => self.replace_schema(namespace, schema).await?,
                SchemaVersion::Next => self.add_schema(namespace, schema).await?,
            }
        }
        change
            .finish(&*self.host.inner.store, self.host.now())
            .await?;
        Ok(())
    }

    /// Writes a version, and keeps the time of its first registration.
    async fn replace_schema(self, namespace: &Namespace, schema: SchemaDef) -> Result<()> {
        let now = self.millis_now();
        let new = SchemaRow {
            namespace: namespace.clone(),
            schema,
        };
        let change = |earlier: Option<SchemaRow>| {
            let mut row = new.clone();
            match earlier {
                Some(earlier) => {
                    row.schema.create_time = earlier.schema.create_time;
                    row.schema.update_time = Some(now);
                }
                None => row.schema.create_time = Some(now),
            }
            Ok::<_, Error>(Some(row))
        };
        let (key, now) = (document::key_of(&new), self.host.now());
        let changed = self.host.inner.store.change(key, now, change);
        changed.await.map(drop)
    }

    /// Writes the version after the newest.
    async fn add_schema(self, namespace: &Namespace, mut schema: SchemaDef) -> Result<()> {
        schema.create_time = Some(self.millis_now());
        let mut row = SchemaRow {
            namespace: namespace.clone(),
            schema,
        };
        for _ in 0..NEXT_VERSION_TRIES {
            let newest = self.newest_schema(namespace, &row.schema.name).await?;
            let newest = newest.map_or(0, |newest| newest.version);
            row.schema.version = newest.saturating_add(1);
            if self.host.inner.store.create(&row, self.host.now()).await? {
                return Ok(());
            }
        }
        Err(Error::Contended)
    }

    /// Returns every version of every schema.
    pub async fn schemas(self, namespace: &Namespace) -> Result<Vec<SchemaDef>> {
        let rows = self.host.inner.store.list::<SchemaRow>(Some(namespace));
        Ok(rows.await?.into_iter().map(|row| row.schema).collect())
    }

    /// Returns a version of a schema.
    pub async fn schema(
        self,
        namespace: &Namespace,
        name: &str,
        version: i32,
    ) -> Result<Option<SchemaDef>> {
        let qualifier = SchemaRow::qualifier(version);
        let store = &self.host.inner.store;
        let row = store.get_qualified::<SchemaRow>(namespace, name, &qualifier);
        Ok(row.await?.map(|row| row.schema))
    }

    /// Returns the newest version of a schema.
    pub async fn newest_schema(
        self,
        namespace: &Namespace,
        name: &str,
    ) -> Result<Option<SchemaDef>> {
        let all = self.schemas(namespace).await?;
        // The list is in the order of names and versions.
        Ok(all.into_iter().rfind(|schema| schema.name == name))
    }

    /// Removes a version of a schema. Returns whether there was one.
    pub async fn delete_schema(
        self,
        namespace: &Namespace,
        name: &str,
        version: i32,
    ) -> Result<bool> {
        let (namespace, name) = (namespace.clone(), name.to_owned());
        let delete = |host: Host| async move {
            let delete = host.definitions().erase_schema(&namespace, &name, version);
            delete.await
        };
        self.host.to_the_end(delete).await
    }

    async fn erase_schema(self, namespace: &Namespace, name: &str, version: i32) -> Result<bool> {
        let mut change = self.change(namespace).await?;
        change.begin_writing();
        let qualifier = SchemaRow::qualifier(version);
        let store = &self.host.inner.store;
        let key = document::key::<SchemaRow>(namespace.as_str(), name, &qualifier);
        let removed = store.delete::<SchemaRow>(key, self.host.now()).await?;
        change
            .finish(&*self.host.inner.store, self.host.now())
            .await?;
        Ok(removed)
    }

    /// Removes every version of a schema. Returns whether there was one.
    pub async fn delete_schemas(self, namespace: &Namespace, name: &str) -> Result<bool> {
        let mut removed = false;
        for schema in self.schemas(namespace).await? {
            if schema.name == name {
                removed |= self.delete_schema(namespace, name, schema.version).await?;
            }
        }
        Ok(removed)
    }

    fn millis_now(self) -> i64 {
        i64::try_from(self.host.now().as_millis()).unwrap_or(i64::MAX)
    }
}

fn check(schemas: &[SchemaDef]) -> Vec<Violation> {
    let whole = |message: String| {
        vec![Violation {
            path: String::new(),
            message,
            invalid_value: None,
        }]
    };
    if schemas.is_empty() {
        return whole("the list of schemas is empty".to_owned());
    }
    if schemas.len() > SCHEMAS_MAX {
        return whole(format!(
            "at most {SCHEMAS_MAX} schemas can be registered at once"
        ));
    }
    let mut violations = Vec::new();
    for (index, schema) in schemas.iter().enumerate() {
        violations.extend(
            check_schema_def(schema)
                .into_iter()
                .map(|violation| Violation {
                    path: format!("[{index}].{}", violation.path),
                    ..violation
                }),
        );
    }
    violations
}
