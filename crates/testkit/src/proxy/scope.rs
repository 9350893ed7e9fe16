//! Faults for the writes that concern one namespace and the cluster-wide objects of its name: many plays can be cut at once,
//! each after another write, behind one proxy.

use std::collections::BTreeMap;

use super::Write;

/// Whether a write is counted: the status of queues is not, as it is nothing but a sum over Workloads and is written whenever there is time.
fn counts(path: &str) -> bool {
    let queue = path.contains("/clusterqueues/") || path.contains("/localqueues/");
    let sum = queue && path.ends_with("/status");
    !sum && !super::is_housekeeping(path)
}

/// What happens to one write of a scope. Its answer never comes: the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which write it is, counted from 1. Housekeeping and the status of queues do not count.
    pub at: usize,
    /// Whether the API server still carries it out.
    pub carried_out: bool,
    /// Whether every write after it is lost as well, as if the writer had died.
    pub for_good: bool,
}

/// What a scope's writes came to.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Those that count and were carried out, in the order of their answers.
    pub writes: Vec<Write>,
    /// Whether its fault has happened.
    pub struck: bool,
    fault: Option<Fault>,
    sent: usize,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Lose,
    CarryOutAndLose,
}

/// The scopes by name.
#[derive(Debug, Default)]
pub(super) struct Scopes(BTreeMap<String, Scope>);

impl Scopes {
    /// Counts from now on.
    pub(super) fn begin(&mut self, name: &str, fault: Option<Fault>) {
        self.0.insert(name.to_owned(), Scope { fault, ..Scope::default() });
    }

    /// Ends the fault; what was counted stays.
    pub(super) fn heal(&mut self, name: &str) {
        if let Some(scope) = self.0.get_mut(name) {
            scope.fault = None;
        }
    }

    pub(super) fn get(&self, name: &str) -> Scope {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// The scope of a path: the one that it names, as a namespace or as an object.
    fn of(&mut self, path: &str) -> Option<&mut Scope> {
        let name = path.split('/').find(|part| self.0.contains_key(*part))?.to_owned();
        self.0.get_mut(&name)
    }

    /// Judges a write before it is sent on.
    pub(super) fn judge(&mut self, path: &str) -> Verdict {
        let Some(scope) = self.of(path) else { return Verdict::Pass };
        let Some(fault) = scope.fault else { return Verdict::Pass };
        if scope.sent >= fault.at && fault.for_good {
            return Verdict::Lose;
        }
        if !counts(path) {
            return Verdict::Pass;
        }
        scope.sent += 1;
        if scope.sent != fault.at {
            return Verdict::Pass;
        }
        // One that is carried out has happened when it was answered.
        scope.struck = !fault.carried_out;
        if fault.carried_out { Verdict::CarryOutAndLose } else { Verdict::Lose }
    }

    /// Notes a write that the API server has answered.
    pub(super) fn note(&mut self, write: &Write, verdict: Verdict) {
        if !counts(&write.path) {
            return;
        }
        let Some(scope) = self.of(&write.path) else { return };
        scope.writes.push(write.clone());
        scope.struck |= verdict == Verdict::CarryOutAndLose;
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const JOB: &str = "/apis/batch/v1/namespaces/a/jobs/x";
    const CHECK: &str = "/apis/kueue.x-k8s.io/v1beta2/admissionchecks/a/status";
    const QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/a/status";

    fn scopes(fault: Fault) -> Scopes {
        let mut scopes = Scopes::default();
        scopes.begin("a", Some(fault));
        scopes
    }

    #[test]
    fn one_write_is_lost_and_others_pass() {
        let mut scopes = scopes(Fault { at: 2, carried_out: false, for_good: false });
        assert_eq!(scopes.judge(JOB), Verdict::Pass);
        assert_eq!(scopes.judge("/apis/batch/v1/namespaces/b/jobs/a-job"), Verdict::Pass);
        assert_eq!(scopes.judge("/apis/events.k8s.io/v1/namespaces/a/events"), Verdict::Pass);
        assert_eq!(scopes.judge(QUEUE), Verdict::Pass);
        assert_eq!(scopes.judge(CHECK), Verdict::Lose);
        assert!(scopes.get("a").struck);
        assert_eq!(scopes.judge(CHECK), Verdict::Pass);
    }

    #[test]
    fn whoever_is_dead_writes_nothing_more_until_healed() {
        let mut scopes = scopes(Fault { at: 1, carried_out: true, for_good: true });
        assert_eq!(scopes.judge(JOB), Verdict::CarryOutAndLose);
        assert!(!scopes.get("a").struck, "not before it is answered");
        let write = Write { method: Method::PATCH, path: JOB.to_owned(), query: String::new(), status: 200 };
        scopes.note(&write, Verdict::CarryOutAndLose);
        assert!(scopes.get("a").struck);
        assert_eq!(scopes.judge("/apis/events.k8s.io/v1/namespaces/a/events"), Verdict::Lose);
        assert_eq!(scopes.judge(QUEUE), Verdict::Lose);
        scopes.heal("a");
        assert_eq!(scopes.judge(JOB), Verdict::Pass);
        assert_eq!(scopes.get("a").writes.len(), 1);
    }
}
