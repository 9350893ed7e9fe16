//! What is being deleted (a Workload, its job, or one of its queues), and what blocks the deletion.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};

use super::MOST_LISTED;
use super::advice::Advice;
use super::finding::{Code, Finding, Help};
use super::view::View;
use crate::json::text;

/// Whether an object is being deleted.
pub(super) fn is(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The finding that a Workload or its job is being deleted.
pub(super) fn own(object: &Value) -> Option<Finding> {
    let help =
        "the programs that set these finalizers must remove them. Until then it exists, but does not start";
    finding(Code::BeingDeleted, object, "", (Advice::AwaitFinalizers, help))
}

fn finding(code: Code, object: &Value, more: &str, (advice, help): (Advice, &str)) -> Option<Finding> {
    if !is(object) {
        return None;
    }
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let since = text(&object["metadata"]["deletionTimestamp"]);
    let finding = Finding::new(code, format!("the {kind} {name} is being deleted since {since}{more}"));
    Some(finding.detail(held(object)).with(Help::words(advice, help)))
}

/// The finalizers of an object; a Namespace has them in its spec, too.
fn held(object: &Value) -> String {
    let lists = [&object["metadata"]["finalizers"], &object["spec"]["finalizers"]];
    let all: Vec<&str> = lists.into_iter().filter_map(Value::as_array).flatten().map(text).collect();
    let few = all.iter().take(MOST_LISTED).copied().collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => "no finalizer holds it; it will be gone soon".to_owned(),
        count if count > MOST_LISTED => {
            format!("held by the finalizers {few} and {} more", count - MOST_LISTED)
        }
        _ => format!("held by the finalizers {few}"),
    }
}

/// Findings for queues, Cohorts and flavors of a Workload that are being deleted.
pub(super) fn around(view: &View<'_>, namespace: &str, local: &Value, queue: Option<&Value>) -> Vec<Finding> {
    let mut found = Vec::new();
    let none = ": nothing is admitted through it";
    let other = (Advice::UseOtherQueue, "name another queue, or create it again once it is gone");
    if let Some(object) = view.cluster(Kind::Namespace, namespace) {
        let more = ": no new pods can be created in it";
        let help = (Advice::UseOtherNamespace, "use another namespace");
        found.extend(finding(Code::NamespaceTerminating, object, more, help));
    }
    found.extend(finding(Code::LocalQueueTerminating, local, none, other));
    let Some(queue) = queue else { return found };
    found.extend(finding(Code::ClusterQueueTerminating, queue, none, other));
    let goes_on = ": it counts until it is gone";
    for flavor in flavors(queue).iter().filter_map(|name| view.cluster(Kind::ResourceFlavor, name)) {
        let help = "name another flavor in the ClusterQueue: once this one is gone, the queue is not active";
        found.extend(finding(Code::FlavorTerminating, flavor, goes_on, (Advice::UseOtherFlavor, help)));
    }
    for cohort in cohorts(view, text(&queue["spec"]["cohortName"])) {
        let help =
            "name another Cohort, or create it again once it is gone: its own quota and parent go with it";
        found.extend(finding(Code::CohortTerminating, cohort, goes_on, (Advice::UseOtherCohort, help)));
    }
    found
}

fn flavors(queue: &Value) -> BTreeSet<&str> {
    let groups = queue["spec"]["resourceGroups"].as_array().into_iter().flatten();
    groups
        .filter_map(|group| group["flavors"].as_array())
        .flatten()
        .map(|flavor| text(&flavor["name"]))
        .collect()
}

/// The Cohorts from one upwards; each once, even if they form a cycle.
fn cohorts<'a>(view: &View<'a>, first: &str) -> Vec<&'a Value> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut at = first.to_owned();
    while !at.is_empty() && seen.insert(at.clone()) {
        let Some(cohort) = view.get(&ObjectRef::cluster(Kind::Cohort, at.as_str())) else { break };
        all.push(cohort);
        text(&cohort["spec"]["parentName"]).clone_into(&mut at);
    }
    all
}
