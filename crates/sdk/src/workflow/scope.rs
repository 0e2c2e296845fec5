//! Cancellation scopes: which calls a cancellation ends.

/// The id of a scope in one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopeId(usize);

/// Whether a cancellation of an outer scope reaches the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    Plain,
    /// A cancellation of an outer scope does not reach it.
    Shielded,
}

#[derive(Debug)]
struct Scope {
    parent: Option<ScopeId>,
    kind: ScopeKind,
    cancelled: bool,
}

/// All scopes of an execution. The first one is the whole workflow.
#[derive(Debug)]
pub(crate) struct Scopes {
    list: Vec<Scope>,
    /// The scope of the code that runs right now.
    pub(crate) current: ScopeId,
}

impl Scopes {
    pub(crate) const ROOT: ScopeId = ScopeId(0);

    pub(crate) fn new() -> Self {
        Self {
            list: vec![Scope {
                parent: None,
                kind: ScopeKind::Plain,
                cancelled: false,
            }],
            current: Self::ROOT,
        }
    }

    /// Opens a scope inside the current one.
    pub(crate) fn open(&mut self, kind: ScopeKind) -> ScopeId {
        self.list.push(Scope {
            parent: Some(self.current),
            kind,
            cancelled: false,
        });
        ScopeId(self.list.len() - 1)
    }

    pub(crate) fn cancel(&mut self, scope: ScopeId) {
        self.list[scope.0].cancelled = true;
    }

    pub(crate) fn is_cancelled(&self, scope: ScopeId) -> bool {
        self.list[scope.0].cancelled
    }

    /// Returns whether cancelling `outer` reaches calls in `inner`.
    pub(crate) fn reaches(&self, outer: ScopeId, inner: ScopeId) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            let scope = &self.list[at.0];
            match scope.parent {
                Some(parent) if scope.kind == ScopeKind::Plain => at = parent,
                _ => return false,
            }
        }
    }

    /// Returns whether a new call in the current scope is refused because a scope around it, below the root, was cancelled.
    /// After a cancellation of the whole workflow, new calls are allowed: they clean up.
    pub(crate) fn refuses_calls(&self) -> bool {
        let mut at = self.current;
        while at != Self::ROOT {
            let scope = &self.list[at.0];
            if scope.cancelled {
                return true;
            }
            match scope.parent {
                Some(parent) if scope.kind == ScopeKind::Plain => at = parent,
                _ => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_reaches_inner_scopes_up_to_a_shield() {
        let mut scopes = Scopes::new();
        let outer = scopes.open(ScopeKind::Plain);
        scopes.current = outer;
        let inner = scopes.open(ScopeKind::Plain);
        let shield = scopes.open(ScopeKind::Shielded);
        scopes.current = shield;
        let behind = scopes.open(ScopeKind::Plain);
        assert!(scopes.reaches(Scopes::ROOT, inner));
        assert!(scopes.reaches(outer, inner));
        assert!(!scopes.reaches(inner, outer));
        assert!(!scopes.reaches(outer, shield));
        assert!(!scopes.reaches(Scopes::ROOT, behind));
        assert!(scopes.reaches(shield, behind));
    }

    #[test]
    fn calls_in_a_cancelled_scope_are_refused_but_not_after_the_workflows_own_cancellation() {
        let mut scopes = Scopes::new();
        let scope = scopes.open(ScopeKind::Plain);
        scopes.current = scope;
        scopes.cancel(Scopes::ROOT);
        assert!(!scopes.refuses_calls());
        scopes.cancel(scope);
        assert!(scopes.refuses_calls());
        let shield = scopes.open(ScopeKind::Shielded);
        scopes.current = shield;
        assert!(!scopes.refuses_calls());
    }
}
