//! Waiting for several futures, deterministically.
//!
//! `tokio::select!` and `futures::select!` choose at random when two branches are ready. The functions here poll their futures
//! in the given order.

use std::pin::Pin;
use std::task::Poll;

pub use futures::future::{join_all, try_join_all};
pub use futures::{join, try_join};

/// The output of the first of two futures to complete.
#[derive(Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The output of the first future.
    First(A),
    /// The output of the second future.
    Second(B),
}

/// Waits until one of two futures completes, and returns its output. If both are ready, the first one counts. The other is
/// dropped.
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

/// Waits until one of the futures completes. Returns its output, its index, and the other futures in their order.
///
/// # Panics
/// If there are no futures.
pub async fn select_all<F: Future + Unpin>(
    futures: impl IntoIterator<Item = F>,
) -> (F::Output, usize, Vec<F>) {
    let mut futures: Vec<F> = futures.into_iter().collect();
    assert!(!futures.is_empty(), "select_all needs at least one future");
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
