//! What the tests of the runner ask a fake, in milliseconds.

use longhaul_protocol::conductor::TaskResult;

pub(super) use crate::testing::{FakeTasks, FakeUpdate as Update};

use crate::client::Poll;

impl FakeTasks {
    /// Returns the polls with the milliseconds at which they came.
    pub(super) fn polled(&self) -> Vec<(u128, Poll)> {
        let polls = self.polls().into_iter();
        polls.map(|sent| (sent.at.as_millis(), sent.poll)).collect()
    }

    /// Returns the milliseconds between the polls.
    pub(super) fn poll_gaps(&self) -> Vec<u128> {
        let at: Vec<_> = self.polled().into_iter().map(|(at, _)| at).collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// Returns the updates: when, by which request, and what.
    pub(super) fn reported(&self) -> Vec<(u128, &'static str, TaskResult)> {
        let results = self.results().into_iter();
        results
            .map(|sent| (sent.at.as_millis(), sent.by, sent.result))
            .collect()
    }
}
