//! Bodies that report to the watch when they end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::exchange::{Exchange, Open};
use super::watched::Verdict;

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
    exchange: Exchange,
    has_ended: bool,
}

impl Received {
    pub(super) fn new(body: Incoming, exchange: Exchange) -> Self {
        let has_ended = body.is_end_stream();
        Self {
            body,
            exchange,
            has_ended,
        }
    }

    fn end(&mut self) {
        if !self.has_ended {
            self.has_ended = true;
            self.exchange.body_ended();
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
            match self.exchange.verdict(context.waker()) {
                Verdict::None => {}
                Verdict::TimedOut => return Poll::Ready(Some(Err(HalfSent::TimedOut.into()))),
                Verdict::Stopping => return Poll::Ready(Some(Err(HalfSent::Stopping.into()))),
            }
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.exchange.body_received(bytes);
        }
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

/// Bytes of a response that are given to an HTTP/2 stream at a time. A piece is buffered as soon as its reader has room for one byte, so
/// pieces are as large as a frame and no larger.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// The body of a response.
pub(super) struct Answered {
    body: axum::body::Body,
    open: Open,
    /// The rest of a frame that is given in pieces.
    rest: Bytes,
}

impl Answered {
    pub(super) fn new(body: axum::body::Body, open: Open) -> Self {
        if !body.is_end_stream() {
            open.exchange().response_waits(0);
        }
        Self {
            body,
            open,
            rest: Bytes::new(),
        }
    }

    /// Returns the next piece of the rest.
    fn piece(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.len().min(PIECE_BYTES_MAX);
        self.open.exchange().response_waits(bytes);
        Frame::data(self.rest.split_to(bytes))
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.open.exchange().is_multiplexed() {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            self.open.exchange().reader_waits();
            return Poll::Pending;
        };
        Poll::Ready(match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                self.rest = data;
                Some(Ok(self.piece()))
            }
            Some(Ok(Err(other))) => Some(Ok(other)),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let mut hint = self.body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
