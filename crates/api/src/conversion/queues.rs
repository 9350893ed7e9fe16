//! ClusterQueue, LocalQueue, Cohort and MultiKueueCluster.

use serde_json::{Value, json};

use super::object::{Object, part, rename, text};

/// docs/reference/01-api.md 1.2.
pub(super) fn cluster_queue(root: &mut Object, up: bool) {
    if let Some(spec) = part(root, "spec") {
        if up {
            rename(spec, "cohort", "cohortName");
            policies_up(spec);
            checks_up(spec);
        } else {
            rename(spec, "cohortName", "cohort");
            spec.remove("concurrentAdmissionPolicy");
        }
    }
    let Some(status) = part(root, "status") else { return };
    for field in ["flavorsReservation", "flavorsUsage"] {
        if up {
            if status.get(field).is_some_and(|list| *list == json!([])) {
                status.remove(field);
            }
        } else {
            // v1beta1 always has the lists, also when they are empty.
            status.entry(field).or_insert_with(|| json!([]));
        }
    }
    if up {
        status.remove("pendingWorkloadsStatus");
        share_up(status);
    }
}

/// The old names of the fungibility policies.
fn policies_up(spec: &mut Object) {
    let Some(fungibility) = part(spec, "flavorFungibility") else { return };
    for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        if text(fungibility, field) == Some(old) {
            fungibility.insert(field.to_owned(), "MayStopSearch".into());
        }
    }
}

/// One list of rules, each check once: the names become rules for all flavors, rules of the same check are joined, and a
/// strategy without rules, which v1beta2 does not allow, goes away.
fn checks_up(spec: &mut Object) {
    let names = match spec.remove("admissionChecks") {
        Some(Value::Array(names)) => names,
        Some(Value::Null) | None => Vec::new(),
        Some(odd) => {
            spec.insert("admissionChecks".to_owned(), odd);
            return;
        }
    };
    let strategy = match spec.remove("admissionChecksStrategy") {
        None | Some(Value::Null) => Object::new(),
        Some(Value::Object(strategy)) => strategy,
        Some(odd) => {
            spec.insert("admissionChecksStrategy".to_owned(), odd);
            return;
        }
    };
    let mut rules: Vec<Value> = Vec::new();
    if let Some(Value::Array(listed)) = strategy.get("admissionChecks") {
        for rule in listed {
            join_rule(&mut rules, rule.clone());
        }
    }
    for name in names {
        join_rule(&mut rules, json!({"name": name}));
    }
    if !rules.is_empty() {
        spec.insert("admissionChecksStrategy".to_owned(), json!({"admissionChecks": rules}));
    }
}

/// Adds a rule, or lets the rule of the same check cover its flavors too. No flavors means all.
fn join_rule(rules: &mut Vec<Value>, mut rule: Value) {
    let Some(name) = rule.get("name").and_then(Value::as_str).map(str::to_owned) else {
        rules.push(rule);
        return;
    };
    let flavors = match rule.get_mut("onFlavors") {
        Some(Value::Array(flavors)) => distinct(std::mem::take(flavors)),
        _ => Vec::new(),
    };
    let same = rules
        .iter_mut()
        .find(|r| r.get("name").and_then(Value::as_str) == Some(&name))
        .and_then(Value::as_object_mut);
    match same {
        Some(same) => {
            let joined = match same.remove("onFlavors") {
                Some(Value::Array(mut joined)) if !joined.is_empty() && !flavors.is_empty() => {
                    joined.extend(flavors);
                    distinct(joined)
                }
                _ => return,
            };
            same.insert("onFlavors".to_owned(), joined.into());
        }
        None if flavors.is_empty() => rules.push(json!({"name": name})),
        None => rules.push(json!({"name": name, "onFlavors": flavors})),
    }
}

fn distinct(values: Vec<Value>) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::with_capacity(values.len());
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// v1beta2 has the past consumption only on LocalQueues.
fn share_up(status: &mut Object) {
    if let Some(share) = part(status, "fairSharing") {
        share.remove("admissionFairSharingStatus");
    }
}

/// docs/reference/01-api.md 1.3.
pub(super) fn local_queue(root: &mut Object, up: bool) {
    let Some(status) = part(root, "status") else { return };
    if up {
        rename(status, "flavorUsage", "flavorsUsage");
        status.remove("flavors");
    } else {
        rename(status, "flavorsUsage", "flavorUsage");
    }
}

/// docs/reference/01-api.md 1.7.
pub(super) fn cohort(root: &mut Object, up: bool) {
    if up && let Some(status) = part(root, "status") {
        share_up(status);
    }
}

/// docs/reference/01-api.md 1.10. v1beta1 must have a `kubeConfig`, so one without location stands for none.
pub(super) fn multikueue_cluster(root: &mut Object, up: bool) {
    let Some(spec) = part(root, "spec") else { return };
    if up {
        let mut source = Object::new();
        for field in ["kubeConfig", "clusterProfileRef"] {
            if let Some(value) = spec.remove(field) {
                source.insert(field.to_owned(), value);
            }
        }
        let placeholder = source.contains_key("clusterProfileRef")
            && part(&mut source, "kubeConfig").is_some_and(|config| text(config, "location") == Some(""));
        if placeholder {
            source.remove("kubeConfig");
        }
        if !source.is_empty() {
            spec.entry("clusterSource").or_insert(source.into());
        }
    } else if let Some(source) = spec.remove("clusterSource") {
        let Value::Object(source) = source else {
            spec.insert("clusterSource".to_owned(), source);
            return;
        };
        for (field, value) in source {
            spec.entry(field).or_insert(value);
        }
        spec.entry("kubeConfig").or_insert_with(|| json!({"location": "", "locationType": "Secret"}));
    }
}
