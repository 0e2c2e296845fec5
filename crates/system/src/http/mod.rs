//! The HTTP calls of definitions.
//!
//! [`HttpCalls`] makes the call of an HTTP task and turns the answer into the end of the task. Each call has a connection of its own:
//! no cookies, no proxy, and no connection that another task opened.
//!
//! * `request.rs` reads the input of the task.
//! * `addresses.rs` says which addresses may be called.
//! * `connect.rs` resolves a name once and connects to an address that it has checked.
//! * `exchange.rs` sends one request and reads its answer.
//! * `answer.rs` turns an answer into the output of the task.

mod addresses;
mod answer;
mod connect;
mod exchange;
mod request;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul_host::{RunTask, TaskEnd};
use longhaul_protocol::conductor::{Object, ResultStatus};

pub use addresses::is_public;
pub use connect::{Resolve, SystemResolver};

use answer::Answer;
use request::Request;

/// The type of the tasks.
pub const HTTP_TASK: &str = "HTTP";

/// Redirects of one call. Browsers follow more; a service that needs more than these is broken.
const REDIRECTS_MAX: usize = 5;

/// The largest answer in bytes. It is stored with the task, whose output may have this size.
pub const ANSWER_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The longest call, with its redirects. Time-outs are for silence, and an answer could otherwise come byte by byte without end.
const CALL_MAX: Duration = Duration::from_secs(30 * 60);

/// Makes the calls of HTTP tasks.
#[derive(Clone)]
pub struct HttpCalls {
    addresses: Addresses,
    resolver: Arc<dyn Resolve>,
    answer_bytes_max: usize,
}

/// Which addresses may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// Every address, also those of this machine and of private networks.
    #[default]
    All,
    /// Only addresses of the public internet.
    Public,
}

impl HttpCalls {
    /// Returns calls to these addresses, with the names that the system knows.
    pub fn new(addresses: Addresses) -> Self {
        Self {
            addresses,
            resolver: Arc::new(SystemResolver),
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }

    /// Resolves names in another way.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Reads at most this many bytes of an answer.
    #[must_use]
    pub fn with_answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// Makes the call that the input of a task describes.
    pub async fn call(&self, input: &Object) -> TaskEnd {
        let called = match Request::of(input) {
            Ok(request) => tokio::time::timeout(CALL_MAX, self.follow(request))
                .await
                .unwrap_or_else(|_| {
                    Err(format!(
                        "The call took longer than {} minutes",
                        CALL_MAX.as_secs() / 60
                    ))
                }),
            Err(reason) => Err(reason),
        };
        let (status, reason, output) = match called {
            Ok(answer) if answer.is_success() => {
                (ResultStatus::Completed, None, answer.into_output())
            }
            Ok(answer) => {
                let reason = answer.failure();
                (ResultStatus::Failed, Some(reason), answer.into_output())
            }
            Err(reason) => {
                let output = Answer::none(&reason).into_output();
                (ResultStatus::Failed, Some(reason), output)
            }
        };
        TaskEnd {
            status,
            reason,
            output,
        }
    }

    /// Sends a request, and follows redirects. Each is checked and connected like the first.
    async fn follow(&self, mut request: Request) -> Result<Answer, String> {
        for _ in 0..=REDIRECTS_MAX {
            let answer = exchange::send(self, &request).await?;
            let Some(location) = answer.redirect() else {
                return Ok(answer);
            };
            request.redirect(answer.status(), location)?;
        }
        Err(format!("The call had more than {REDIRECTS_MAX} redirects"))
    }
}

impl RunTask for HttpCalls {
    fn run<'a>(&'a self, input: &'a Object) -> BoxFuture<'a, TaskEnd> {
        self.call(input).boxed()
    }
}
