//! State that a workflow shares with its handlers.

use std::sync::Arc;

use parking_lot::Mutex;

/// A value that the workflow and its handlers read and change. Cheap to clone; all clones are the same value.
#[derive(Debug, Default)]
pub struct State<T>(Arc<Mutex<T>>);

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> State<T> {
    /// The value at the beginning.
    pub fn new(initial: T) -> Self {
        Self(Arc::new(Mutex::new(initial)))
    }

    /// A copy of the value.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.0.lock().clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.0.lock() = value;
    }

    /// Looks at the value.
    pub fn with<U>(&self, look: impl FnOnce(&T) -> U) -> U {
        look(&self.0.lock())
    }

    /// Changes the value.
    pub fn update<U>(&self, change: impl FnOnce(&mut T) -> U) -> U {
        change(&mut self.0.lock())
    }
}
