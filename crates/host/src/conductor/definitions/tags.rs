//! Tags: names and values that callers attach to definitions and event handlers. A tag of the type `RATE_LIMIT` on a workflow is its
//! rate limit.

use longhaul_engine::conductor::limits::NAME_CHARS_MAX;
use longhaul_engine::conductor::validate::Violation;
use longhaul_protocol::conductor::{RateLimitConfig, Tag, TagType};
use longhaul_protocol::id::Namespace;
use longhaul_store::{TagsRow, document};
use serde_json::Value;

use crate::conductor::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::views::Definitions;

/// Tags of one definition or handler. They are read and written together.
const TAGS_MAX: usize = 100;

/// The longest value of a tag in bytes, as JSON.
const VALUE_BYTES_MAX: usize = 2000;

/// What has tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagged<'a> {
    Task(&'a str),
    Workflow(&'a str),
    EventHandler(&'a str),
}

impl<'a> Tagged<'a> {
    fn parts(self) -> (&'static str, &'a str) {
        match self {
            Self::Task(name) => ("task", name),
            Self::Workflow(name) => ("workflow", name),
            Self::EventHandler(name) => ("event_handler", name),
        }
    }
}

impl Definitions<'_> {
    /// Returns the tags of a definition or a handler. The rate limit of a workflow is one of them.
    pub async fn tags(self, namespace: &Namespace, of: Tagged<'_>) -> Result<Vec<Tag>> {
        self.require_tagged(namespace, of).await?;
        let (subject, name) = of.parts();
        let store = &self.host.inner.store;
        let row = store.get_qualified::<TagsRow>(namespace, name, subject);
        Ok(row.await?.map(shown).unwrap_or_default())
    }

    /// Returns every tag of the namespace once, in the order of names and values.
    pub async fn all_tags(self, namespace: &Namespace) -> Result<Vec<Tag>> {
        let rows = self.host.inner.store.list::<TagsRow>(Some(namespace));
        let mut all: Vec<Tag> = Vec::new();
        for tag in rows.await?.into_iter().flat_map(shown) {
            if !all.iter().any(|known| is_same(known, &tag)) {
                all.push(tag);
            }
        }
        let order = |tag: &Tag| {
            let value = tag.value.as_ref().map(ToString::to_string);
            (tag.key.clone(), value)
        };
        all.sort_by_key(order);
        Ok(all)
    }

    /// Adds tags. One that exists is added once.
    pub async fn add_tags(
        self,
        namespace: &Namespace,
        of: Tagged<'_>,
        tags: Vec<Tag>,
    ) -> Result<()> {
        check(of, &tags)?;
        self.change_tags(namespace, of, |row| {
            for tag in &tags {
                set(row, of, tag);
            }
        })
        .await
    }

    /// Replaces all tags.
    pub async fn replace_tags(
        self,
        namespace: &Namespace,
        of: Tagged<'_>,
        tags: Vec<Tag>,
    ) -> Result<()> {
        check(of, &tags)?;
        self.change_tags(namespace, of, |row| {
            row.tags.clear();
            row.rate_limit = None;
            for tag in &tags {
                set(row, of, tag);
            }
        })
        .await
    }

    /// Removes tags. One that does not exist is passed over.
    pub async fn remove_tags(
        self,
        namespace: &Namespace,
        of: Tagged<'_>,
        tags: Vec<Tag>,
    ) -> Result<()> {
        self.change_tags(namespace, of, |row| {
            let is_removed = |known: &Tag| tags.iter().any(|tag| is_same(known, tag));
            row.tags.retain(|known| !is_removed(known));
            if rate_limit_tag(row).is_some_and(|tag| is_removed(&tag)) {
                row.rate_limit = None;
            }
        })
        .await
    }

    /// Returns the rate limit of a workflow.
    pub async fn rate_limit(
        self,
        namespace: &Namespace,
        workflow: &str,
    ) -> Result<Option<RateLimitConfig>> {
        let of = Tagged::Workflow(workflow);
        self.require_tagged(namespace, of).await?;
        let store = &self.host.inner.store;
        let row = store.get_qualified::<TagsRow>(namespace, workflow, of.parts().0);
        Ok(row.await?.and_then(|row| row.rate_limit))
    }

    /// Sets or removes the rate limit of a workflow.
    pub async fn set_rate_limit(
        self,
        namespace: &Namespace,
        workflow: &str,
        limit: Option<RateLimitConfig>,
    ) -> Result<()> {
        let key = limit
            .as_ref()
            .and_then(|limit| limit.rate_limit_key.as_ref());
        if key.is_some_and(|key| key.chars().count() > NAME_CHARS_MAX) {
            return Err(invalid(format!(
                "rateLimitKey has more than {NAME_CHARS_MAX} characters"
            )));
        }
        let of = Tagged::Workflow(workflow);
        let change = |row: &mut TagsRow| row.rate_limit.clone_from(&limit);
        self.change_tags(namespace, of, change).await
    }

    /// Changes the tags of a definition or a handler.
    async fn change_tags(
        self,
        namespace: &Namespace,
        of: Tagged<'_>,
        change: impl Fn(&mut TagsRow),
    ) -> Result<()> {
        self.require_tagged(namespace, of).await?;
        let (subject, name) = of.parts();
        let key = document::key::<TagsRow>(namespace.as_str(), name, subject);
        let changed = self.host.inner.store.change(
            key,
            self.host.now(),
            |row: Option<TagsRow>| -> Result<Option<TagsRow>> {
                let mut row = row.unwrap_or_else(|| TagsRow {
                    namespace: namespace.clone(),
                    subject: subject.to_owned(),
                    name: name.to_owned(),
                    tags: Vec::new(),
                    rate_limit: None,
                });
                change(&mut row);
                if row.tags.len() > TAGS_MAX {
                    return Err(invalid(format!(
                        "{name} would have more than {TAGS_MAX} tags"
                    )));
                }
                let is_empty = row.tags.is_empty() && row.rate_limit.is_none();
                Ok((!is_empty).then_some(row))
            },
        );
        changed.await.map(drop)
    }

    /// Refuses tags of what does not exist.
    async fn require_tagged(self, namespace: &Namespace, of: Tagged<'_>) -> Result<()> {
        let all = self.all(namespace).await?;
        let (exists, refusal) = match of {
            Tagged::Task(name) => (
                all.tasks.contains_key(name),
                ConductorRefusal::NoSuchTaskDef(name.to_owned()),
            ),
            Tagged::Workflow(name) => (
                all.workflows.contains_key(name),
                ConductorRefusal::NoSuchDefinition {
                    name: name.to_owned(),
                    version: None,
                },
            ),
            Tagged::EventHandler(name) => (
                all.handlers.contains_key(name),
                ConductorRefusal::NoSuchEventHandler(name.to_owned()),
            ),
        };
        if exists { Ok(()) } else { Err(refusal.into()) }
    }
}

/// Returns the tags that callers see.
fn shown(row: TagsRow) -> Vec<Tag> {
    let limit = rate_limit_tag(&row);
    row.tags.into_iter().chain(limit).collect()
}

/// Returns the rate limit of a workflow as a tag.
fn rate_limit_tag(row: &TagsRow) -> Option<Tag> {
    let limit = row.rate_limit.as_ref()?.concurrent_exec_limit?;
    Some(Tag {
        key: row.name.clone(),
        value: Some(limit.into()),
        tag_type: Some(TagType::RateLimit),
    })
}

/// Returns the limit that a tag sets, if it is the rate limit of this workflow.
fn limit_in(of: Tagged<'_>, tag: &Tag) -> Option<i32> {
    let Tagged::Workflow(name) = of else {
        return None;
    };
    if tag.tag_type != Some(TagType::RateLimit) || tag.key != name {
        return None;
    }
    match tag.value.as_ref()? {
        Value::Number(limit) => i32::try_from(limit.as_i64()?).ok(),
        Value::String(limit) => limit.trim().parse().ok(),
        _ => None,
    }
}

/// Adds a tag to a row, unless the row has it.
fn set(row: &mut TagsRow, of: Tagged<'_>, tag: &Tag) {
    if let Some(limit) = limit_in(of, tag) {
        let config = row.rate_limit.get_or_insert_default();
        config.concurrent_exec_limit = Some(limit);
    } else if !row.tags.iter().any(|known| is_same(known, tag)) {
        row.tags.push(tag.clone());
    }
}

/// Returns whether two tags are the same. An absent type is the same as `METADATA`.
fn is_same(one: &Tag, other: &Tag) -> bool {
    let kind = |tag: &Tag| tag.tag_type.unwrap_or(TagType::Metadata);
    let text = |tag: &Tag| match &tag.value {
        Some(Value::String(text)) => Some(text.clone()),
        value => value.as_ref().map(ToString::to_string),
    };
    one.key == other.key && text(one) == text(other) && kind(one) == kind(other)
}

fn check(of: Tagged<'_>, tags: &[Tag]) -> Result<()> {
    let is_limit =
        |tag: &&Tag| matches!(of, Tagged::Workflow(_)) && tag.tag_type == Some(TagType::RateLimit);
    if let Some(tag) = tags
        .iter()
        .find(|tag| is_limit(tag) && limit_in(of, tag).is_none())
    {
        return Err(invalid(format!(
            "the RATE_LIMIT tag {} must have the name of the workflow as key and a whole number as value",
            tag.key
        )));
    }
    for tag in tags {
        if tag.key.is_empty() || tag.key.chars().count() > NAME_CHARS_MAX {
            return Err(invalid(format!(
                "the key of a tag must have 1 to {NAME_CHARS_MAX} characters"
            )));
        }
        let bytes = tag
            .value
            .as_ref()
            .map_or(0, |value| value.to_string().len());
        if bytes > VALUE_BYTES_MAX {
            return Err(invalid(format!(
                "the value of tag {} has {bytes} bytes, more than {VALUE_BYTES_MAX}",
                tag.key
            )));
        }
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    ConductorRefusal::InvalidDefinition(vec![Violation {
        path: "tags".to_owned(),
        message,
        invalid_value: None,
    }])
    .into()
}
