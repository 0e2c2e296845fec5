//! Waiting for several things at once, in an order that every replay repeats.
//!
//! `tokio::select!` and `futures::select!` choose at random when two branches are ready. These look at their futures in the
//! order they are written.

use std::pin::Pin;
use std::task::Poll;

pub use futures::future::{join_all, try_join_all};
pub use futures::{join, try_join};

/// Which of two was ready first.
#[derive(Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    First(A),
    /// The second.
    Second(B),
}

/// Waits for the first of two; the first one goes before when both are ready. The loser is dropped.
pub async fn select<A: Future, B: Future>(first: A, second: B) -> Either<A::Output, B::Output> {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = first.as_mut().poll(context) {
            return Poll::Ready(Either::First(output));
        }
        second.as_mut().poll(context).map(Either::Second)
    })
    .await
}

/// Waits for the first of many. Its index, its output, and the others in their order.
///
/// # Panics
/// Without futures.
pub async fn select_all<F: Future + Unpin>(
    futures: impl IntoIterator<Item = F>,
) -> (F::Output, usize, Vec<F>) {
    let mut futures: Vec<F> = futures.into_iter().collect();
    assert!(
        !futures.is_empty(),
        "select_all needs something to wait for"
    );
    let (output, index) = std::future::poll_fn(|context| {
        for (index, future) in futures.iter_mut().enumerate() {
            if let Poll::Ready(output) = Pin::new(future).poll(context) {
                return Poll::Ready((output, index));
            }
        }
        Poll::Pending
    })
    .await;
    futures.remove(index);
    (output, index, futures)
}
