//! Scopes of cancellation: which calls a cancellation gives up.

/// Names a scope of one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopeId(usize);

#[derive(Debug)]
struct Scope {
    parent: Option<ScopeId>,
    /// A cancellation from outside stops here.
    shielded: bool,
    cancelled: bool,
}

/// All scopes of an execution. The first is the whole workflow.
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
                shielded: false,
                cancelled: false,
            }],
            current: Self::ROOT,
        }
    }

    /// A scope inside the current one.
    pub(crate) fn open(&mut self, shielded: bool) -> ScopeId {
        self.list.push(Scope {
            parent: Some(self.current),
            shielded,
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

    /// Whether cancelling `outer` reaches work in `inner`.
    pub(crate) fn reaches(&self, outer: ScopeId, inner: ScopeId) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            let scope = &self.list[at.0];
            match scope.parent {
                Some(parent) if !scope.shielded => at = parent,
                _ => return false,
            }
        }
    }

    /// Whether a new call in the current scope is given up before it is made: some scope around it below the root was
    /// cancelled. (After a cancellation of the whole workflow new calls work: they are its cleanup.)
    pub(crate) fn refuses_calls(&self) -> bool {
        let mut at = self.current;
        while at != Self::ROOT {
            let scope = &self.list[at.0];
            if scope.cancelled {
                return true;
            }
            match scope.parent {
                Some(parent) if !scope.shielded => at = parent,
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
        let outer = scopes.open(false);
        scopes.current = outer;
        let inner = scopes.open(false);
        let shield = scopes.open(true);
        scopes.current = shield;
        let behind = scopes.open(false);
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
        let scope = scopes.open(false);
        scopes.current = scope;
        scopes.cancel(Scopes::ROOT);
        assert!(!scopes.refuses_calls());
        scopes.cancel(scope);
        assert!(scopes.refuses_calls());
        let shield = scopes.open(true);
        scopes.current = shield;
        assert!(!scopes.refuses_calls());
    }
}
