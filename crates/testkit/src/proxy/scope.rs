//! Faults of the writes for one namespace and the cluster-wide objects of its name: behind one proxy, many runs can each be cut at their own step.

use std::collections::BTreeMap;

use http::Method;

use super::step::{self, Seen, Step};

/// A fault of one write in a scope. The connection breaks before its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which step it is.
    pub at: Step,
    /// Whether the API server still carries it out.
    pub carried_out: bool,
    /// Whether every write after it is lost as well, as if the writer had died.
    pub for_good: bool,
}

/// The result of a scope's writes.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The steps that were carried out, in the order of their answers.
    pub steps: Vec<Step>,
    /// Whether its fault has happened.
    pub struck: bool,
    fault: Option<Fault>,
    /// Whether the step of the fault was sent.
    sent: bool,
    /// The last write to each object.
    last: BTreeMap<String, String>,
    /// How often each thing was done.
    done: BTreeMap<String, usize>,
}

impl Scope {
    /// The step that a write is, unless it says nothing new.
    fn step(&self, seen: Seen) -> Option<Step> {
        let last = self.last.get(&seen.object);
        let new = seen.by_chance || last.map_or(!seen.undecided, |last| *last != seen.what);
        let nth = self.done.get(&seen.what).map_or(1, |done| done + 1);
        // A status that decides nothing is written when there is time, or not at all.
        new.then_some(Step { what: seen.what, nth, by_chance: seen.by_chance || seen.undecided })
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Lose,
    CarryOutAndLose,
}

/// A request to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a [u8],
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

    /// The scope of a write, which its path names as a namespace or as an object, and what may be a step in it.
    fn of(&mut self, sent: Sent<'_>) -> Option<(&mut Scope, Option<Seen>)> {
        let name = sent.path.split('/').find(|part| self.0.contains_key(*part))?;
        let seen = step::of(name, sent.method, sent.path, sent.query, sent.body);
        Some((self.0.get_mut(name)?, seen))
    }

    /// Judges a write before it is sent on.
    pub(super) fn judge(&mut self, sent: Sent<'_>) -> Verdict {
        let Some((scope, seen)) = self.of(sent) else { return Verdict::Pass };
        let Some(fault) = &scope.fault else { return Verdict::Pass };
        if scope.sent {
            return if fault.for_good { Verdict::Lose } else { Verdict::Pass };
        }
        let step = seen.and_then(|seen| scope.step(seen));
        if step.as_ref() != Some(&fault.at) {
            return Verdict::Pass;
        }
        scope.sent = true;
        // A write that is carried out counts as hit when it was answered.
        scope.struck = !fault.carried_out;
        if fault.carried_out { Verdict::CarryOutAndLose } else { Verdict::Lose }
    }

    /// Notes a write that the API server has answered; says what becomes of the answer. A refusal gets through: the step is yet to come.
    pub(super) fn note(&mut self, sent: Sent<'_>, is_success: bool, verdict: Verdict) -> Verdict {
        let Some((scope, seen)) = self.of(sent) else { return verdict };
        if !is_success {
            scope.sent &= verdict != Verdict::CarryOutAndLose;
            return Verdict::Pass;
        }
        scope.struck |= verdict == Verdict::CarryOutAndLose;
        let Some(seen) = seen else { return verdict };
        let (object, what) = (seen.object.clone(), seen.what.clone());
        if let Some(step) = scope.step(seen) {
            scope.last.insert(object, what.clone());
            *scope.done.entry(what).or_default() += 1;
            scope.steps.push(step);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "/apis/batch/v1/namespaces/a/jobs/x";
    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/a/events";
    const QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/a/status";

    const START: &[u8] = br#"{"spec": {"suspend": false}}"#;
    const STOP: &[u8] = br#"{"spec": {"suspend": true}}"#;

    fn sent<'a>(path: &'a str, body: &'a [u8]) -> Sent<'a> {
        Sent { method: &Method::PATCH, path, query: "", body }
    }

    fn started(nth: usize) -> Step {
        Step { what: "PATCH jobs/x: /spec/suspend=false".to_owned(), nth, by_chance: false }
    }

    fn scopes(at: Step, carried_out: bool, for_good: bool) -> Scopes {
        let mut scopes = Scopes::default();
        scopes.begin("a", Some(Fault { at, carried_out, for_good }));
        scopes
    }

    /// Sends a write that gets through.
    fn send(scopes: &mut Scopes, body: &[u8]) {
        assert_eq!(scopes.judge(sent(JOB, body)), Verdict::Pass);
        assert_eq!(scopes.note(sent(JOB, body), true, Verdict::Pass), Verdict::Pass);
    }

    #[test]
    fn a_run_may_do_without_a_status_that_decides_nothing() {
        let status = "/apis/kueue.x-k8s.io/v1beta2/namespaces/the-play/workloads/x/status";
        let mut scopes = Scopes::default();
        scopes.begin("the-play", None);
        for state in ["Retry", "Pending"] {
            let body = serde_json::json!({"status": {"admissionChecks": [{"name": "c", "state": state}]}});
            let body = body.to_string();
            assert_eq!(scopes.note(sent(status, body.as_bytes()), true, Verdict::Pass), Verdict::Pass);
        }
        let steps = scopes.get("the-play").steps.into_iter().map(|step| (step.what, step.by_chance));
        let said = |what: &str| format!("PATCH workloads/x/status: {what}");
        assert_eq!(steps.collect::<Vec<_>>(), [(said("check Retry after 0"), false), (said(""), true)]);
    }

    #[test]
    fn one_step_is_lost_and_others_pass() {
        let mut scopes = scopes(started(2), false, false);
        send(&mut scopes, START);
        send(&mut scopes, START);
        assert_eq!(scopes.judge(sent("/apis/batch/v1/namespaces/b/jobs/x", START)), Verdict::Pass);
        send(&mut scopes, STOP);
        assert!(!scopes.get("a").struck, "the second of the first two said nothing new");
        assert_eq!(scopes.judge(sent(JOB, START)), Verdict::Lose);
        assert!(scopes.get("a").struck);
        send(&mut scopes, START);
        let whats: Vec<_> = scopes.get("a").steps.into_iter().map(|step| (step.what, step.nth)).collect();
        let stopped = "PATCH jobs/x: /spec/suspend=true".to_owned();
        assert_eq!(whats, [(started(1).what, 1), (stopped, 1), (started(2).what, 2)]);
    }

    #[test]
    fn a_refused_write_is_not_the_step() {
        let mut scopes = scopes(started(1), true, true);
        assert_eq!(scopes.judge(sent(JOB, START)), Verdict::CarryOutAndLose);
        assert_eq!(scopes.note(sent(JOB, START), false, Verdict::CarryOutAndLose), Verdict::Pass);
        assert!(!scopes.get("a").struck);
        assert_eq!(scopes.judge(sent(JOB, START)), Verdict::CarryOutAndLose);
    }

    #[test]
    fn a_dead_writer_writes_nothing_more_until_healed() {
        let mut scopes = scopes(started(1), true, true);
        assert_eq!(scopes.judge(sent(JOB, START)), Verdict::CarryOutAndLose);
        assert!(!scopes.get("a").struck, "not before it is answered");
        assert_eq!(scopes.note(sent(JOB, START), true, Verdict::CarryOutAndLose), Verdict::CarryOutAndLose);
        assert!(scopes.get("a").struck);
        assert_eq!(scopes.judge(sent(EVENTS, b"{}")), Verdict::Lose);
        assert_eq!(scopes.judge(sent(QUEUE, b"{}")), Verdict::Lose);
        scopes.heal("a");
        assert_eq!(scopes.judge(sent(JOB, START)), Verdict::Pass);
        assert_eq!(scopes.get("a").steps, [started(1)]);
    }
}
