//! How far a Workload has come and what it waits for, according to its spec and status.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::conditions::reason;
use sluice_engine::{Kind, ObjectRef};

use super::MOST_LISTED;
use super::advice::Advice;
use super::checks;
use super::finding::{Code, Finding, Help, State, condition, holds};
use super::patch::patch_of;
use super::view::View;
use crate::duration::show;
use crate::json::text;

/// How far a Workload has come.
pub(super) fn state(workload: &Value) -> State {
    let reserved = holds(workload, "QuotaReserved");
    if holds(workload, "Finished") {
        State::Finished
    } else if holds(workload, "Evicted") && reserved {
        State::Stopping
    } else if holds(workload, "Admitted") {
        State::Admitted
    } else if reserved {
        State::Checking
    } else if workload["spec"]["active"] == false {
        State::Deactivated
    } else {
        State::Waiting
    }
}

/// Findings from the spec and the status of a Workload.
pub(super) fn findings(
    view: &View<'_>,
    workload: &Value,
    state: State,
    now: Timestamp,
    names_nodes: bool,
) -> Vec<Finding> {
    let mut found = Vec::new();
    if state == State::Finished {
        found.extend(condition(workload, "Finished").map(|c| of(Code::Ended, "it is over", c)));
        return found;
    }
    found.extend(inactive(workload));
    found.extend(evicted(workload, state));
    if state == State::Waiting {
        found.extend(pods_of_group_missing(workload));
    }
    found.extend(backing_off(workload, now));
    found.extend(gated(workload));
    found.extend(on_hold(workload));
    found.extend(nodes_lost(workload, names_nodes));
    found.extend(checks::findings(view, workload, state, now));
    if state == State::Checking {
        found.extend(nodes_not_chosen(workload));
    }
    if state == State::Admitted {
        let waits = condition(workload, "PodsReady").filter(|c| c["status"] == "False");
        found.extend(waits.map(|c| of(Code::PodsNotReady, "not all of its pods are ready", c)));
    }
    found
}

fn of(code: Code, what: &str, condition: &Value) -> Finding {
    let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
    Finding::new(code, format!("{what} ({reason}): {message}"))
}

fn reference(workload: &Value) -> ObjectRef {
    crate::object::reference(Kind::Workload, workload)
}

fn inactive(workload: &Value) -> Option<Finding> {
    if workload["spec"]["active"] != false {
        return None;
    }
    let reference = reference(workload);
    let target = condition(workload, "DeactivationTarget").filter(|c| c["status"] == "True");
    // `DeactivatedDueTo…`: a plain `Deactivated` is what a user wished.
    let by_us = |why: &str| why != reason::DEACTIVATED && why.starts_with(reason::DEACTIVATED);
    let evicted =
        condition(workload, "Evicted").filter(|c| c["status"] == "True" && by_us(text(&c["reason"])));
    let why = match target.or(evicted) {
        Some(c) => format!("by the manager ({}): {}", text(&c["reason"]), text(&c["message"])),
        None => "by a user or another program, which set spec.active to false".to_owned(),
    };
    let help = Help::command(
        Advice::Activate,
        "fix the cause, then activate the Workload again",
        format!("kubectl kueue resume workload {} -n {}", reference.name, reference.namespace),
    );
    let patch = patch_of(&reference, json!({"spec": {"active": true}}));
    Some(Finding::new(Code::Inactive, format!("it is deactivated {why}")).with(help.patch(patch)))
}

fn evicted(workload: &Value, state: State) -> Option<Finding> {
    let condition = condition(workload, "Evicted").filter(|c| c["status"] == "True")?;
    let what = match state {
        State::Stopping => "it is evicted, and keeps its quota until its pods are gone",
        _ => "it was evicted",
    };
    let since = text(&condition["lastTransitionTime"]);
    Some(of(Code::EvictedBefore, what, condition).detail(format!("since {since}")))
}

/// The reason of the condition is that of the eviction for which the pods were deleted, so it does not say what is missing.
fn pods_of_group_missing(workload: &Value) -> Option<Finding> {
    if !holds(workload, "WaitingForReplacementPods") {
        return None;
    }
    let text =
        "pods of its group were deleted or have failed; it is queued again when they have been replaced";
    let help = "create the missing pods of the group again, unless their controller does";
    Some(Finding::new(Code::PodGroupIncomplete, text).with(Help::words(Advice::RecreatePods, help)))
}

fn backing_off(workload: &Value, now: Timestamp) -> Option<Finding> {
    let requeue = &workload["status"]["requeueState"];
    let at: Timestamp = text(&requeue["requeueAt"]).parse().ok()?;
    let left = at.as_second().saturating_sub(now.as_second());
    if left <= 0 {
        return None;
    }
    let count = requeue["count"].as_i64().unwrap_or(0);
    let text = format!(
        "it is retried at {at}, in {}; it was requeued {count} time(s)",
        show(left.saturating_mul(1000))
    );
    Some(
        Finding::new(Code::BackingOff, text)
            .with(Help::words(Advice::AwaitBackoff, format!("wait until {at}"))),
    )
}

fn gated(workload: &Value) -> Option<Finding> {
    let gates = text(&workload["metadata"]["annotations"][sluice_api::labels::ADMISSION_GATED_BY]);
    if gates.trim().is_empty() {
        return None;
    }
    let text = format!("the annotation {} holds it back: {gates}", sluice_api::labels::ADMISSION_GATED_BY);
    let help = format!("the program that set it must remove {gates} from the annotation of the job");
    Some(Finding::new(Code::Gated, text).with(Help::words(Advice::RemoveGate, help)))
}

fn on_hold(workload: &Value) -> Option<Finding> {
    let waits = condition(workload, "QuotaReserved").filter(|c| c["status"] == "False")?;
    if waits["reason"] != reason::ON_HOLD {
        return None;
    }
    let owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let owner = owners.into_iter().find(|owner| owner["controller"] == true);
    let job =
        owner.map_or_else(|| "job".to_owned(), |o| format!("{} {}", text(&o["kind"]), text(&o["name"])));
    let finding = Finding::new(Code::OnHold, format!("its job holds it: {}", text(&waits["message"])));
    Some(finding.with(Help::words(Advice::ScaleUp, format!("scale the {job} up again"))))
}

fn nodes_lost(workload: &Value, names_nodes: bool) -> Option<Finding> {
    let nodes = workload["status"]["unhealthyNodes"].as_array().filter(|nodes| !nodes.is_empty())?;
    let names: Vec<&str> = nodes.iter().take(MOST_LISTED).map(|n| text(&n["name"])).collect();
    let more = nodes.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let which = if names_nodes { format!(": {}{more}", names.join(", ")) } else { String::new() };
    let text = format!("it lost {} node(s){which}", nodes.len());
    let help = Help::words(Advice::RepairLostNodes, "repair the nodes, or add others on which its pods fit");
    Some(Finding::new(Code::NodesLost, text).with(help))
}

fn nodes_not_chosen(workload: &Value) -> Option<Finding> {
    let sets = workload["status"]["admission"]["podSetAssignments"].as_array()?;
    let waiting: Vec<&str> = sets
        .iter()
        .filter(|s| s["delayedTopologyRequest"] == "Pending")
        .map(|s| text(&s["name"]))
        .take(MOST_LISTED)
        .collect();
    (!waiting.is_empty()).then(|| {
        let text = format!("nodes are chosen once the checks are ready, for pod set {}", waiting.join(", "));
        Finding::new(Code::NodesNotChosen, text)
    })
}
