//! ClusterQueue, LocalQueue, Cohort and MultiKueueCluster.

use std::collections::{HashMap, HashSet};

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

/// One list of rules, each check once: names become rules for all flavors, rules of the same check are joined, and a strategy without rules, which
/// v1beta2 does not allow, is removed.
///
/// Names replace the strategy: it is where they came back from the last time, and clients that merge their manifest into what is stored send both.
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
    let for_all: Vec<Value> = names.into_iter().map(|name| json!({"name": name})).collect();
    let of_strategy = strategy.get("admissionChecks").and_then(Value::as_array);
    let names = Some(for_all.as_slice()).filter(|names| !names.is_empty());
    let listed = names.or(of_strategy.map(Vec::as_slice)).unwrap_or_default();
    let mut rules = Rules::default();
    for rule in listed {
        rules.join(rule);
    }
    let rules = rules.written();
    if !rules.is_empty() {
        spec.insert("admissionChecksStrategy".to_owned(), json!({"admissionChecks": rules}));
    }
}

/// The rules of the checks, each check once. A list may be as long as a request allows, so each item is read only once.
#[derive(Default)]
struct Rules<'a> {
    listed: Vec<Rule>,
    /// Where the rule of a check is.
    by_name: HashMap<String, usize>,
    /// The flavors of each rule in `listed`.
    flavors: HashSet<(usize, &'a Value)>,
}

enum Rule {
    /// Without a name: as it came.
    Odd(Value),
    /// Of a check. No flavors means all.
    Named { name: String, flavors: Vec<Value> },
}

impl<'a> Rules<'a> {
    /// Adds a rule, or lets the rule of the same check cover its flavors too.
    fn join(&mut self, rule: &'a Value) {
        let Some(name) = rule.get("name").and_then(Value::as_str) else {
            return self.listed.push(Rule::Odd(rule.clone()));
        };
        let more: &[Value] = rule.get("onFlavors").and_then(Value::as_array).map_or(&[], Vec::as_slice);
        let known = self.by_name.get(name).copied();
        let at = known.unwrap_or(self.listed.len());
        if known.is_none() {
            self.by_name.insert(name.to_owned(), at);
            self.listed.push(Rule::Named { name: name.to_owned(), flavors: Vec::new() });
        }
        let Rule::Named { flavors, .. } = &mut self.listed[at] else { return };
        if more.is_empty() {
            flavors.clear();
        } else if known.is_none() || !flavors.is_empty() {
            flavors.extend(more.iter().filter(|flavor| self.flavors.insert((at, *flavor))).cloned());
        }
    }

    fn written(self) -> Vec<Value> {
        let rule = |rule| match rule {
            Rule::Odd(rule) => rule,
            Rule::Named { name, flavors } if flavors.is_empty() => json!({"name": name}),
            Rule::Named { name, flavors } => json!({"name": name, "onFlavors": flavors}),
        };
        self.listed.into_iter().map(rule).collect()
    }
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

/// docs/reference/01-api.md 1.10. v1beta1 requires a `kubeConfig`, so one without location stands for none.
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
