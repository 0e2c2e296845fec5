//! Questions that pass between servers. A question that no poll takes at the server where it was asked is shown to the others by a
//! volatile document: a server that has a poll for it leases it there, the answer is written there, and the server that asked reads it. One
//! that is leased where it was asked gets its document then, because its worker may report to any server. The document decides, by its
//! version; nothing of it touches a run or its history.
//!
//! The server that asked keeps the document for a while after the end, without payloads, so that a late report gets its refusal.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use longhaul_protocol::id::{Namespace, RunId, TaskId, TaskQueue, WorkerId};
use longhaul_protocol::{Payload, Timestamp};
use longhaul_store::{DocumentKey, DocumentKind, Record, document};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::matching::dispatch::ReadyTask;
use crate::questions::progress::{
    Held, Progress, QuestionAnswer, QuestionHolder, QuestionKind, QuestionLease, QuestionRefusal,
    QuestionState, QuestionTimes,
};
use crate::questions::table::Question;
use crate::questions::waiter::queue_of;
use crate::views::Questions;

/// Questions of other servers that are offered here.
const OFFERED_MAX: usize = 10_000;

/// A question that is shown to other servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct QuestionRow {
    pub(crate) namespace: Namespace,
    pub(crate) task_id: TaskId,
    /// The server that asked.
    asked_by: String,
    queue: TaskQueue,
    run_id: RunId,
    /// The query, or the update. Empty at the end, and so are the arguments.
    name: String,
    arguments: Option<Payload>,
    progress: Progress,
}

impl Record for QuestionRow {
    const KIND: DocumentKind = DocumentKind::Question;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.task_id.as_str().into(),
            "".into(),
        )
    }
}

/// The questions that this server shows, and those of others that it offers.
#[derive(Default)]
pub(crate) struct Passing {
    /// Asked here and shown to the others.
    shown: Mutex<HashMap<TaskId, Namespace>>,
    /// Asked elsewhere and offered to the polls here.
    offered: Mutex<HashMap<TaskId, QuestionKind>>,
    /// Ended documents, and when they are deleted.
    ended: Mutex<VecDeque<(Timestamp, DocumentKey)>>,
}

impl Passing {
    /// Returns whether this question was asked elsewhere and is offered here.
    pub(crate) fn is_offered(&self, task_id: &TaskId) -> bool {
        self.offered.lock().contains_key(task_id)
    }

    /// Returns whether its document decides about this question.
    pub(crate) fn has(&self, task_id: &TaskId) -> bool {
        self.shown.lock().contains_key(task_id) || self.is_offered(task_id)
    }

    fn shown(&self) -> Vec<(Namespace, TaskId)> {
        let shown = self.shown.lock();
        shown
            .iter()
            .map(|(task_id, namespace)| (namespace.clone(), task_id.clone()))
            .collect()
    }
}

fn key(namespace: &Namespace, task_id: &TaskId) -> DocumentKey {
    document::key::<QuestionRow>(namespace.as_str(), task_id.as_str(), "")
}

/// Why a document was not changed.
enum Unchanged {
    Refused(QuestionRefusal),
    Failed(longhaul_store::Error),
}

impl From<longhaul_store::Error> for Unchanged {
    fn from(error: longhaul_store::Error) -> Self {
        Self::Failed(error)
    }
}

impl Questions<'_> {
    /// Returns whether the document of a question decides about it: it was shown, or it is not known here and may be another server's.
    pub(crate) fn is_passing(self, task_id: &TaskId) -> bool {
        let inner = &self.host.inner;
        inner.passing.has(task_id)
            || (inner.store.shared().is_some() && !inner.questions.knows(task_id))
    }

    /// Shows a question to the other servers, unless it is shown already or a poll has it.
    pub(crate) async fn show(self, task_id: &TaskId) -> Result<()> {
        let inner = &self.host.inner;
        let Some((question, times)) = inner.questions.pending_question(task_id) else {
            return Ok(());
        };
        let dispatch = self.queues(question.kind).dispatch;
        if !dispatch.has_task(task_id) || inner.passing.has(task_id) {
            return Ok(());
        }
        let row = self.row(task_id, &question, times);
        inner
            .passing
            .shown
            .lock()
            .insert(task_id.clone(), row.namespace.clone());
        inner.store.create(&row, self.host.now()).await?;
        Ok(())
    }

    /// Leases a question that was asked here and no server knows of. From now on its document decides, because its worker may report
    /// to any server.
    pub(crate) async fn lease_and_show(
        self,
        task_id: &TaskId,
        owner: &WorkerId,
        poll_request_id: Option<&str>,
    ) -> Result<Option<(Arc<Question>, QuestionLease, QuestionTimes)>> {
        let inner = &self.host.inner;
        let limits = &inner.config.questions;
        let now = self.host.now();
        let leased = inner
            .questions
            .lease(task_id, owner, poll_request_id, limits, now);
        let Some((question, lease, times)) = leased else {
            return Ok(None);
        };
        let mut row = self.row(task_id, &question, times);
        row.progress.learn(QuestionState::Leased(lease.clone()));
        let namespace = row.namespace.clone();
        inner
            .passing
            .shown
            .lock()
            .insert(task_id.clone(), namespace);
        if let Err(error) = inner.store.create(&row, now).await {
            inner.passing.shown.lock().remove(task_id);
            inner.questions.release_one(task_id);
            return Err(error.into());
        }
        Ok(Some((question, lease, times)))
    }

    fn row(self, task_id: &TaskId, question: &Question, times: QuestionTimes) -> QuestionRow {
        QuestionRow {
            namespace: question.run.namespace.clone(),
            task_id: task_id.clone(),
            asked_by: self.host.server_id().to_owned(),
            queue: question.run.task_queue.clone(),
            run_id: question.run.run_id.clone(),
            name: question.name.clone(),
            arguments: Some(question.arguments.clone()),
            progress: Progress::new(question.kind, times),
        }
    }

    /// Ends a question that was shown: its caller has its outcome.
    pub(crate) fn end_shown(self, task_id: &TaskId) {
        let inner = &self.host.inner;
        let Some(namespace) = inner.passing.shown.lock().remove(task_id) else {
            return;
        };
        let (host, key) = (self.host.clone(), key(&namespace, task_id));
        inner.tasks.spawn(async move {
            let now = host.now();
            let end = |row: Option<QuestionRow>| {
                Ok::<_, longhaul_store::Error>(row.map(QuestionRow::ended))
            };
            let ended = host.inner.store.change(key.clone(), now, end).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "a question could not be ended for other servers");
            }
            let kept = host.inner.config.questions.remembered_seconds;
            let mut ended = host.inner.passing.ended.lock();
            ended.push_back((now.plus_seconds(kept), key));
        });
    }

    /// Deletes the documents of questions that ended long ago.
    pub(crate) async fn delete_ended(self) -> Result<()> {
        let inner = &self.host.inner;
        let now = self.host.now();
        loop {
            let next = {
                let mut ended = inner.passing.ended.lock();
                let is_due = ended.front().is_some_and(|(at, _)| *at <= now);
                is_due.then(|| ended.pop_front()).flatten()
            };
            let Some((_, key)) = next else { return Ok(()) };
            inner.store.delete::<QuestionRow>(key, now).await?;
        }
    }

    /// Deletes the questions of a server that is gone: their callers are gone too.
    pub(crate) async fn delete_of_server(self, server_id: &str) -> Result<()> {
        let store = &self.host.inner.store;
        let now = self.host.now();
        for row in store.list::<QuestionRow>(None).await? {
            if row.asked_by == server_id {
                let key = document::key_of(&row);
                store.delete::<QuestionRow>(key, now).await?;
            }
        }
        Ok(())
    }

    /// Follows the document of a question that another server wrote.
    pub(crate) async fn follow(self, key: &DocumentKey) -> Result<()> {
        let store = &self.host.inner.store;
        let namespace = Namespace::from(key.namespace.as_str());
        let row = store.get::<QuestionRow>(&namespace, &key.name).await?;
        match row {
            Some(row) => self.learn(&row).await,
            None => {
                self.withdraw(&TaskId::from(key.name.as_str()));
                Ok(())
            }
        }
    }

    /// Reads the questions of all servers: hints may have been lost.
    pub(crate) async fn follow_all(self) -> Result<()> {
        let inner = &self.host.inner;
        let polls_queries = inner.queries.dispatch.waiting() > 0;
        if polls_queries || inner.wakes.dispatch.waiting() > 0 {
            for row in inner.store.list::<QuestionRow>(None).await? {
                self.learn(&row).await?;
            }
            return Ok(());
        }
        for (namespace, task_id) in inner.passing.shown() {
            self.follow(&key(&namespace, &task_id)).await?;
        }
        Ok(())
    }

    async fn learn(self, row: &QuestionRow) -> Result<()> {
        if row.asked_by == self.host.server_id() {
            self.learn_own(row);
            return Ok(());
        }
        let progress = &row.progress;
        if progress.is_pending() && progress.times.deadline_at > self.host.now() {
            self.offer(row).await
        } else {
            self.withdraw(&row.task_id);
            Ok(())
        }
    }

    /// Applies the document of a question that was asked here.
    fn learn_own(self, row: &QuestionRow) {
        let questions = &self.host.inner.questions;
        match row.progress.state() {
            QuestionState::Pending => {
                if questions.release_one(&row.task_id) {
                    self.offer_again(row);
                }
            }
            decided @ (QuestionState::Leased(_)
            | QuestionState::Answered {
                answer: Some(_), ..
            }) => {
                self.release(row.progress.kind, &row.task_id);
                questions.learn(&row.task_id, decided.clone());
            }
            QuestionState::WorkerLost => questions.learn(&row.task_id, QuestionState::WorkerLost),
            QuestionState::Answered { answer: None, .. } | QuestionState::TimedOut(_) => {}
        }
    }

    /// Offers a question that was asked here and went back.
    fn offer_again(self, row: &QuestionRow) {
        let pending = self.host.inner.questions.pending_question(&row.task_id);
        if let Some((question, _)) = pending {
            let task = ReadyTask::question(row.task_id.clone(), &question, self.host.now());
            let dispatch = self.queues(row.progress.kind).dispatch;
            dispatch.ask(&queue_of(&question.run), task);
        }
    }

    /// Offers a question of another server to the polls here.
    async fn offer(self, row: &QuestionRow) -> Result<()> {
        let inner = &self.host.inner;
        {
            let mut offered = inner.passing.offered.lock();
            if offered.len() >= OFFERED_MAX || offered.contains_key(&row.task_id) {
                return Ok(());
            }
            offered.insert(row.task_id.clone(), row.progress.kind);
        }
        let Some(question) = self.question(row).await? else {
            self.withdraw(&row.task_id);
            return Ok(());
        };
        let task = ReadyTask::question(row.task_id.clone(), &question, self.host.now());
        let dispatch = self.queues(row.progress.kind).dispatch;
        dispatch.ask(&queue_of(&question.run), task);
        Ok(())
    }

    async fn question(self, row: &QuestionRow) -> Result<Option<Question>> {
        let executor = &self.host.inner.executor;
        let run = executor.read_part(&row.run_id, |run| {
            let required = crate::questions::waiter::required_capability(run);
            (Arc::clone(&run.spec), required)
        });
        let Some((spec, required_capability)) = run.await? else {
            return Ok(None);
        };
        Ok(row.arguments.clone().map(|arguments| Question {
            kind: row.progress.kind,
            run: spec,
            name: row.name.clone(),
            arguments,
            required_capability,
        }))
    }

    /// Takes back a question of another server.
    fn withdraw(self, task_id: &TaskId) {
        let kind = self.host.inner.passing.offered.lock().remove(task_id);
        if let Some(kind) = kind {
            self.release(kind, task_id);
        }
    }

    /// Leases a question by its document, or returns the lease that the same poll got before.
    pub(crate) async fn lease_passing(
        self,
        namespace: &Namespace,
        task_id: &TaskId,
        owner: &WorkerId,
        poll_request_id: Option<&str>,
    ) -> Result<Option<(Question, QuestionLease, QuestionTimes)>> {
        let now = self.host.now();
        let limits = &self.host.inner.config.questions;
        let lease = |row: Option<QuestionRow>| {
            let mut row = row.ok_or(Unchanged::Refused(QuestionRefusal::NotFound))?;
            let leased = row.progress.lease(owner, poll_request_id, limits, now);
            leased
                .map(|_| Some(row))
                .ok_or(Unchanged::Refused(QuestionRefusal::NotLeased))
        };
        let leased = self.change(key(namespace, task_id), lease).await;
        let row = match leased {
            Ok(row) => row,
            Err(Error::Question { .. }) => {
                // Another server has it, or it ended.
                self.withdraw(task_id);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.learn(&row).await?;
        let QuestionState::Leased(lease) = row.progress.state() else {
            return Ok(None);
        };
        let question = self.question(&row).await?;
        Ok(question.map(|question| (question, lease.clone(), row.progress.times)))
    }

    /// Accepts the answer to a question by its document; returns true if it repeats the accepted one.
    pub(crate) async fn answer_passing(
        self,
        kind: QuestionKind,
        holder: &QuestionHolder,
        answer: QuestionAnswer,
    ) -> Result<bool> {
        let now = self.host.now();
        let mut is_repeat = false;
        let accept = |row: Option<QuestionRow>| {
            let row = row.filter(|row| row.progress.kind == kind);
            let mut row = row.ok_or(Unchanged::Refused(QuestionRefusal::NotFound))?;
            let answered = row.progress.answer(holder, answer.clone(), now);
            is_repeat = answered.map_err(Unchanged::Refused)?;
            Ok(Some(row))
        };
        let row = self
            .change_of_kind(kind, key(&holder.namespace, &holder.task_id), accept)
            .await?;
        self.learn(&row).await?;
        Ok(is_repeat)
    }

    /// Returns the state of a question for its worker, by its document.
    pub(crate) async fn held_passing(
        self,
        kind: QuestionKind,
        holder: &QuestionHolder,
    ) -> Result<Held> {
        let store = &self.host.inner.store;
        let row = store.get::<QuestionRow>(&holder.namespace, holder.task_id.as_str());
        let row = row.await?.filter(|row| row.progress.kind == kind);
        let held = row
            .ok_or(QuestionRefusal::NotFound)
            .and_then(|row| row.progress.held(holder, self.host.now()));
        held.map_err(|refusal| Error::Question { kind, refusal })
    }

    /// Releases the questions that a worker leased through documents.
    pub(crate) async fn release_passing(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Result<()> {
        let store = &self.host.inner.store;
        for row in store.list::<QuestionRow>(Some(namespace)).await? {
            if !row.progress.is_leased_to(worker_id) {
                continue;
            }
            let release = |row: Option<QuestionRow>| {
                let mut row = row.ok_or(Unchanged::Refused(QuestionRefusal::NotFound))?;
                row.progress.release(worker_id);
                Ok(Some(row))
            };
            match self.change(document::key_of(&row), release).await {
                Ok(row) => self.learn(&row).await?,
                Err(Error::Question { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn change(
        self,
        key: DocumentKey,
        change: impl FnMut(Option<QuestionRow>) -> std::result::Result<Option<QuestionRow>, Unchanged>,
    ) -> Result<QuestionRow> {
        self.change_of_kind(QuestionKind::Query, key, change).await
    }

    /// Changes a document. A refusal is one about a question of this kind.
    async fn change_of_kind(
        self,
        kind: QuestionKind,
        key: DocumentKey,
        change: impl FnMut(Option<QuestionRow>) -> std::result::Result<Option<QuestionRow>, Unchanged>,
    ) -> Result<QuestionRow> {
        let refused = |refusal| Error::Question { kind, refusal };
        let store = &self.host.inner.store;
        match store.change(key, self.host.now(), change).await {
            Ok(Some(row)) => Ok(row),
            Ok(None) => Err(refused(QuestionRefusal::NotFound)),
            Err(Unchanged::Refused(refusal)) => Err(refused(refusal)),
            Err(Unchanged::Failed(error)) => Err(error.into()),
        }
    }
}

impl QuestionRow {
    /// Returns the row as it is kept after the caller has its outcome.
    fn ended(mut self) -> Self {
        self.name = String::new();
        self.arguments = None;
        self.progress.abandon();
        self.progress.take_answer();
        self
    }
}
