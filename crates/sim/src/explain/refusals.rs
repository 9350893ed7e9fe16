//! A finding for each reason for which the flavors of a queue were refused to the pods of a Workload.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_core::{Amount, Name, PodSetRefusal, Refusal, Unadmitted};
use sluice_engine::{Account, Kind};
use sluice_selector::Operator;

use super::MOST_LISTED;
use super::advice::Advice;
use super::capacity::{self, Around, Lack};
use super::decided::pod_set;
use super::finding::{Code, Finding, Help};
use super::queues::shown;
use super::searched::{Searched, searched};
use super::too_large::{self, Excess};
use super::topology::{TopologyFit, fits};
use super::view::View;
use super::wishes::{mismatch, tried_again};
use crate::json::text;
use crate::record::show_amount;

/// Why the flavors of a pod set are refused, gathered so that each reason is reported once.
#[derive(Default)]
struct Gathered {
    /// Flavors that do not suit the pods, each in words.
    mismatches: Vec<String>,
    /// Resources whose quota is in use: flavor and resource, what is needed with the pod sets before, and what is free.
    quota: Vec<(Name, Name, Amount, Amount)>,
    /// Flavors that lack only what may become free.
    short: BTreeSet<Name>,
    /// What the queue could never have.
    excess: Vec<Excess>,
    /// What the healthy nodes lack, by flavor.
    capacity: BTreeMap<String, Vec<Lack>>,
    found: Vec<Finding>,
}

/// What blocks each pod set.
pub(super) fn findings(
    around: Around<'_>,
    workload: &Value,
    (account, decision): (&Account, &Unadmitted),
    pod_sets: &[PodSetRefusal],
) -> Vec<Finding> {
    let fits = fits(workload, &account.fits, around.names_nodes);
    let mut found = Vec::new();
    for of in searched(workload, decision, pod_sets, around.configuration) {
        let mut gathered = Gathered::default();
        for refusal in of.refusals {
            gathered.take_amounts(&of, refusal);
            for set in &of.sets {
                gathered.take(around.view, workload, (set.name, refusal), &fits);
            }
        }
        // What does not depend on the pods is the same for each pod set.
        gathered.found.dedup();
        found.extend(gathered.reported(around, workload, &of));
    }
    found
}

impl Gathered {
    /// Takes a refusal with amounts: these are of all pod sets that are searched together.
    fn take_amounts(&mut self, of: &Searched<'_>, refusal: &Refusal) {
        match refusal {
            Refusal::ResourceUnavailable { resource, needed } => {
                self.found.push(not_covered(of, resource, *needed));
            }
            Refusal::ExceedsMaxQuota { .. } => self.excess.extend(Excess::of(refusal)),
            Refusal::InsufficientQuota { flavor, resource, needed, free, .. } => {
                self.short.insert(Name::clone(flavor));
                self.quota.push((Name::clone(flavor), Name::clone(resource), *needed, *free));
            }
            Refusal::InsufficientCapacity { flavor, resource, needed, free, missing } => {
                self.short.insert(Name::clone(flavor));
                let resource = resource.to_string();
                let lack = Lack { resource, needed: *needed, free: *free, missing: *missing };
                self.capacity.entry(flavor.to_string()).or_default().push(lack);
            }
            _ => {}
        }
    }

    /// Takes a refusal for another reason: of one pod set.
    fn take(
        &mut self,
        view: &View<'_>,
        workload: &Value,
        (set, refusal): (&str, &Refusal),
        fits: &[TopologyFit],
    ) {
        let spec = pod_set(workload, set);
        match refusal {
            Refusal::FlavorNotFound { flavor } => self.found.push(flavor_missing(view, flavor)),
            Refusal::UntoleratedTaint { flavor, taint } => self.mismatches.push(format!(
                "pod set {set}: the pods do not tolerate the taint {}={}:{} of the flavor {flavor}",
                taint.key,
                taint.value,
                taint.effect.as_str()
            )),
            Refusal::NodeAffinity { flavor } => {
                let labels = flavor_labels(view, flavor);
                let unmet = contradictions(&spec["template"]["spec"], &labels);
                let wants = if unmet.is_empty() { "other labels".to_owned() } else { unmet.join(" and ") };
                self.mismatches.push(format!(
                    "pod set {set}: the pods ask for {wants}; labels of the flavor {flavor}: {}",
                    shown(&labels)
                ));
            }
            Refusal::OtherFlavor { flavor, assigned } => self.mismatches.push(format!(
                "pod set {set}: the job runs on the flavor {assigned}, and does not grow onto the flavor {flavor}"
            )),
            Refusal::WithoutTopology { flavor }
            | Refusal::TopologyUnknown { flavor }
            | Refusal::LevelMissing { flavor }
            | Refusal::OnlyTopology { flavor }
            | Refusal::Ungated { flavor } => {
                self.found.push(mismatch(view, workload, set, (flavor, refusal)));
            }
            Refusal::SeveralTopologies { flavors } => self.found.push(several(set, flavors)),
            Refusal::NoTopology => self.found.push(none_with_topology(set)),
            Refusal::NoPlacement { flavor, failure, .. } => {
                self.short.insert(Name::clone(flavor));
                if fits.iter().any(|fit| fit.leader.as_deref() == Some(set) && fit.flavor == **flavor) {
                    // It is placed with its workers, and reported with them.
                    return;
                }
                let of = fits.iter().find(|f| f.pod_set == *set && f.flavor == **flavor);
                let message = failure.message();
                self.found.push(of.map_or_else(
                    || Finding::new(Code::TopologyShort, format!("pod set {set}: {message}")),
                    |fit| fit.finding(Some(&message)),
                ));
            }
            Refusal::ResourceUnavailable { .. }
            | Refusal::ExceedsMaxQuota { .. }
            | Refusal::InsufficientQuota { .. }
            | Refusal::InsufficientCapacity { .. } => {}
        }
    }

    /// Reports what is too large for every flavor of a resource group. A flavor that is too small matters little while the pods wait for another one.
    fn too_large(&mut self, view: &View<'_>, workload: &Value, of: &Searched<'_>) {
        let all = std::mem::take(&mut self.excess);
        let groups = if all.is_empty() { Vec::new() } else { too_large::groups(view, workload) };
        let mut by_group: BTreeMap<Option<usize>, Vec<Excess>> = BTreeMap::new();
        for excess in all {
            by_group.entry(too_large::group_of(&groups, &excess.flavor)).or_default().push(excess);
        }
        for (group, excess) in by_group {
            let is_larger = |flavor: &Name| !excess.iter().any(|excess| excess.flavor == *flavor);
            let waits = |flavor: &Name| too_large::group_of(&groups, flavor) == group && is_larger(flavor);
            if self.short.iter().any(waits) {
                self.mismatches.extend(excess.iter().map(|excess| excess.line(of)));
            } else {
                // What was not searched yet may be too large, too.
                let needs_no_other = |own: usize| {
                    groups.iter().enumerate().all(|(at, group)| at == own || !group.is_requested(of))
                };
                let is_all = of.is_all() && group.is_some_and(needs_no_other);
                self.found.push(too_large::finding(of, &excess, is_all));
            }
        }
    }

    fn reported(mut self, around: Around<'_>, workload: &Value, of: &Searched<'_>) -> Vec<Finding> {
        self.too_large(around.view, workload, of);
        for (flavor, lacks) in &self.capacity {
            self.found.push(capacity::short(around, workload, of, (flavor, lacks)));
        }
        let mut listed = |code: Code, text: String, mut lines: Vec<String>| {
            if !lines.is_empty() {
                lines.truncate(MOST_LISTED);
                let mut finding = Finding::new(code, text);
                finding.details = lines;
                self.found.push(finding);
            }
        };
        let quota = self.quota.iter().map(|of_flavor| in_use(of, of_flavor)).collect();
        listed(Code::QuotaShort, format!("quota that {} is in use", of.who("need")), quota);
        let text = format!("flavors do not suit the pods of {}", of.words());
        listed(Code::FlavorMismatch, text, self.mismatches);
        self.found
    }
}

/// A resource of a flavor whose quota is in use.
fn in_use(of: &Searched<'_>, (flavor, resource, needed, free): &(Name, Name, Amount, Amount)) -> String {
    let own = of.request(resource);
    let before = needed.get().saturating_sub(own);
    let before = if own > 0 && before > 0 {
        format!(", {} of it by its other pod sets", show_amount(resource, before))
    } else {
        String::new()
    };
    let (needed, free) = (show_amount(resource, needed.get()), show_amount(resource, free.get().max(0)));
    format!("{resource} of flavor {flavor}: {needed} needed{before}, {free} free")
}

fn not_covered(of: &Searched<'_>, resource: &str, needed: Amount) -> Finding {
    let needed = show_amount(resource, needed.get());
    let asks = of.who("request");
    let text = format!("{asks} {needed} {resource}, but its ClusterQueue has no quota for {resource}");
    let help = format!(
        "take {resource} out of the requests and limits of the pods, or add it to coveredResources and the flavors of the \
         ClusterQueue, or name a queue that has it"
    );
    Finding::new(Code::ResourceNotCovered, text).with(Help::words(Advice::CoverResource, help))
}

fn flavor_missing(view: &View<'_>, flavor: &str) -> Finding {
    if view.cluster(Kind::ResourceFlavor, flavor).is_some() {
        return tried_again(&format!("the ResourceFlavor {flavor} did not exist; it does now"));
    }
    let text = format!("the ResourceFlavor {flavor}, which its ClusterQueue names, does not exist");
    let help =
        format!("create the ResourceFlavor {flavor}, or remove its name from the object that refers to it");
    Finding::new(Code::ClusterQueueIncomplete, text).with(Help::words(Advice::CompleteClusterQueue, help))
}

fn several<T: AsRef<str>>(set: &str, flavors: &[T]) -> Finding {
    let names: Vec<&str> = flavors.iter().map(AsRef::as_ref).take(MOST_LISTED).collect();
    let text = format!(
        "the resources of pod set {set} would come from several flavors that have a topology: {}",
        names.join(", ")
    );
    let help = "let one resource group of the ClusterQueue cover all resources that the pods take of their nodes, so that \
                one flavor has them all";
    Finding::new(Code::TopologyMismatch, text).with(Help::words(Advice::OneResourceGroup, help))
}

fn none_with_topology(set: &str) -> Finding {
    let text = format!(
        "pod set {set} asks for nodes by topology, and no resource that it requests has a flavor with a topology in its ClusterQueue"
    );
    let help = "let the pods request a resource of which the ClusterQueue has a flavor with a topology (topologyName)";
    Finding::new(Code::TopologyMismatch, text).with(Help::words(Advice::RequestOfTopology, help))
}

fn flavor_labels(view: &View<'_>, flavor: &str) -> BTreeMap<String, String> {
    let labels = view.cluster(Kind::ResourceFlavor, flavor).map(|f| &f["spec"]["nodeLabels"]);
    let map = labels.and_then(Value::as_object);
    map.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect()
}

/// The node requirements of a pod that the labels of a flavor do not meet. Only those on keys of these labels count: the core compares no others.
fn contradictions(pod: &Value, labels: &BTreeMap<String, String>) -> Vec<String> {
    let mut all = Vec::new();
    for (key, value) in pod["nodeSelector"].as_object().into_iter().flatten() {
        if labels.get(key).is_some_and(|label| Some(label.as_str()) != value.as_str()) {
            all.push(format!("{key}={} (node selector)", text(value)));
        }
    }
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms: Vec<_> = required["nodeSelectorTerms"].as_array().into_iter().flatten().collect();
    let unmet = terms.iter().map(|term| unmet_of_term(term, labels));
    let mut unmet: Vec<_> = unmet.filter(|wishes| !wishes.is_empty()).collect();
    all.truncate(MOST_LISTED);
    // One matching term is enough.
    if unmet.len() == terms.len() && !unmet.is_empty() {
        unmet.truncate(MOST_LISTED);
        let several = unmet.len() > 1;
        let term = |wishes: &Vec<String>| {
            let text = wishes.join(" and ");
            if several && wishes.len() > 1 { format!("({text})") } else { text }
        };
        let text = unmet.iter().map(term).collect::<Vec<_>>().join(" or ");
        let brackets = several && !all.is_empty();
        all.push(if brackets { format!("({text})") } else { text });
    }
    all
}

/// The requirements of one node affinity term on keys of these labels that the labels do not meet.
fn unmet_of_term(term: &Value, labels: &BTreeMap<String, String>) -> Vec<String> {
    let wishes = term["matchExpressions"].as_array().into_iter().flatten();
    let unmet = wishes.filter_map(|wish| {
        let (key, operator) = (text(&wish["key"]), text(&wish["operator"]));
        let values = || wish["values"].as_array().into_iter().flatten().map(text);
        let label = labels.get(key)?;
        let met = Operator::of_nodes(operator).is_some_and(|o| o.holds(Some(label), values()));
        let shown = || values().take(MOST_LISTED).collect::<Vec<_>>().join(", ");
        (!met).then(|| format!("{key} {operator} [{}] (node affinity)", shown()))
    });
    unmet.take(MOST_LISTED).collect()
}
