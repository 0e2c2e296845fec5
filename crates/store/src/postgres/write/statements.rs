//! The statements that write the rows of a batch: one per table, with an array per column. They are sent together, and nothing is
//! sent for a table without rows.

use std::borrow::Cow;

use futures::try_join;
use longhaul_engine::change::{RunChange, TaskFacts, TaskRow};
use longhaul_protocol::Timestamp;
use tokio_postgres::Error as PostgresError;
use tokio_postgres::types::ToSql;

use super::rows::Rows;
use super::sql::{
    APPEND_EVENTS, CREATE_NAMES, CREATE_RUNS, CREATE_SPECS, CREATE_STATES, DELETE_ALARMS,
    DELETE_ATTRIBUTES, DELETE_COMMANDS, DELETE_DOCUMENTS, DELETE_LOGS, DELETE_PARTS,
    DELETE_REQUESTS, DELETE_TASKS, GIVE_BACK, MOVE_ATTRIBUTES, MOVE_IN_LISTS, PUT_ALARMS,
    PUT_ATTRIBUTES, PUT_COMMANDS, PUT_DOCUMENTS, PUT_KEYS, PUT_LOGS, PUT_PARTS, PUT_REQUESTS,
    PUT_SESSIONS, PUT_TASKS, UPDATE_STATES,
};
use crate::encode::{
    EventColumns, closed_at, correlation_id, list_status, parent_id, signed, task_status,
};
use crate::postgres::connect::Connected;
use crate::postgres::look::{run_key, session_key, task_key};
use crate::postgres::text::{escaped, value};

/// A column of searches for tasks.
type TextOf<'f> = dyn for<'t> Fn(&'t TaskRow, &'t TaskFacts) -> Option<Cow<'t, str>> + 'f;

/// The writes of one batch on one connection.
pub(super) struct Batch<'a> {
    pub(super) client: &'a Connected,
    pub(super) rows: &'a Rows<'a>,
}

type Written = Result<(), PostgresError>;

impl Batch<'_> {
    /// Sends all rows and the COMMIT, then waits.
    pub(super) async fn commit(&self) -> Written {
        try_join!(self.send(), self.client.batch_execute("COMMIT"))?;
        Ok(())
    }

    /// Sends all rows, then waits. Rows are deleted before others are written.
    pub(super) async fn send(&self) -> Written {
        try_join!(
            self.delete_requests(),
            self.delete_commands(),
            self.delete_parts(),
            self.delete_logs(),
            self.delete_tasks(),
            self.delete_alarms(),
            self.delete_attributes(),
            self.delete_documents(),
            self.give_back(),
            self.create_runs(),
            self.create_specs(),
            self.create_names(),
            self.create_states(),
            self.update_states(),
            self.move_in_lists(),
            self.move_attributes(),
            self.put_alarms(),
            self.put_parts(),
            self.append_events(),
            self.put_tasks(),
            self.put_commands(),
            self.put_requests(),
            self.put_keys(),
            self.put_attributes(),
            self.put_sessions(),
            self.put_documents(),
            self.put_logs(),
        )?;
        Ok(())
    }

    async fn write(&self, sql: &'static str, columns: &[&(dyn ToSql + Sync)]) -> Written {
        let statement = self.client.prepare_cached(sql).await?;
        self.client.execute(&statement, columns).await.map(drop)
    }

    /// What these rows were taken for has happened.
    async fn give_back(&self) -> Written {
        let tasks = self.rows.tasks.keys().map(|id| task_key(id));
        let runs = self.rows.alarms.keys().map(|id| run_key(id));
        let sessions = self.rows.sessions.keys();
        let sessions = sessions.map(|(namespace, id)| session_key(namespace, id));
        let keys: Vec<String> = tasks.chain(runs).chain(sessions).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.write(GIVE_BACK, &[&keys]).await
    }

    async fn create_runs(&self) -> Written {
        if self.rows.created.is_empty() {
            return Ok(());
        }
        // The list columns are those of the newest state: a run may be created and changed in one batch.
        let runs = || {
            self.rows
                .created
                .keys()
                .filter_map(|id| self.rows.states.get(id))
        };
        let texts = |of: fn(&RunChange) -> &str| -> Vec<Cow<'_, str>> {
            runs().map(|(change, _)| escaped(of(change))).collect()
        };
        let optional = |of: fn(&RunChange) -> Option<&str>| -> Vec<Option<Cow<'_, str>>> {
            runs().map(|(change, _)| of(change).map(escaped)).collect()
        };
        let numbers = |of: fn(&RunChange) -> i64| -> Vec<i64> {
            runs().map(|(change, _)| of(change)).collect()
        };
        self.write(
            CREATE_RUNS,
            &[
                &texts(|change| change.spec.run_id.as_str()),
                &texts(|change| change.spec.namespace.as_str()),
                &texts(|change| change.spec.workflow_id.as_str()),
                &numbers(|change| signed(change.spec.run_number)),
                &texts(|change| &change.spec.workflow_type),
                &texts(|change| change.spec.task_queue.as_str()),
                &optional(|change| change.spec.business_key.as_deref()),
                &optional(|change| change.spec.routing.compatibility.as_deref()),
                &numbers(|change| change.spec.started_at.as_micros()),
                &texts(|change| list_status(&change.core)),
                &runs()
                    .map(|(change, _)| closed_at(change))
                    .collect::<Vec<_>>(),
                &optional(correlation_id),
                &optional(parent_id),
            ],
        )
        .await
    }

    async fn create_specs(&self) -> Written {
        if self.rows.created.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = self.rows.created.keys().map(|id| escaped(id)).collect();
        let bodies: Vec<&str> = self.rows.created.values().map(|(_, body)| *body).collect();
        self.write(CREATE_SPECS, &[&ids, &bodies]).await
    }

    async fn create_names(&self) -> Written {
        if self.rows.created.is_empty() {
            return Ok(());
        }
        let created = || self.rows.created.values().map(|(change, _)| &change.spec);
        self.write(
            CREATE_NAMES,
            &[
                &created()
                    .map(|spec| escaped(spec.namespace.as_str()))
                    .collect::<Vec<_>>(),
                &created()
                    .map(|spec| escaped(spec.workflow_id.as_str()))
                    .collect::<Vec<_>>(),
                &created()
                    .map(|spec| signed(spec.run_number))
                    .collect::<Vec<_>>(),
                &created()
                    .map(|spec| escaped(spec.run_id.as_str()))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn create_states(&self) -> Written {
        self.write_states(CREATE_STATES, |id| self.rows.created.contains_key(id))
            .await
    }

    async fn update_states(&self) -> Written {
        self.write_states(UPDATE_STATES, |id| !self.rows.created.contains_key(id))
            .await
    }

    async fn write_states(&self, sql: &'static str, is_wanted: impl Fn(&str) -> bool) -> Written {
        let states = self.rows.states.iter().filter(|(id, _)| is_wanted(id));
        let states: Vec<(&RunChange, &str)> = states.map(|(_, state)| *state).collect();
        if states.is_empty() {
            return Ok(());
        }
        let changes = || states.iter().map(|(change, _)| *change);
        let executions = || changes().map(|change| change.core.execution.as_deref());
        self.write(
            sql,
            &[
                &changes()
                    .map(|change| escaped(change.spec.run_id.as_str()))
                    .collect::<Vec<_>>(),
                &changes()
                    .map(|change| signed(change.version()))
                    .collect::<Vec<_>>(),
                &changes()
                    .map(|change| list_status(&change.core))
                    .collect::<Vec<_>>(),
                &changes().map(closed_at).collect::<Vec<_>>(),
                &changes()
                    .map(|change| change.core.alarm.map(Timestamp::as_micros))
                    .collect::<Vec<_>>(),
                &changes()
                    .map(|change| change.core.status.as_str())
                    .collect::<Vec<_>>(),
                &executions()
                    .map(|execution| execution.map(|execution| execution.updated_at.as_micros()))
                    .collect::<Vec<_>>(),
                &executions()
                    .map(|execution| execution.map(|execution| i64::from(execution.version)))
                    .collect::<Vec<_>>(),
                &executions()
                    .map(|execution| execution.map(|execution| i64::from(execution.priority)))
                    .collect::<Vec<_>>(),
                &executions()
                    .map(|execution| escaped(execution?.created_by.as_deref()?).into())
                    .collect::<Vec<Option<Cow<'_, str>>>>(),
                &executions()
                    .map(|execution| escaped(execution?.idempotency_key.as_deref()?).into())
                    .collect::<Vec<Option<Cow<'_, str>>>>(),
                &executions()
                    .map(|execution| escaped(execution?.classifier()).into())
                    .collect::<Vec<Option<Cow<'_, str>>>>(),
                &executions()
                    .map(|execution| escaped(execution?.reason.as_deref()?).into())
                    .collect::<Vec<Option<Cow<'_, str>>>>(),
                &executions()
                    .map(|execution| escaped(&execution?.failed_references).into())
                    .collect::<Vec<Option<Cow<'_, str>>>>(),
                &states.iter().map(|(_, body)| *body).collect::<Vec<_>>(),
            ],
        )
        .await
    }

    /// Returns the changes of runs that existed before the batch and move in lists.
    fn moved(&self) -> Vec<&RunChange> {
        let moved = self.rows.moved.iter();
        let moved = moved.filter(|id| !self.rows.created.contains_key(*id));
        moved
            .filter_map(|id| self.rows.states.get(id))
            .map(|(change, _)| *change)
            .collect()
    }

    async fn move_in_lists(&self) -> Written {
        let moved = self.moved();
        if moved.is_empty() {
            return Ok(());
        }
        let moved = || moved.iter();
        self.write(
            MOVE_IN_LISTS,
            &[
                &moved()
                    .map(|change| escaped(change.spec.run_id.as_str()))
                    .collect::<Vec<_>>(),
                &moved()
                    .map(|change| list_status(&change.core))
                    .collect::<Vec<_>>(),
                &moved().map(|change| closed_at(change)).collect::<Vec<_>>(),
                &moved()
                    .map(|change| correlation_id(change).map(escaped))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn move_attributes(&self) -> Written {
        let moved = self.moved();
        let moved = moved.iter().filter(|change| {
            let is_written = self
                .rows
                .attributes
                .contains_key(change.spec.run_id.as_str());
            !is_written && !change.core.search_attributes.is_empty()
        });
        let (ids, statuses): (Vec<_>, Vec<_>) = moved
            .map(|change| {
                (
                    escaped(change.spec.run_id.as_str()),
                    list_status(&change.core),
                )
            })
            .unzip();
        if ids.is_empty() {
            return Ok(());
        }
        self.write(MOVE_ATTRIBUTES, &[&ids, &statuses]).await
    }

    async fn delete_alarms(&self) -> Written {
        let ended = self.rows.alarms.iter().filter(|(_, alarm)| alarm.is_none());
        let ids: Vec<_> = ended.map(|(id, _)| escaped(id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        self.write(DELETE_ALARMS, &[&ids]).await
    }

    async fn put_alarms(&self) -> Written {
        let alarms = self.rows.alarms.iter();
        let (ids, alarms): (Vec<_>, Vec<i64>) = alarms
            .filter_map(|(id, alarm)| Some((escaped(id), (*alarm)?)))
            .unzip();
        if ids.is_empty() {
            return Ok(());
        }
        self.write(PUT_ALARMS, &[&ids, &alarms]).await
    }

    async fn delete_parts(&self) -> Written {
        let deleted = self.rows.parts.iter().filter(|(_, part)| part.is_none());
        let (ids, parts): (Vec<_>, Vec<&str>) =
            deleted.map(|((id, part), _)| (escaped(id), *part)).unzip();
        if ids.is_empty() {
            return Ok(());
        }
        self.write(DELETE_PARTS, &[&ids, &parts]).await
    }

    async fn put_parts(&self) -> Written {
        let parts = self.rows.parts.iter();
        let parts = parts.filter_map(|(key, part)| Some((key, part.as_ref()?)));
        let parts: Vec<_> = parts.collect();
        if parts.is_empty() {
            return Ok(());
        }
        let parts = || parts.iter();
        self.write(
            PUT_PARTS,
            &[
                &parts().map(|((id, _), _)| escaped(id)).collect::<Vec<_>>(),
                &parts().map(|((_, part), _)| *part).collect::<Vec<_>>(),
                &parts()
                    .map(|(_, row)| row.searched.as_deref().map(escaped))
                    .collect::<Vec<_>>(),
                &parts().map(|(_, row)| row.body).collect::<Vec<_>>(),
                &parts()
                    .map(|(_, row)| signed(row.version))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn append_events(&self) -> Written {
        if self.rows.events.is_empty() {
            return Ok(());
        }
        let events = || self.rows.events.iter().map(|(_, event)| event);
        let texts = |of: for<'e> fn(&'e EventColumns<'_>) -> &'e str| -> Vec<Cow<'_, str>> {
            events().map(|event| escaped(of(event))).collect()
        };
        let optional =
            |of: for<'e> fn(&'e EventColumns<'_>) -> Option<&'e str>| -> Vec<Option<Cow<'_, str>>> {
                events().map(|event| of(event).map(escaped)).collect()
            };
        let run_ids = self.rows.events.iter();
        let run_ids: Vec<_> = run_ids.map(|(run_id, _)| escaped(run_id)).collect();
        self.write(
            APPEND_EVENTS,
            &[
                &run_ids,
                &events().map(|event| event.sequence).collect::<Vec<_>>(),
                &texts(|event| event.id),
                &texts(|event| event.event_type),
                &events().map(|event| event.recorded_at).collect::<Vec<_>>(),
                &optional(|event| event.workflow_task_id),
                &optional(|event| event.workflow_command_id),
                &optional(|event| event.principal),
                &events().map(|event| event.payload).collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn put_tasks(&self) -> Written {
        if self.rows.tasks.is_empty() {
            return Ok(());
        }
        let tasks = || self.rows.tasks.values().map(|(task, _)| *task);
        // Columns of searches, which only tasks of definition runs have.
        let found = |column: &TextOf<'_>| -> Vec<Option<String>> {
            let of = |task: &TaskRow| {
                let facts = task.found_by.as_deref()?;
                column(task, facts).map(Cow::into_owned)
            };
            tasks().map(of).collect()
        };
        let number = |column: &dyn Fn(&TaskRow, &TaskFacts) -> Option<i64>| -> Vec<Option<i64>> {
            let of = |task: &TaskRow| column(task, task.found_by.as_deref()?);
            tasks().map(of).collect()
        };
        self.write(
            PUT_TASKS,
            &[
                &tasks()
                    .map(|task| escaped(task.task_id.as_str()))
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| task_status(task.status))
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| escaped(task.namespace.as_str()))
                    .collect::<Vec<_>>(),
                &tasks().map(|task| task.kind.as_str()).collect::<Vec<_>>(),
                &tasks()
                    .map(|task| escaped(task.queue.as_str()))
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| i16::from(task.priority))
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| task.available_at.as_micros())
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| {
                        task.lease_owner
                            .as_ref()
                            .map(|owner| escaped(owner.as_str()))
                    })
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| {
                        let session = task.worker_session.as_ref();
                        session.map(|session| escaped(session.session_id.as_str()))
                    })
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| escaped(&task.type_name))
                    .collect::<Vec<_>>(),
                &tasks()
                    .map(|task| task.fairness_key.as_deref().map(escaped))
                    .collect::<Vec<_>>(),
                &self
                    .rows
                    .tasks
                    .values()
                    .map(|(_, body)| *body)
                    .collect::<Vec<_>>(),
                &found(&|task, _| Some(escaped(task.run_id.as_str()))),
                &number(&|task, _| i64::try_from(task.sequence.get()).ok()),
                &found(&|_, facts| Some(escaped(&facts.task_type))),
                &found(&|_, facts| Some(escaped(&facts.def_name))),
                &found(&|_, facts| Some(escaped(&facts.reference))),
                &found(&|_, facts| Some(facts.status.as_str().into())),
                &found(&|_, facts| Some(escaped(&facts.workflow_type))),
                &found(&|_, facts| facts.correlation_id.as_deref().map(escaped)),
                &found(&|_, facts| facts.domain.as_deref().map(escaped)),
                &number(&|_, facts| Some(facts.scheduled_at.as_micros())),
                &number(&|_, facts| facts.started_at.map(Timestamp::as_micros)),
                &number(&|_, facts| facts.ended_at.map(Timestamp::as_micros)),
                &number(&|_, facts| Some(facts.updated_at.as_micros())),
            ],
        )
        .await
    }

    async fn delete_logs(&self) -> Written {
        let deleted = self.rows.logs.iter().filter(|(_, line)| line.is_none());
        let deleted: Vec<_> = deleted.map(|(key, _)| key).collect();
        if deleted.is_empty() {
            return Ok(());
        }
        let deleted = || deleted.iter();
        self.write(
            DELETE_LOGS,
            &[
                &deleted().map(|(id, _)| escaped(id)).collect::<Vec<_>>(),
                &deleted()
                    .map(|(_, key)| signed(key.task))
                    .collect::<Vec<_>>(),
                &deleted()
                    .map(|(_, key)| signed(key.line))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn delete_tasks(&self) -> Written {
        let deleted = self.rows.deleted_tasks.iter();
        let ids: Vec<_> = deleted.map(|id| escaped(id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        self.write(DELETE_TASKS, &[&ids]).await
    }

    async fn put_logs(&self) -> Written {
        let lines = self.rows.logs.iter();
        let lines: Vec<_> = lines
            .filter_map(|(key, line)| Some((key, (*line)?)))
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        let lines = || lines.iter();
        self.write(
            PUT_LOGS,
            &[
                &lines().map(|((id, _), _)| escaped(id)).collect::<Vec<_>>(),
                &lines()
                    .map(|((_, key), _)| signed(key.task))
                    .collect::<Vec<_>>(),
                &lines()
                    .map(|((_, key), _)| signed(key.line))
                    .collect::<Vec<_>>(),
                &lines()
                    .map(|(_, line)| line.created_at.as_micros())
                    .collect::<Vec<_>>(),
                // A JSON string: a line may contain U+0000.
                &lines()
                    .map(|(_, line)| serde_json::Value::from(&*line.text).to_string())
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn delete_commands(&self) -> Written {
        let deleted = self.rows.commands.iter().filter(|(_, body)| body.is_none());
        let (ids, sequences): (Vec<_>, Vec<i64>) = deleted
            .map(|((id, sequence), _)| (escaped(id), signed(*sequence)))
            .unzip();
        if ids.is_empty() {
            return Ok(());
        }
        self.write(DELETE_COMMANDS, &[&ids, &sequences]).await
    }

    async fn delete_requests(&self) -> Written {
        if self.rows.deleted.is_empty() {
            return Ok(());
        }
        let deleted = || self.rows.deleted.iter();
        self.write(
            DELETE_REQUESTS,
            &[
                &deleted()
                    .map(|command| escaped(command.namespace))
                    .collect::<Vec<_>>(),
                &deleted()
                    .map(|command| escaped(command.workflow_id))
                    .collect::<Vec<_>>(),
                &deleted()
                    .map(|command| escaped(command.run_id))
                    .collect::<Vec<_>>(),
                &deleted()
                    .map(|command| signed(command.sequence))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn put_commands(&self) -> Written {
        let commands = self.rows.commands.iter();
        let commands: Vec<_> = commands
            .filter_map(|(key, body)| Some((key, (*body)?)))
            .collect();
        if commands.is_empty() {
            return Ok(());
        }
        let commands = || commands.iter();
        self.write(
            PUT_COMMANDS,
            &[
                &commands()
                    .map(|((id, _), _)| escaped(id))
                    .collect::<Vec<_>>(),
                &commands()
                    .map(|((_, sequence), _)| signed(*sequence))
                    .collect::<Vec<_>>(),
                &commands().map(|(_, body)| *body).collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn put_requests(&self) -> Written {
        if self.rows.requests.is_empty() {
            return Ok(());
        }
        let requests = || self.rows.requests.iter();
        self.write(
            PUT_REQUESTS,
            &[
                &requests()
                    .map(|((space, _, _), _)| escaped(space))
                    .collect::<Vec<_>>(),
                &requests()
                    .map(|((_, workflow, _), _)| escaped(workflow))
                    .collect::<Vec<_>>(),
                &requests()
                    .map(|((_, _, request), _)| escaped(request))
                    .collect::<Vec<_>>(),
                &requests()
                    .map(|(_, (run_id, _))| escaped(run_id))
                    .collect::<Vec<_>>(),
                &requests()
                    .map(|(_, (_, sequence))| signed(*sequence))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn put_keys(&self) -> Written {
        if self.rows.keys.is_empty() {
            return Ok(());
        }
        let keys = || self.rows.keys.iter();
        self.write(
            PUT_KEYS,
            &[
                &keys()
                    .map(|((space, _, _), _)| escaped(space))
                    .collect::<Vec<_>>(),
                &keys()
                    .map(|((_, kind, _), _)| escaped(kind))
                    .collect::<Vec<_>>(),
                &keys()
                    .map(|((_, _, key), _)| escaped(key))
                    .collect::<Vec<_>>(),
                &keys()
                    .map(|(_, run_id)| escaped(run_id))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn delete_attributes(&self) -> Written {
        let written = self.rows.attributes.keys();
        let written = written.filter(|id| !self.rows.created.contains_key(*id));
        let ids: Vec<_> = written.map(|id| escaped(id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        self.write(DELETE_ATTRIBUTES, &[&ids]).await
    }

    async fn put_attributes(&self) -> Written {
        // A list may contain a string twice.
        let mut entries = std::collections::BTreeSet::new();
        for (id, attributes) in &self.rows.attributes {
            for entry in *attributes {
                let (name, kind) = (entry.name.as_str(), entry.kind.as_str());
                entries.insert((*id, name, kind, value(&entry.term)));
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        let entries = || entries.iter();
        let changes = || {
            let states = &self.rows.states;
            entries().filter_map(|(id, ..)| states.get(id).map(|(change, _)| *change))
        };
        self.write(
            PUT_ATTRIBUTES,
            &[
                &entries().map(|(id, ..)| escaped(id)).collect::<Vec<_>>(),
                &entries()
                    .map(|(_, name, ..)| escaped(name))
                    .collect::<Vec<_>>(),
                &entries().map(|(_, _, kind, _)| *kind).collect::<Vec<_>>(),
                &entries()
                    .map(|(.., value)| value.as_str())
                    .collect::<Vec<_>>(),
                &changes()
                    .map(|change| escaped(change.spec.namespace.as_str()))
                    .collect::<Vec<_>>(),
                &changes()
                    .map(|change| list_status(&change.core))
                    .collect::<Vec<_>>(),
                &changes()
                    .map(|change| change.spec.started_at.as_micros())
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn put_sessions(&self) -> Written {
        if self.rows.sessions.is_empty() {
            return Ok(());
        }
        let sessions = || self.rows.sessions.values().map(|(session, _)| *session);
        self.write(
            PUT_SESSIONS,
            &[
                &sessions()
                    .map(|session| escaped(session.namespace.as_str()))
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| escaped(session.session_id.as_str()))
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| signed(session.version))
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| session.status.as_str())
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| escaped(session.queue.as_str()))
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| escaped(session.lease_owner.as_str()))
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| session.deadline().map(Timestamp::as_micros))
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| session.ended_at().map(Timestamp::as_micros))
                    .collect::<Vec<_>>(),
                &sessions()
                    .map(|session| session.updated_at.as_micros())
                    .collect::<Vec<_>>(),
                &self
                    .rows
                    .sessions
                    .values()
                    .map(|(_, body)| *body)
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn delete_documents(&self) -> Written {
        let deleted = self
            .rows
            .documents
            .values()
            .filter(|change| change.body.is_none());
        let deleted: Vec<_> = deleted.map(|change| &change.key).collect();
        if deleted.is_empty() {
            return Ok(());
        }
        let deleted = || deleted.iter();
        self.write(
            DELETE_DOCUMENTS,
            &[
                &deleted().map(|key| key.kind.as_str()).collect::<Vec<_>>(),
                &deleted()
                    .map(|key| escaped(&key.namespace))
                    .collect::<Vec<_>>(),
                &deleted().map(|key| escaped(&key.name)).collect::<Vec<_>>(),
                &deleted()
                    .map(|key| escaped(&key.qualifier))
                    .collect::<Vec<_>>(),
            ],
        )
        .await
    }

    async fn put_documents(&self) -> Written {
        let written = self.rows.documents.values();
        let written: Vec<_> = written
            .filter_map(|change| Some((*change, change.body.as_deref()?)))
            .collect();
        if written.is_empty() {
            return Ok(());
        }
        let written = || written.iter();
        self.write(
            PUT_DOCUMENTS,
            &[
                &written()
                    .map(|(change, _)| change.key.kind.as_str())
                    .collect::<Vec<_>>(),
                &written()
                    .map(|(change, _)| escaped(&change.key.namespace))
                    .collect::<Vec<_>>(),
                &written()
                    .map(|(change, _)| escaped(&change.key.name))
                    .collect::<Vec<_>>(),
                &written()
                    .map(|(change, _)| escaped(&change.key.qualifier))
                    .collect::<Vec<_>>(),
                &written()
                    .map(|(change, _)| signed(change.version))
                    .collect::<Vec<_>>(),
                &written().map(|(_, body)| *body).collect::<Vec<_>>(),
            ],
        )
        .await
    }
}
