//! Questions of the same kind that callers ask at the same time share one answer: while one statement is on its way, the next ones
//! gather. Nothing waits if nothing is on its way.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Error;

/// Questions of one statement. More would make the first wait for the last.
const TOGETHER_MAX: usize = 256;

/// Questions that wait for their answers.
pub struct Together<Q, A> {
    gathered: Mutex<Gathered<Q, A>>,
}

/// A question, and where its answer goes.
type Waiting<Q, A> = (Q, oneshot::Sender<Result<A, Error>>);

struct Gathered<Q, A> {
    waiting: Vec<Waiting<Q, A>>,
    /// A statement is on its way. Its task takes what gathers meanwhile.
    is_asking: bool,
}

impl<Q, A> Default for Together<Q, A> {
    fn default() -> Self {
        Self {
            gathered: Mutex::new(Gathered {
                waiting: Vec::new(),
                is_asking: false,
            }),
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Together<Q, A> {
    /// Returns the answer to a question. `answer` returns one answer for each question, in their order. It is called in a task of its
    /// own, for the questions of several callers: one of them may leave, and the others still wait.
    ///
    /// # Errors
    /// The error of `answer`, which all callers get.
    pub async fn ask<F>(
        self: &Arc<Self>,
        question: Q,
        answer: impl Fn(Vec<Q>) -> F + Send + Sync + 'static,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<Vec<A>, Error>> + Send,
    {
        let (sender, answered) = oneshot::channel();
        let begins = {
            let mut gathered = self.gathered.lock();
            gathered.waiting.push((question, sender));
            !std::mem::replace(&mut gathered.is_asking, true)
        };
        if begins {
            let asking = Asking(Arc::clone(self));
            tokio::spawn(async move { asking.run(answer).await });
        }
        let ended = || Error::Unavailable("the answer of the database was lost".to_owned());
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// The task that asks.
struct Asking<Q, A>(Arc<Together<Q, A>>);

impl<Q, A> Asking<Q, A> {
    async fn run<F>(self, answer: impl Fn(Vec<Q>) -> F)
    where
        F: Future<Output = Result<Vec<A>, Error>>,
    {
        while let Some(taken) = self.take() {
            let (questions, senders): (Vec<Q>, Vec<_>) = taken.into_iter().unzip();
            // The send fails if the caller left.
            match answer(questions).await {
                Ok(answers) => {
                    for (sender, answer) in senders.into_iter().zip(answers) {
                        let _ = sender.send(Ok(answer));
                    }
                }
                Err(error) => {
                    for sender in senders {
                        let _ = sender.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Takes what has gathered. Returns `None` if that is nothing; then the next question begins a new task.
    fn take(&self) -> Option<Vec<Waiting<Q, A>>> {
        let mut gathered = self.0.gathered.lock();
        if gathered.waiting.is_empty() {
            gathered.is_asking = false;
            return None;
        }
        let count = gathered.waiting.len().min(TOGETHER_MAX);
        Some(gathered.waiting.drain(..count).collect())
    }
}

impl<Q, A> Drop for Asking<Q, A> {
    /// A task that panicked leaves questions behind. Their callers get an error, and the next one begins a new task.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut gathered = self.0.gathered.lock();
            gathered.waiting.clear();
            gathered.is_asking = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn questions_that_meet_share_an_answer() {
        let together = Arc::<Together<u64, u64>>::default();
        let statements = Arc::<AtomicUsize>::default();
        let asked = (0..100).map(|number| {
            let (together, statements) = (Arc::clone(&together), Arc::clone(&statements));
            async move {
                let answer = move |questions: Vec<u64>| {
                    statements.fetch_add(1, Ordering::Relaxed);
                    async move {
                        tokio::task::yield_now().await;
                        Ok(questions.into_iter().map(|question| question * 2).collect())
                    }
                };
                together.ask(number, answer).await.unwrap()
            }
        });
        let answers = futures::future::join_all(asked).await;
        assert!(answers.into_iter().eq((0..100).map(|number| number * 2)));
        assert_eq!(statements.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn an_error_and_a_panic_reach_the_callers_and_the_next_question_is_answered() {
        let together = Arc::<Together<u64, u64>>::default();
        let failing = |_| async { Err(Error::Conflict) };
        assert!(matches!(
            together.ask(1, failing).await,
            Err(Error::Conflict)
        ));
        let panicking = |_| async { panic!("on purpose") };
        assert!(matches!(
            together.ask(1, panicking).await,
            Err(Error::Unavailable(_))
        ));
        let answering = |questions| async { Ok(questions) };
        assert_eq!(together.ask(7, answering).await.unwrap(), 7);
    }
}
