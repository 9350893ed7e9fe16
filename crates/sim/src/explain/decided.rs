//! What the engine's last decision says about a job that waits in its queue.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_core::{Detail, Reason, Refusal, Unadmitted};
use sluice_engine::{Account, Kind};
use sluice_selector::Operator;

use super::finding::{Code, Finding, Help, condition, holds};
use super::queues::shown;
use super::view::View;
use super::{MOST_LISTED, Question, topology};
use crate::json::text;
use crate::record::show_amount;

/// That others come before it, if any do.
pub(super) fn behind(account: &Account) -> Option<Finding> {
    let before = account.position.as_ref()?.in_cluster_queue;
    let text = || format!("{before} workload(s) of its ClusterQueue come before it");
    (before > 0).then(|| Finding::new(Code::BehindOthers, text()))
}

impl Question<'_> {
    /// What an account says of the decision about a Workload that waits.
    pub(super) fn decided(&self, view: &View<'_>, workload: &Value, account: &Account) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some(decision) = &account.decision else { return found };
        found.extend(self.preempting(view, workload, decision));
        found.extend(self.unready(view, decision));
        let (Detail::Flavors { pod_sets, .. } | Detail::PreemptionLoop { pod_sets, .. }) = &decision.detail
        else {
            return found;
        };
        let fits = topology::fits(workload, &account.fits);
        for set in pod_sets {
            let spec = pod_set(workload, &set.name);
            let count = spec["count"].as_i64().unwrap_or(1).max(1);
            let mut mismatches: Vec<String> = Vec::new();
            for refusal in &set.refusals {
                match refusal {
                    Refusal::ExceedsMaxQuota { flavor, resource, previous, needed, max } => {
                        let room = max.get().saturating_sub(previous.get()).max(0);
                        let what = (&**flavor, &**resource);
                        found.push(too_large(&set.name, what, count, needed.get(), room));
                    }
                    Refusal::NodeAffinity { flavor } => {
                        let labels = flavor_labels(view, flavor);
                        let unmet = contradictions(&spec["template"]["spec"], &labels, &flavor_keys(view));
                        let wants =
                            if unmet.is_empty() { "other labels".to_owned() } else { unmet.join(" and ") };
                        mismatches.push(format!(
                            "pod set {}: the pods ask for {wants}; labels of the flavor {flavor}: {}",
                            set.name,
                            shown(&labels)
                        ));
                    }
                    Refusal::UntoleratedTaint { flavor, taint } => mismatches.push(format!(
                        "pod set {}: the pods do not tolerate the taint {}={}:{} of the flavor {flavor}",
                        set.name,
                        taint.key,
                        taint.value,
                        taint.effect.as_str()
                    )),
                    Refusal::NoPlacement { flavor, failure } => {
                        let of = fits.iter().find(|f| f.pod_set == *set.name && f.flavor == **flavor);
                        found.extend(of.map(|fit| fit.finding(Some(&failure.message()))));
                    }
                    _ => {}
                }
            }
            if !mismatches.is_empty() {
                mismatches.truncate(MOST_LISTED);
                let text = format!("flavors do not suit the pods of pod set {}", set.name);
                let mut finding = Finding::new(Code::FlavorMismatch, text);
                finding.details = mismatches;
                found.push(finding);
            }
        }
        found
    }

    /// Whose pods are waited for before anything else is admitted.
    fn unready(&self, view: &View<'_>, decision: &Unadmitted) -> Option<Finding> {
        if decision.detail != Detail::WaitingForPodsReady {
            return None;
        }
        let all = view.of_kind(Kind::Workload);
        let unready = all.iter().filter(|(_, v)| {
            holds(v, "Admitted") && !holds(v, "PodsReady") && !holds(v, "Finished") && !holds(v, "Evicted")
        });
        let names: Vec<String> =
            unready.take(MOST_LISTED).map(|(r, _)| self.shown(&r.namespace, &r.name)).collect();
        let text = "nothing is admitted until all pods of what was admitted are ready (waitForPodsReady.blockAdmission)";
        let help = "wait until their pods are ready; if that takes long, ask why they are not";
        let mut finding = Finding::new(Code::WaitingForPodsReady, text).with(Help::words(help));
        finding.details = names;
        Some(finding)
    }

    /// Whom it waits for that is stopped to make room for it.
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
        let help = "wait until their pods are gone; if that takes long, look for pods that do not end";
        let mut finding = Finding::new(Code::PreemptionPending, text).with(Help::words(help));
        finding.details = names;
        Some(finding)
    }
}

fn pod_set<'a>(workload: &'a Value, name: &str) -> &'a Value {
    let mut sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
    sets.find(|set| set["name"] == name).unwrap_or(&Value::Null)
}

fn too_large(set: &str, (flavor, resource): (&str, &str), count: i64, needed: i64, room: i64) -> Finding {
    let per_pod = (needed / count).max(1);
    let show = |amount| show_amount(resource, amount);
    let text = format!(
        "pod set {set} asks for {} {resource}, and its ClusterQueue can have at most {} of flavor {flavor}, with all that \
         it may borrow",
        show(needed),
        show(room)
    );
    let pods = room / per_pod;
    let mut finding = Finding::new(Code::TooLarge, text);
    if pods > 0 && pods < count {
        let help = format!("ask for at most {pods} pods of {} {resource} each", show(per_pod));
        finding = finding.with(Help::words(help));
    }
    let each = room / count;
    if each > 0 {
        let help = format!("ask for at most {} {resource} for each of the {count} pod(s)", show(each));
        finding = finding.with(Help::words(help));
    }
    finding
}

fn flavor_labels(view: &View<'_>, flavor: &str) -> BTreeMap<String, String> {
    let labels = view.cluster(Kind::ResourceFlavor, flavor).map(|f| &f["spec"]["nodeLabels"]);
    let map = labels.and_then(Value::as_object);
    map.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect()
}

/// The keys of labels that any flavor has: a wish for others is no matter of flavors.
fn flavor_keys(view: &View<'_>) -> BTreeSet<String> {
    let all = view.of_kind(Kind::ResourceFlavor);
    let labels = all.iter().filter_map(|(_, flavor)| flavor["spec"]["nodeLabels"].as_object());
    labels.flat_map(|labels| labels.keys().cloned()).collect()
}

/// What a pod asks of its node by these keys that the labels do not give.
fn contradictions(pod: &Value, labels: &BTreeMap<String, String>, keys: &BTreeSet<String>) -> Vec<String> {
    let mut all = Vec::new();
    for (key, value) in pod["nodeSelector"].as_object().into_iter().flatten() {
        if keys.contains(key) && labels.get(key).map(String::as_str) != value.as_str() {
            all.push(format!("{key}={} (node selector)", text(value)));
        }
    }
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    for term in required["nodeSelectorTerms"].as_array().into_iter().flatten() {
        for wish in term["matchExpressions"].as_array().into_iter().flatten() {
            let (key, operator) = (text(&wish["key"]), text(&wish["operator"]));
            let values = || wish["values"].as_array().into_iter().flatten().map(text);
            let met = Operator::of_nodes(operator)
                .is_some_and(|o| o.holds(labels.get(key).map(String::as_str), values()));
            if !met && keys.contains(key) {
                let values = values().take(MOST_LISTED).collect::<Vec<_>>().join(", ");
                all.push(format!("{key} {operator} [{values}] (node affinity)"));
            }
        }
    }
    all.truncate(MOST_LISTED);
    all
}
