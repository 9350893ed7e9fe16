//! Current usage of quota as journal lines: the journal itself has only changes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::conditions::{self, WorkloadCondition, reason};
use sluice_api::journal::{Event, Line, Outcome, QuotaLine, Usage, WorkloadLine};
use sluice_api::v1beta2::{ClusterQueue, PodSetAssignment, Workload, WorkloadStatus};
use sluice_quantity::{Amount, Quantity, amount_of, quantity_of};

/// The line about a Workload that holds quota, or held some up to its end; nothing if it never did, or cannot be read.
pub(super) fn workload(object: Value, now: Timestamp) -> Option<Line> {
    let workload: Workload = serde_json::from_value(object).ok()?;
    let status = workload.status.as_ref()?;
    let since = conditions::true_since(&status.conditions, WorkloadCondition::QuotaReserved.as_str())?;
    let admitted = conditions::true_since(&status.conditions, WorkloadCondition::Admitted.as_str());
    let finished = conditions::find(&status.conditions, WorkloadCondition::Finished.as_str());
    let admission = status.admission.as_ref()?;
    let mut sums: BTreeMap<(&str, &str), Amount> = BTreeMap::new();
    for assigned in &admission.pod_set_assignments {
        for (resource, flavor) in &assigned.flavors {
            let sum = sums.entry((flavor, resource)).or_default();
            *sum = sum.add(held(assigned, resource, status));
        }
    }
    let mut usage: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for ((flavor, resource), amount) in sums {
        let text = quantity_of(resource, amount).to_string();
        usage.entry(flavor.to_owned()).or_default().insert(resource.to_owned(), text);
    }
    let held = Usage { usage };
    let (at, event) = match finished.filter(|condition| condition.status == "True") {
        None => (now, Event::Holding { since, admitted, held }),
        Some(end) => {
            let failed = [reason::FAILED, reason::FAILED_TO_START].contains(&end.reason.as_str());
            let outcome = if failed { Outcome::Failed } else { Outcome::Finished };
            let at = end.last_transition_time.0.max(since);
            (at, Event::Released { since, outcome, reason: end.reason.clone(), held })
        }
    };
    let metadata = workload.metadata;
    Some(Line::Workload(Box::new(WorkloadLine {
        at,
        namespace: metadata.namespace?,
        workload: metadata.name?,
        uid: metadata.uid?,
        local_queue: workload.spec.queue_name.clone().unwrap_or_default(),
        cluster_queue: admission.cluster_queue.clone(),
        priority: workload.spec.priority.unwrap_or_default(),
        event,
    })))
}

/// A pod set's usage of a resource, without pods that have ended and are not replaced.
fn held(assigned: &PodSetAssignment, resource: &str, status: &WorkloadStatus) -> Amount {
    let text = assigned.resource_usage.get(resource).map_or("0", |quantity| quantity.0.as_str());
    let total = Quantity::parse(text).map_or(Amount::ZERO, |quantity| amount_of(resource, &quantity));
    let pods = i64::from(assigned.count.unwrap_or(0));
    let over = status.reclaimable_pods.iter().find(|pods| pods.name == assigned.name);
    let over = over.map_or(0, |pods| i64::from(pods.count)).clamp(0, pods.max(0));
    if over == 0 || pods <= 0 { total } else { Amount(total.get() / pods).saturating_mul(pods - over) }
}

/// The line about a ClusterQueue's quota.
pub(super) fn cluster_queue(object: Value, now: Timestamp) -> Option<Line> {
    let queue: ClusterQueue = serde_json::from_value(object).ok()?;
    let mut nominal: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for flavor in queue.spec.resource_groups.iter().flat_map(|group| &group.flavors) {
        let resources = flavor.resources.iter().map(|r| (r.name.clone(), r.nominal_quota.0.clone()));
        nominal.entry(flavor.name.clone()).or_default().extend(resources);
    }
    let cohort = queue.spec.cohort_name.unwrap_or_default();
    let created = queue.metadata.creation_timestamp.map(|time| time.0);
    let (cluster_queue, stop_policy) = (queue.metadata.name?, queue.spec.stop_policy);
    let line =
        QuotaLine { at: now, cluster_queue, cohort, nominal, created, stop_policy, ..QuotaLine::default() };
    Some(Line::Quota(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn running() -> Value {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "w", "namespace": "a", "uid": "u"},
            "spec": {"queueName": "lq", "podSets": []},
            "status": {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [
                    {"name": "main", "count": 4, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "6"}},
                    {"name": "more", "count": 1, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "500m"}},
                ]},
                "reclaimablePods": [{"name": "main", "count": 3}],
                "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "x", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        })
    }

    #[test]
    fn what_runs_holds_what_its_remaining_pods_take() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let Some(Line::Workload(line)) = workload(running(), now) else { panic!() };
        let Event::Holding { since, held, .. } = line.event else { panic!() };
        assert_eq!(since.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(serde_json::to_value(held.usage).unwrap(), json!({"spot": {"cpu": "2"}}));
        assert_eq!((line.local_queue.as_str(), line.cluster_queue.as_str()), ("lq", "cq"));
    }

    #[test]
    fn what_is_over_says_until_when_it_held_quota() {
        let mut finished = running();
        let end = json!({"type": "Finished", "status": "True", "reason": "Failed", "message": "", "lastTransitionTime": "2026-01-01T06:00:00Z"});
        finished["status"]["conditions"].as_array_mut().unwrap().push(end);
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let Some(Line::Workload(line)) = workload(finished, now) else { panic!() };
        let Event::Released { since, outcome, .. } = line.event else { panic!() };
        assert_eq!(
            (line.at.to_string(), since.to_string()),
            ("2026-01-01T06:00:00Z".to_owned(), "2026-01-01T00:00:00Z".to_owned())
        );
        assert_eq!(outcome, Outcome::Failed);
    }

    #[test]
    fn what_waits_or_cannot_be_read_holds_nothing() {
        let mut waiting = running();
        waiting["status"]["conditions"][0]["status"] = json!("False");
        for object in [waiting, json!({"metadata": {"name": 7}}), json!(null)] {
            assert_eq!(workload(object, Timestamp::UNIX_EPOCH), None);
        }
    }
}
