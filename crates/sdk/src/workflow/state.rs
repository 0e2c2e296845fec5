//! State that a workflow shares with its handlers.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// A value that the workflow and its handlers read and change. Cheap to clone; all clones share one value.
///
/// Handlers borrow it: see [`WorkflowContext::on_query`](super::WorkflowContext::on_query).
///
/// # Panics
/// Every method panics if the value is already borrowed, as in `state.with(|_| state.get())` or in a handler that uses a
/// clone of its own state.
#[derive(Debug, Default)]
pub struct State<T>(Arc<Mutex<T>>);

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> State<T> {
    /// Creates state with an initial value.
    pub fn new(initial: T) -> Self {
        Self(Arc::new(Mutex::new(initial)))
    }

    /// Returns a copy of the value.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.borrow().clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.borrow() = value;
    }

    /// Calls `read` with the value and returns its result.
    pub fn with<U>(&self, read: impl FnOnce(&T) -> U) -> U {
        read(&self.borrow())
    }

    /// Calls `change` with the value and returns its result.
    pub fn update<U>(&self, change: impl FnOnce(&mut T) -> U) -> U {
        change(&mut self.borrow())
    }

    /// Locks the value. One thread at a time runs the code of a run, so a lock that is taken is taken by the caller itself:
    /// to wait for it would never end.
    fn borrow(&self) -> MutexGuard<'_, T> {
        self.0.try_lock().expect(
            "this State is already borrowed: do not use a State inside its own `with`, `update` or handler",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_value() {
        let state = State::new(1);
        let clone = state.clone();
        clone.set(2);
        assert_eq!(state.update(|value| std::mem::replace(value, 3)), 2);
        assert_eq!((state.get(), clone.with(|value| *value)), (3, 3));
    }

    #[test]
    #[should_panic(expected = "already borrowed")]
    fn a_second_borrow_panics_and_does_not_hang() {
        let state = State::new(1);
        state.with(|_| state.get());
    }
}
