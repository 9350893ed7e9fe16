//! Problems of a job's queues: a queue that is missing, stopped, incomplete, or does not accept its namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::config::selector_matches;
use sluice_api::labels::NAMESPACE_NAME_LABEL;
use sluice_engine::{Kind, ObjectRef};

use super::MOST_LISTED;
use super::advice::Advice;
use super::deleted;
use super::finding::{Code, Finding, Help, condition};
use super::patch::patch_of;
use super::view::View;
use crate::json::text;

/// The labels of an object.
pub(super) fn labels(object: &Value) -> BTreeMap<String, String> {
    let map = object["metadata"]["labels"].as_object();
    map.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect()
}

/// Labels in words.
pub(super) fn shown(labels: &BTreeMap<String, String>) -> String {
    if labels.is_empty() {
        return "none".to_owned();
    }
    let mut all: Vec<String> = labels.iter().take(MOST_LISTED).map(|(k, v)| format!("{k}={v}")).collect();
    if labels.len() > MOST_LISTED {
        all.push(format!("and {} more", labels.len() - MOST_LISTED));
    }
    all.join(", ")
}

/// Each requirement of a selector that labels do not meet, in words.
pub(super) fn unmet(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> Vec<String> {
    let mut all = Vec::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        if labels.get(key) != Some(value) {
            all.push(format!("{key}={value}"));
        }
    }
    for requirement in selector.match_expressions.iter().flatten() {
        let one = LabelSelector { match_expressions: Some(vec![requirement.clone()]), match_labels: None };
        if !selector_matches(&one, labels) {
            let values = requirement.values.as_deref().unwrap_or_default();
            let values = values.iter().take(MOST_LISTED).cloned().collect::<Vec<_>>().join(", ");
            all.push(format!("{} {} [{values}]", requirement.key, requirement.operator));
        }
    }
    all.truncate(MOST_LISTED);
    all
}

/// Names in words, the first few.
fn few<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.take(MOST_LISTED).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn selector_of(queue: &Value) -> Option<LabelSelector> {
    serde_json::from_value(queue["spec"]["namespaceSelector"].clone()).ok()
}

/// Whether the policy stops a queue.
fn is_stopped(object: &Value) -> bool {
    !["", "None"].contains(&text(&object["spec"]["stopPolicy"]))
}

/// Which ClusterQueues may be named to users of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) enum Names {
    /// All.
    All,
    /// The ClusterQueues of the namespace's LocalQueues: its users know them.
    Own,
}

impl Names {
    /// Whether a ClusterQueue may be named. The objects are read once for all names.
    pub fn known(self, view: &View<'_>, namespace: &str) -> impl Fn(&str) -> bool + use<> {
        let own = || {
            let locals = view.of_kind(Kind::LocalQueue).into_iter();
            let own = locals.filter(|(local, _)| *local.namespace == *namespace);
            own.map(|(_, local)| text(&local["spec"]["clusterQueue"]).to_owned()).collect()
        };
        let own: Option<BTreeSet<String>> = matches!(self, Self::Own).then(own);
        move |queue| own.as_ref().is_none_or(|own| own.contains(queue))
    }
}

/// All problems of a job's queues, and its ClusterQueue if it is known.
pub(super) fn findings(
    view: &View<'_>,
    namespace: &str,
    local_queue: &str,
    names: Names,
) -> (Vec<Finding>, Option<String>) {
    let mut found = Vec::new();
    let Some(local) = view.namespaced(Kind::LocalQueue, namespace, local_queue) else {
        if view.knows(Kind::LocalQueue) {
            found.push(missing_local_queue(view, namespace, local_queue, names));
        }
        return (found, None);
    };
    let name = text(&local["spec"]["clusterQueue"]);
    found.extend(deleted::around(view, namespace, local, view.cluster(Kind::ClusterQueue, name)));
    if is_stopped(local) {
        found.push(stopped(
            Code::LocalQueueStopped,
            &ObjectRef::namespaced(Kind::LocalQueue, namespace, local_queue),
            local,
        ));
    }
    match view.cluster(Kind::ClusterQueue, name) {
        None if !view.knows(Kind::ClusterQueue) => {}
        None => found.push(missing_cluster_queue(view, (namespace, local_queue), name, names)),
        Some(queue) => {
            if is_stopped(queue) {
                let reference = ObjectRef::cluster(Kind::ClusterQueue, name);
                found.push(stopped(Code::ClusterQueueStopped, &reference, queue));
            }
            found.extend(incomplete(view, name, queue));
            found.extend(not_selected(view, namespace, name, queue));
        }
    }
    (found, Some(name.to_owned()))
}

fn missing_local_queue(view: &View<'_>, namespace: &str, name: &str, names: Names) -> Finding {
    let queues = view.of_kind(Kind::LocalQueue);
    let mut finding = Finding::new(
        Code::LocalQueueMissing,
        format!("the LocalQueue {name} does not exist in the namespace {namespace}"),
    );
    let own = queues.iter().filter(|(r, _)| *r.namespace == *namespace).map(|(r, _)| &*r.name);
    if let Some(there) = few(own) {
        finding = finding.detail(format!("LocalQueues of the namespace: {there}")).with(Help::words(
            Advice::NameExistingQueue,
            format!("name one of the existing LocalQueues ({there}) in the label kueue.x-k8s.io/queue-name"),
        ));
    }
    let labels = view.cluster(Kind::Namespace, namespace).map(labels).unwrap_or_default();
    let takes = |queue: &Value| selector_of(queue).is_some_and(|s| selector_matches(&s, &labels));
    let all = view.of_kind(Kind::ClusterQueue);
    let fitting = all.iter().filter(|(_, q)| takes(q)).map(|(r, _)| &*r.name);
    let known = names.known(view, namespace);
    let fitting = few(fitting.filter(|queue| known(queue)));
    let (choice, first) = match &fitting {
        Some(names) => {
            (format!(", for a ClusterQueue that takes the namespace ({names})"), names.split(", ").next())
        }
        None => (String::new(), None),
    };
    let queue = first.unwrap_or("CLUSTERQUEUE");
    finding.with(Help::command(
        Advice::CreateLocalQueue,
        format!("create the LocalQueue {name}{choice}"),
        format!("kubectl kueue create localqueue {name} -n {namespace} -c {queue}"),
    ))
}

fn missing_cluster_queue(
    view: &View<'_>,
    (namespace, local): (&str, &str),
    name: &str,
    names: Names,
) -> Finding {
    let mut finding = Finding::new(
        Code::ClusterQueueMissing,
        format!("the LocalQueue {namespace}/{local} points to the ClusterQueue {name}, which does not exist"),
    );
    let (all, known) = (view.of_kind(Kind::ClusterQueue), names.known(view, namespace));
    let all = all.iter().map(|(r, _)| &*r.name).filter(|queue| known(queue));
    if let Some(there) = few(all) {
        finding = finding.detail(format!("existing ClusterQueues: {there}"));
    }
    finding.with(Help::words(
        Advice::CreateClusterQueue,
        format!("create the ClusterQueue {name}, or name a LocalQueue that is for one that exists"),
    ))
}

fn stopped(code: Code, reference: &ObjectRef, object: &Value) -> Finding {
    let policy = text(&object["spec"]["stopPolicy"]);
    let (kind, name) = (reference.kind.as_str(), &reference.name);
    let what = if policy == "HoldAndDrain" {
        "nothing is admitted, and admitted Workloads are evicted"
    } else {
        "nothing is admitted, and admitted Workloads continue"
    };
    let place =
        if reference.namespace.is_empty() { String::new() } else { format!(" -n {}", reference.namespace) };
    let command = format!("kubectl kueue resume {} {name}{place}", kind.to_ascii_lowercase());
    let patch = patch_of(reference, json!({"spec": {"stopPolicy": "None"}}));
    Finding::new(code, format!("the {kind} {name} is stopped (stopPolicy {policy}): {what}"))
        .with(Help::command(Advice::Resume, format!("resume the {kind} {name}"), command).patch(patch))
}

/// Whether an object of a cluster-scoped kind is known not to exist.
fn is_missing(view: &View<'_>, kind: Kind, name: &str) -> bool {
    view.knows(kind) && view.cluster(kind, name).is_none()
}

/// The objects that a ClusterQueue refers to and that do not exist.
fn incomplete(view: &View<'_>, name: &str, queue: &Value) -> Option<Finding> {
    let mut missing = Vec::new();
    let groups = queue["spec"]["resourceGroups"].as_array().into_iter().flatten();
    for flavor in groups.filter_map(|g| g["flavors"].as_array()).flatten().map(|f| text(&f["name"])) {
        match view.cluster(Kind::ResourceFlavor, flavor) {
            None if !view.knows(Kind::ResourceFlavor) => {}
            None => missing.push(("ResourceFlavor", flavor.to_owned(), String::new())),
            Some(object) => {
                let topology = text(&object["spec"]["topologyName"]);
                if !topology.is_empty() && is_missing(view, Kind::Topology, topology) {
                    let of = format!(" of the flavor {flavor}");
                    missing.push(("Topology", topology.to_owned(), of));
                }
            }
        }
    }
    let checks = queue["spec"]["admissionChecksStrategy"]["admissionChecks"].as_array();
    let old = queue["spec"]["admissionChecks"].as_array();
    let named = checks.into_iter().flatten().map(|c| text(&c["name"]));
    for check in named.chain(old.into_iter().flatten().map(text)) {
        if is_missing(view, Kind::AdmissionCheck, check) {
            missing.push(("AdmissionCheck", check.to_owned(), String::new()));
        }
    }
    missing.truncate(MOST_LISTED);
    let status = condition(queue, "Active").filter(|c| c["status"] == "False");
    let status = status.filter(|c| !["Stopped", "Terminating"].contains(&text(&c["reason"])));
    if missing.is_empty() && status.is_none() {
        return None;
    }
    let mut finding =
        Finding::new(Code::ClusterQueueIncomplete, format!("the ClusterQueue {name} is not active"));
    if let Some(status) = status {
        finding = finding.detail(format!("{}: {}", text(&status["reason"]), text(&status["message"])));
    }
    for (kind, what, of) in missing {
        let help = format!("create the {kind} {what}, or remove its name from the object that refers to it");
        finding = finding
            .detail(format!("the {kind} {what}{of} does not exist"))
            .with(Help::words(Advice::CompleteClusterQueue, help));
    }
    Some(finding)
}

fn not_selected(view: &View<'_>, namespace: &str, name: &str, queue: &Value) -> Option<Finding> {
    if !view.knows(Kind::Namespace) && view.cluster(Kind::Namespace, namespace).is_none() {
        return None;
    }
    let labels = view.cluster(Kind::Namespace, namespace).map(labels).unwrap_or_default();
    let reference = ObjectRef::cluster(Kind::ClusterQueue, name);
    let Some(selector) = selector_of(queue) else {
        let patch = patch_of(&reference, json!({"spec": {"namespaceSelector": {}}}));
        let help = Help::words(
            Advice::SelectNamespace,
            format!(
                "change the ClusterQueue {name} to select the namespace (namespaceSelector: {{}} selects all)"
            ),
        );
        let text = format!("the ClusterQueue {name} has no namespaceSelector, so it accepts no namespace");
        return Some(Finding::new(Code::NamespaceNotSelected, text).with(help.patch(patch)));
    };
    if selector_matches(&selector, &labels) {
        return None;
    }
    let unmet = unmet(&selector, &labels);
    let text = format!(
        "the namespaceSelector of the ClusterQueue {name} does not match the namespace {namespace}: it asks for {}",
        unmet.join(" and ")
    );
    let mut finding = Finding::new(Code::NamespaceNotSelected, text)
        .detail(format!("labels of the namespace {namespace}: {}", shown(&labels)));
    if let Some(change) = labels_for(&selector, &labels) {
        let word = |(key, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => format!("{key}-"),
        };
        let words: Vec<String> = change.iter().map(word).collect();
        let replaces = change.iter().any(|(key, value)| value.is_some() && labels.contains_key(key));
        let overwrite = if replaces { "--overwrite " } else { "" };
        let help = Help::command(
            Advice::LabelNamespace,
            format!("label the namespace {namespace}"),
            format!("kubectl label {overwrite}namespace {namespace} {}", words.join(" ")),
        );
        let patch = patch_of(
            &ObjectRef::cluster(Kind::Namespace, namespace),
            json!({"metadata": {"labels": change}}),
        );
        finding = finding.with(help.patch(patch));
    } else {
        let fixed = if names_namespaces(&selector) {
            format!(" (a namespace keeps the label {NAMESPACE_NAME_LABEL})")
        } else {
            String::new()
        };
        let help = format!(
            "no labels can match the selector of the ClusterQueue {name}{fixed}: change the selector, or use another queue"
        );
        finding = finding.with(Help::words(Advice::ChangeSelector, help));
    }
    Some(finding)
}

/// Whether a selector asks for the label that is the name of a namespace.
fn names_namespaces(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key);
    let expressions = selector.match_expressions.iter().flatten().map(|requirement| &requirement.key);
    labels.chain(expressions).any(|key| key == NAMESPACE_NAME_LABEL)
}

/// The fewest label changes of a namespace with which a selector matches (`None`: the label is removed); nothing if its requirements contradict each
/// other, or the name of the namespace.
fn labels_for(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Option<BTreeMap<String, Option<String>>> {
    let mut after = labels.clone();
    after.extend(selector.match_labels.iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    for requirement in selector.match_expressions.iter().flatten() {
        let key = &requirement.key;
        let values = requirement.values.as_deref().unwrap_or_default();
        let there = after.get(key);
        match requirement.operator.as_str() {
            "In" if there.is_none_or(|value| !values.contains(value)) => {
                after.insert(key.clone(), values.first()?.clone());
            }
            "NotIn" if there.is_some_and(|value| values.contains(value)) => {
                after.remove(key);
            }
            "Exists" if there.is_none() => {
                after.insert(key.clone(), "true".to_owned());
            }
            "DoesNotExist" => {
                after.remove(key);
            }
            _ => {}
        }
    }
    // The API server writes this one at each change.
    match labels.get(NAMESPACE_NAME_LABEL) {
        Some(name) => after.insert(NAMESPACE_NAME_LABEL.to_owned(), name.clone()),
        None => after.remove(NAMESPACE_NAME_LABEL),
    };
    if !selector_matches(selector, &after) {
        return None;
    }
    let gone = labels.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), None));
    let new = after.iter().filter(|(key, value)| labels.get(*key) != Some(*value));
    Some(gone.chain(new.map(|(key, value)| (key.clone(), Some(value.clone())))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(selector: Value, labels: &[(&str, &str)]) -> Option<Value> {
        let selector: LabelSelector = serde_json::from_value(selector).ok()?;
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        labels_for(&selector, &labels).map(|change| json!(change))
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": operator, "values": values})
    }

    #[test]
    fn labels_are_found_that_meet_a_selector_with_expressions() {
        let of = |expressions: Value, labels: &[(&str, &str)]| {
            change(json!({"matchLabels": {"env": "prod"}, "matchExpressions": expressions}), labels)
        };
        let team = expression("team", "In", &["blue", "red"]);
        assert_eq!(of(json!([team]), &[]), Some(json!({"env": "prod", "team": "blue"})));
        assert_eq!(of(json!([team]), &[("env", "prod"), ("team", "red")]), Some(json!({})));
        assert_eq!(
            of(json!([team]), &[("env", "dev"), ("team", "green")]),
            Some(json!({"env": "prod", "team": "blue"}))
        );
        let not = json!([expression("team", "NotIn", &["red"]), expression("old", "DoesNotExist", &[])]);
        assert_eq!(
            of(not, &[("team", "red"), ("old", "x")]),
            Some(json!({"env": "prod", "team": null, "old": null}))
        );
        assert_eq!(
            of(json!([expression("gpu", "Exists", &[])]), &[]),
            Some(json!({"env": "prod", "gpu": "true"}))
        );
        let contradiction = json!([team, expression("team", "DoesNotExist", &[])]);
        assert_eq!(of(contradiction, &[]), None);
    }

    #[test]
    fn no_change_of_labels_gives_a_namespace_another_name() {
        let labels = [(NAMESPACE_NAME_LABEL, "a"), ("env", "dev")];
        let by_name = |value: &str| json!({"matchLabels": {NAMESPACE_NAME_LABEL: value, "env": "prod"}});
        assert_eq!(change(by_name("b"), &labels), None);
        assert_eq!(change(by_name("a"), &labels), Some(json!({"env": "prod"})));
        let of = |operator: &str, values: &[&str]| {
            change(json!({"matchExpressions": [expression(NAMESPACE_NAME_LABEL, operator, values)]}), &labels)
        };
        assert_eq!(of("In", &["b", "c"]), None);
        assert_eq!(of("NotIn", &["a"]), None);
        assert_eq!(of("DoesNotExist", &[]), None);
        assert_eq!(of("In", &["b", "a"]), Some(json!({})));
    }

    #[test]
    fn a_user_may_know_the_queues_that_local_queues_of_the_namespace_are_for() {
        let local = |namespace: &str, name: &str, queue: Option<&str>| {
            let mut object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": namespace}});
            if let Some(queue) = queue {
                object["spec"] = json!({"clusterQueue": queue});
            }
            object
        };
        let objects = [
            local("a", "one", Some("own")),
            local("a", "two", Some("gone")),
            local("a", "broken", None),
            local("b", "one", Some("of-others")),
        ];
        let all = objects.iter().map(|object| {
            let name = |field: &str| text(&object["metadata"][field]);
            (ObjectRef::namespaced(Kind::LocalQueue, name("namespace"), name("name")), object)
        });
        let view = View::Read(all.collect(), BTreeSet::new());
        let known = |names: Names, namespace: &str| {
            let known = names.known(&view, namespace);
            ["own", "gone", "of-others", "none"].map(known)
        };
        // This includes a ClusterQueue that no longer exists: a LocalQueue that the user may read names it.
        assert_eq!(known(Names::Own, "a"), [true, true, false, false]);
        assert_eq!(known(Names::Own, "b"), [false, false, true, false]);
        assert_eq!(known(Names::Own, "c"), [false; 4]);
        assert_eq!(known(Names::All, "a"), [true; 4]);
    }
}
