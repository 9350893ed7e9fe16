//! Converts the objects of a cluster to the oracle's plain types.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};
use sluice_quantity::{Amount, Quantity, amount_of};
use sluice_sim::{Simulation, faults};

use super::oracle::world::{
    Admitted, BorrowWithinCohort, Cohort, FairStrategy, Flavor, Fr, Fungibility, Group, Name, PodSet, Policy,
    PreemptionPolicies, Queue, Quota, Reservation, Strategy, Usage, Workload, World, name,
};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn pairs(value: &Value) -> impl Iterator<Item = (Name, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (name(key), value))
}

fn amount(resource: &str, value: &Value) -> Option<Amount> {
    let quantity = match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Quantity::parse(&quantity).ok().map(|quantity| amount_of(resource, &quantity))
}

fn groups(value: &Value) -> Vec<Group> {
    let quota = |value: &Value| {
        let resource = text(&value["name"]);
        let quota = Quota {
            nominal: amount(resource, &value["nominalQuota"]).unwrap_or_default(),
            borrowing_limit: amount(resource, &value["borrowingLimit"]),
            lending_limit: amount(resource, &value["lendingLimit"]),
        };
        (name(resource), quota)
    };
    let flavor = |value: &Value| (name(text(&value["name"])), list(&value["resources"]).map(quota).collect());
    let group = |value: &Value| Group {
        covered: list(&value["coveredResources"]).map(|r| name(text(r))).collect(),
        flavors: list(&value["flavors"]).map(flavor).collect(),
    };
    list(value).map(group).collect()
}

fn weight(spec: &Value) -> f64 {
    match &spec["fairSharing"]["weight"] {
        Value::String(text) => text.parse().unwrap_or(1.0),
        Value::Number(number) => number.as_f64().unwrap_or(1.0),
        _ => 1.0,
    }
}

fn above(value: &Value) -> Option<Name> {
    value.as_str().filter(|above| !above.is_empty()).map(name)
}

fn policy(value: &Value) -> Policy {
    match text(value) {
        "LowerPriority" => Policy::LowerPriority,
        "LowerOrNewerEqualPriority" => Policy::LowerOrNewerEqualPriority,
        "Any" => Policy::Any,
        _ => Policy::Never,
    }
}

fn queue(spec: &Value) -> Queue {
    let (preemption, fungibility) = (&spec["preemption"], &spec["flavorFungibility"]);
    let borrow = &preemption["borrowWithinCohort"];
    let threshold = borrow["maxPriorityThreshold"].as_i64().and_then(|t| i32::try_from(t).ok());
    Queue {
        cohort: above(&spec["cohortName"]),
        groups: groups(&spec["resourceGroups"]),
        strategy: match text(&spec["queueingStrategy"]) {
            "StrictFIFO" => Strategy::StrictFifo,
            _ => Strategy::BestEffortFifo,
        },
        preemption: PreemptionPolicies {
            within_cluster_queue: policy(&preemption["withinClusterQueue"]),
            reclaim_within_cohort: policy(&preemption["reclaimWithinCohort"]),
            borrow_within_cohort: (text(&borrow["policy"]) == "LowerPriority")
                .then_some(BorrowWithinCohort { threshold }),
        },
        fungibility: Fungibility {
            try_next_when_borrowing: fungibility["whenCanBorrow"] == "TryNextFlavor",
            try_next_when_preempting: fungibility["whenCanPreempt"] == "TryNextFlavor",
            preemption_over_borrowing: fungibility["preference"] == "PreemptionOverBorrowing",
        },
        weight: weight(spec),
        active: ["", "None"].contains(&text(&spec["stopPolicy"])),
    }
}

/// The queues, cohorts and flavors that there are.
pub fn world(simulation: &Simulation, fair: Option<Vec<FairStrategy>>) -> World {
    let named = |kind| simulation.objects(kind).map(|(r, value)| (r.name.clone(), &value["spec"]));
    let flavor = |spec: &Value| Flavor {
        labels: pairs(&spec["nodeLabels"]).map(|(key, value)| (key, name(text(value)))).collect(),
        taints: list(&spec["nodeTaints"]).map(|taint| name(text(&taint["key"]))).collect(),
    };
    let cohort = |spec: &Value| Cohort {
        parent: above(&spec["parentName"]),
        groups: groups(&spec["resourceGroups"]),
        weight: weight(spec),
    };
    World {
        flavors: named(Kind::ResourceFlavor).map(|(n, spec)| (n, flavor(spec))).collect(),
        cohorts: named(Kind::Cohort).map(|(n, spec)| (n, cohort(spec))).collect(),
        queues: named(Kind::ClusterQueue).map(|(n, spec)| (n, queue(spec))).collect(),
        fair,
    }
}

/// What changes when a spec does: the generations of what [`world`] reads.
pub fn generations(simulation: &Simulation) -> Vec<i64> {
    let kinds = [Kind::ResourceFlavor, Kind::Cohort, Kind::ClusterQueue, Kind::LocalQueue];
    let objects = kinds.into_iter().flat_map(|kind| simulation.objects(kind));
    objects.map(|(_, value)| value["metadata"]["generation"].as_i64().unwrap_or(0)).collect()
}

/// A condition of a status.
pub fn condition<'a>(value: &'a Value, type_: &str) -> Option<&'a Value> {
    list(&value["status"]["conditions"]).find(|c| c["type"] == type_)
}

pub fn is_true(value: &Value, type_: &str) -> bool {
    condition(value, type_).is_some_and(|c| c["status"] == "True")
}

fn time(value: &Value) -> i64 {
    text(value).parse::<Timestamp>().map_or(0, Timestamp::as_second)
}

/// A Workload as far as rules look at it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub plain: Workload,
    pub held: Option<Reservation>,
    /// It holds quota by a late write of a former leader, and its job has not been started: that may be beyond what there is.
    pub late: bool,
    pub finished: bool,
    /// That a manager last decided to give it quota.
    pub decided: Option<Decided>,
    /// Whether it may be admitted as far as it goes: active, not held back, no check failed, its queue is not stopped.
    pub may_run: bool,
    /// While it is evicted because of a preemption: the reason, and the preemptor's UID.
    pub preempted: Option<(String, String)>,
    /// Why it waits: the reason of `QuotaReserved`, while that is not true.
    pub waits_for: Option<(String, String)>,
}

/// That a manager gave a Workload quota.
#[derive(Clone, Debug)]
pub struct Decided {
    pub at: Timestamp,
    /// Until when it counted on that.
    pub until: Timestamp,
    /// The Workloads to which it had given quota by then, as far as it knew.
    pub beside: BTreeSet<Name>,
}

fn decided(decided: &faults::Decided) -> Decided {
    let beside = decided.beside.iter().map(key).collect();
    Decided { at: decided.at, until: decided.until, beside }
}

/// The name of a Workload with its namespace.
fn key(reference: &ObjectRef) -> Name {
    name(&format!("{}/{}", reference.namespace, reference.name))
}

fn pod_set(set: &Value, reclaimable: i64) -> PodSet {
    let spec = &set["template"]["spec"];
    let mut requests: BTreeMap<Name, Amount> = BTreeMap::new();
    for container in list(&spec["containers"]) {
        for (resource, value) in pairs(&container["resources"]["requests"]) {
            let sum = requests.entry(resource.clone()).or_default();
            *sum = sum.add(amount(&resource, value).unwrap_or_default());
        }
    }
    PodSet {
        name: name(text(&set["name"])),
        count: set["count"].as_i64().unwrap_or(1) - reclaimable,
        min_count: set["minCount"].as_i64(),
        requests,
        node_selector: pairs(&spec["nodeSelector"]).map(|(k, v)| (k, name(text(v)))).collect(),
        tolerated: list(&spec["tolerations"]).map(|t| name(text(&t["key"]))).collect(),
    }
}

fn held(value: &Value, workload: &Workload) -> Reservation {
    let mut usage = Usage::new();
    let mut pod_sets = Vec::new();
    for set in list(&value["status"]["admission"]["podSetAssignments"]) {
        let flavors: BTreeMap<Name, Name> = pairs(&set["flavors"]).map(|(r, f)| (r, name(text(f)))).collect();
        for (resource, used) in pairs(&set["resourceUsage"]) {
            let Some(flavor) = flavors.get(&resource).cloned() else { continue };
            let sum = usage.entry(Fr { flavor, resource: resource.clone() }).or_default();
            *sum = sum.add(amount(&resource, used).unwrap_or_default());
        }
        pod_sets.push((name(text(&set["name"])), set["count"].as_i64().unwrap_or(0), flavors));
    }
    let queue = name(text(&value["status"]["admission"]["clusterQueue"]));
    Reservation {
        workload: Workload { queue, ..workload.clone() },
        admitted: Admitted { pod_sets },
        usage,
        reserved_at: condition(value, "QuotaReserved").map_or(0, |c| time(&c["lastTransitionTime"])),
        evicted: is_true(value, "Evicted"),
    }
}

/// A Workload of a cluster.
pub fn workload(simulation: &Simulation, reference: &ObjectRef, value: &Value) -> Seen {
    let (spec, status, metadata) = (&value["spec"], &value["status"], &value["metadata"]);
    let local =
        ObjectRef::namespaced(Kind::LocalQueue, reference.namespace.clone(), text(&spec["queueName"]));
    let local = simulation.object(&local).map(|queue| &queue["spec"]);
    let reclaimable = |set: &Value| {
        let of = list(&status["reclaimablePods"]).find(|pods| pods["name"] == set["name"]);
        of.and_then(|pods| pods["count"].as_i64()).unwrap_or(0)
    };
    let plain = Workload {
        key: key(reference),
        uid: name(text(&metadata["uid"])),
        queue: local.map_or(name(""), |queue| name(text(&queue["clusterQueue"]))),
        priority: spec["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or(0),
        created: time(&metadata["creationTimestamp"]),
        pod_sets: list(&spec["podSets"]).map(|set| pod_set(set, reclaimable(set))).collect(),
        gated: false,
        replaces: None,
    };
    let finished = is_true(value, "Finished");
    let reserved = is_true(value, "QuotaReserved") && !finished;
    let failed = |check: &Value| ["Retry", "Rejected"].contains(&text(&check["state"]));
    let stopped = local.is_none_or(|queue| !["", "None"].contains(&text(&queue["stopPolicy"])));
    let waits = condition(value, "Requeued").is_some_and(|c| c["status"] == "False");
    let preempted = condition(value, "Preempted").filter(|_| is_true(value, "Evicted")).and_then(|why| {
        let (_, rest) = text(&why["message"]).split_once("(UID: ")?;
        let (uid, _) = rest.split_once(',')?;
        (why["status"] == "True").then(|| (text(&why["reason"]).to_owned(), uid.to_owned()))
    });
    let why = condition(value, "QuotaReserved").filter(|c| c["status"] != "True");
    Seen {
        held: reserved.then(|| held(value, &plain)),
        late: simulation.late_since(reference).is_some(),
        decided: simulation.decided(reference).map(decided),
        finished,
        may_run: spec["active"] != false
            && metadata["deletionTimestamp"].is_null()
            && !waits
            && !stopped
            && !list(&status["admissionChecks"]).any(failed),
        preempted,
        waits_for: why.map(|c| (text(&c["reason"]).to_owned(), text(&c["message"]).to_owned())),
        plain,
    }
}

/// Every Workload of a cluster.
pub fn workloads(simulation: &Simulation) -> BTreeMap<Name, Seen> {
    let all = simulation.objects(Kind::Workload);
    all.map(|(reference, value)| workload(simulation, reference, value))
        .map(|seen| (seen.plain.key.clone(), seen))
        .collect()
}

/// The names of a set of workloads, for people.
pub fn names<'a>(of: impl Iterator<Item = &'a Name>) -> String {
    of.map(ToString::to_string).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// What a ClusterQueue's status says is reserved.
pub fn reservation(queue: &Value) -> Vec<(Fr, Amount)> {
    let flavors = list(&queue["status"]["flavorsReservation"]);
    let of = |flavor: &Value| {
        let name_ = name(text(&flavor["name"]));
        let resources: Vec<_> = list(&flavor["resources"]).cloned().collect();
        resources.into_iter().map(move |r| {
            let resource = name(text(&r["name"]));
            let total = amount(&resource, &r["total"]).unwrap_or_default();
            (Fr { flavor: name_.clone(), resource }, total)
        })
    };
    flavors.flat_map(of).collect()
}
