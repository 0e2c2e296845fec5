//! Bodies that report to the watch when they end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::watch::{Verdict, Watched};

/// The body was not complete when the server stopped reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfSent {
    TimedOut,
    Stopping,
}

impl HalfSent {
    /// Returns this error if `error` is one or was caused by one.
    pub(crate) fn find(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(*found);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for HalfSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the rest of the body did not arrive in time",
            Self::Stopping => "the server is stopping",
        })
    }
}

impl std::error::Error for HalfSent {}

/// The body of a request.
pub(super) struct Received {
    body: Incoming,
    connection: Arc<Watched>,
    has_ended: bool,
}

impl Received {
    pub(super) fn new(body: Incoming, connection: Arc<Watched>) -> Self {
        let has_ended = body.is_end_stream();
        Self {
            body,
            connection,
            has_ended,
        }
    }

    fn end(&mut self) {
        if !self.has_ended {
            self.has_ended = true;
            self.connection.body_ended();
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if !self.has_ended {
            match self.connection.verdict(context.waker()) {
                Verdict::None => {}
                Verdict::TimedOut => return Poll::Ready(Some(Err(HalfSent::TimedOut.into()))),
                Verdict::Stopping => return Poll::Ready(Some(Err(HalfSent::Stopping.into()))),
            }
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.end();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.end();
    }
}

/// The body of a response.
pub(super) struct Answered {
    body: axum::body::Body,
    connection: Arc<Watched>,
}

impl Answered {
    pub(super) fn new(body: axum::body::Body, connection: Arc<Watched>) -> Self {
        Self { body, connection }
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.connection.answered();
    }
}
