//! What the engine's last decision says about a job that waits in its queue.

use serde_json::Value;
use sluice_core::{Detail, Reason, Unadmitted};
use sluice_engine::{Account, Kind};

use super::advice::Advice;
use super::capacity::Around;
use super::checks;
use super::finding::{Code, Finding, Help, condition, holds};
use super::refusals;
use super::view::View;
use super::{MOST_LISTED, Question};
use crate::json::text;

/// The finding that other Workloads are ahead of this one, if so.
pub(super) fn behind(account: &Account) -> Option<Finding> {
    let before = account.position.as_ref()?.in_cluster_queue;
    let text = || format!("{before} workload(s) of its ClusterQueue come before it");
    (before > 0).then(|| Finding::new(Code::BehindOthers, text()))
}

impl Question<'_> {
    /// What an account says of the decision about a waiting Workload.
    pub(super) fn decided(&self, view: &View<'_>, workload: &Value, account: &Account) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some(decision) = &account.decision else { return found };
        found.extend(self.preempting(view, workload, decision));
        let around = self.around(view);
        match &decision.detail {
            Detail::Flavors { pod_sets, .. } => {
                found.extend(refusals::findings(around, workload, (account, decision), pod_sets));
            }
            Detail::PreemptionLoop { pod_sets, .. } => {
                found.push(held_back(decision));
                found.extend(refusals::findings(around, workload, (account, decision), pod_sets));
            }
            Detail::WaitingForPodsReady => found.push(self.unready(view)),
            Detail::Invalid(message) => found.push(misconfigured(message)),
            // The checks say more themselves.
            Detail::FailedChecks if checks::any_failed(workload) => {}
            Detail::FailedChecks
            | Detail::NamespaceMismatch
            | Detail::QueueInactive(_)
            | Detail::QueueMissing(_) => found.push(tried_again(
                decision,
                Advice::AwaitChange,
                "wait: something that it depends on has changed since, and it is tried again; if it persists, see the condition \
                 Active of its ClusterQueue",
            )),
            Detail::NoLongerFits | Detail::OverlappingTargets | Detail::DeferredFit => {
                found.push(tried_again(decision, Advice::AwaitCycle, "wait: it is tried again in the next cycle"));
            }
            Detail::Bypassed => found.push(tried_again(
                decision,
                Advice::AwaitEquivalent,
                "wait: it is retried when the missing quota of the equivalent Workload may be free",
            )),
        }
        found
    }

    /// Where nodes are looked up for the question.
    pub(super) fn around<'b>(&'b self, view: &'b View<'b>) -> Around<'b> {
        Around { view, configuration: &self.options.configuration, names_nodes: self.names_nodes }
    }

    /// The finding that names the jobs whose pods must become ready before anything else is admitted.
    fn unready(&self, view: &View<'_>) -> Finding {
        let all = view.of_kind(Kind::Workload);
        let unready = all.iter().filter(|(_, v)| {
            holds(v, "Admitted") && !holds(v, "PodsReady") && !holds(v, "Finished") && !holds(v, "Evicted")
        });
        let names: Vec<String> =
            unready.take(MOST_LISTED).map(|(r, _)| self.shown(&r.namespace, &r.name)).collect();
        let text = "nothing is admitted until all pods of what was admitted are ready (waitForPodsReady.blockAdmission)";
        let help = "wait until their pods are ready; if that takes long, ask why they are not";
        let mut finding =
            Finding::new(Code::WaitingForPodsReady, text).with(Help::words(Advice::AwaitPodsReady, help));
        finding.details = names;
        finding
    }

    /// The Workloads that it waits for, which are stopped to make room for it.
    fn preempting(&self, view: &View<'_>, workload: &Value, decision: &Unadmitted) -> Option<Finding> {
        let pending = match decision.detail {
            Detail::Flavors { pending_preemptions, .. } => pending_preemptions,
            _ => 0,
        };
        if pending == 0 && decision.reason != Reason::WaitingForPreemptedWorkloads {
            return None;
        }
        let uid = text(&workload["metadata"]["uid"]);
        let leaves = |v: &Value| {
            holds(v, "Evicted")
                && holds(v, "QuotaReserved")
                && condition(v, "Preempted").is_some_and(|c| text(&c["message"]).contains(uid))
        };
        let all = view.of_kind(Kind::Workload);
        let victims = all.iter().filter(|(_, v)| !uid.is_empty() && leaves(v));
        let names: Vec<String> =
            victims.take(MOST_LISTED).map(|(r, _)| self.shown(&r.namespace, &r.name)).collect();
        let text =
            format!("{} workload(s) are being stopped to make room for it", pending.max(names.len()).max(1));
        let help = "wait until their pods are gone; if that takes long, look for pods that do not terminate";
        let mut finding =
            Finding::new(Code::PreemptionPending, text).with(Help::words(Advice::AwaitVictims, help));
        finding.details = names;
        Some(finding)
    }

    /// The reason with which the manager refuses a Workload, if the virtual cluster would let it start.
    pub(super) fn refused_live(&self, workload: &Value) -> Option<(String, String)> {
        let live = self.live?;
        let decided = live.decision.as_ref().filter(|_| self.decides);
        if let Some(decision) = decided {
            return Some((decision.reason.as_str().to_owned(), decision.message()));
        }
        // A manager that is not the leader has only what the leader wrote.
        let written = condition(workload, "QuotaReserved").filter(|c| c["status"] == "False")?;
        let (reason, message) = (text(&written["reason"]), text(&written["message"]));
        refuses(reason, message).then(|| (reason.to_owned(), message.to_owned()))
    }
}

/// Whether a condition's reason and message say that a cycle refused the Workload. Without the gate for granular reasons, one reason stands for
/// several.
pub(super) fn refuses(reason: &str, message: &str) -> bool {
    let refusing = [
        Reason::Misconfigured,
        Reason::NoMatchingFlavor,
        Reason::WaitingForQuota,
        Reason::ExceedsMaxQuota,
        Reason::TopologyPlacementFailed,
        Reason::WaitingForCapacity,
        Reason::WaitingForPreemptedWorkloads,
        Reason::WaitingForPodsReady,
    ];
    let granular = refusing.into_iter().any(|refusing| reason == refusing.as_str());
    granular
        || (reason == "Inadmissible" && !message.is_empty())
        || (reason == "Pending" && message.starts_with("couldn't assign flavors"))
}

/// A Workload that the manager refuses, for a reason that no other finding is about.
pub(super) fn refused(reason: &str, message: &str) -> Finding {
    let text = format!("the manager refuses it ({reason}): {message}");
    let help = "wait until the manager has tried it again, or change what its message names";
    Finding::new(Code::Refused, text).with(Help::words(Advice::FollowManager, help))
}

fn held_back(decision: &Unadmitted) -> Finding {
    let message = decision.message();
    let text = match message.split_once("Preemption is held back: ") {
        Some((_, why)) => format!("preemption is held back: {why}"),
        None => message,
    };
    let help = "wait until quota is free without a preemption, or let the two differ in priority, or change the policy of \
                preemption of their queues: after any such change it is tried again";
    Finding::new(Code::PreemptionHeldBack, text).with(Help::words(Advice::EndPreemptionLoop, help))
}

fn misconfigured(message: &str) -> Finding {
    let text = format!("it cannot be admitted as it is: {message}");
    let help =
        "change the requests and limits of the pods, or the LimitRange of the namespace, as the message says";
    Finding::new(Code::Misconfigured, text).with(Help::words(Advice::CorrectRequests, help))
}

fn tried_again(decision: &Unadmitted, advice: Advice, help: &str) -> Finding {
    let text = format!("when it was last tried: {}", decision.message());
    Finding::new(Code::TriedAgain, text).with(Help::words(advice, help))
}

pub(super) fn pod_set<'a>(workload: &'a Value, name: &str) -> &'a Value {
    let mut sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
    sets.find(|set| set["name"] == name).unwrap_or(&Value::Null)
}
