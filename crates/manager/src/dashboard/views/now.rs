//! The view Now: cohorts, ClusterQueues with their quotas, and what just happened.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_engine::Name;

use crate::dashboard::amounts::{shown, units};
use crate::dashboard::happening::Happening;
use crate::dashboard::rows::{CohortRow, QueueRow, Quota};
use crate::dashboard::snapshot::{QueueSums, Snapshot};
use crate::dashboard::viewer::Viewer;
use crate::dashboard::views::lent::{Lent, used};

/// The answer: of `old` if the cluster cannot be read, else of now.
pub fn now(snapshot: &Snapshot, viewer: &Viewer, old: Option<Timestamp>) -> Value {
    let none = QueueSums::default();
    let lent = Lent::of(snapshot);
    let queue = |(name, row): (&Name, &Arc<QueueRow>)| {
        let sums = snapshot.sums().get(name).unwrap_or(&none);
        cluster_queue((name, row), snapshot.complete.then_some(sums), &lent)
    };
    json!({
        "at": old.unwrap_or_else(Timestamp::now).to_string(),
        "live": old.is_none(),
        "revision": snapshot.revision,
        "cohorts": cohorts(snapshot, &lent),
        "clusterQueues": snapshot.cluster_queues.iter().map(queue).collect::<Vec<_>>(),
        "recent": snapshot.recent.iter().map(|one| happening(one, viewer)).collect::<Vec<_>>(),
    })
}

/// Cohorts that are objects, and those that are only named.
fn cohorts(snapshot: &Snapshot, lent: &Lent<'_>) -> Vec<Value> {
    let none = CohortRow::default();
    let mut all: BTreeMap<&Name, &CohortRow> = BTreeMap::new();
    for (name, row) in &snapshot.cohorts {
        all.insert(name, row);
    }
    let named = snapshot.cohorts.values().filter_map(|row| row.parent.as_ref());
    for cohort in named.chain(snapshot.cluster_queues.values().filter_map(|row| row.cohort.as_ref())) {
        all.entry(cohort).or_insert(&none);
    }
    let cohort = |(name, row): (&Name, &CohortRow)| {
        // Nothing but what others took is used of a Cohort's own quota.
        let own = |quota: &Quota| {
            let lent = lent.by_cohort(name, quota);
            (lent, lent)
        };
        json!({"name": name, "parent": row.parent, "flavors": flavors(&row.quotas, own)})
    };
    all.into_iter().map(cohort).collect()
}

/// `sums` are those of all Workloads, if they are known: else its own status says what it holds.
fn cluster_queue((name, row): (&Name, &QueueRow), sums: Option<&QueueSums>, lent: &Lent<'_>) -> Value {
    let state = match (row.stopped, row.active) {
        (true, _) => "stopped",
        (false, true) => "active",
        (false, false) => "inactive",
    };
    let [pending, reserving, admitted] = row.counts;
    let own = |quota: &Quota| (used(row, sums, quota), lent.by_queue(name, quota));
    json!({
        "name": name,
        "cohort": row.cohort,
        "state": state,
        "reason": row.reason,
        "message": row.message,
        "pending": sums.map_or(json!(pending), |sums| json!(sums.pending)),
        "reserving": sums.map_or(json!(reserving), |sums| json!(sums.reserving)),
        "admitted": sums.map_or(json!(admitted), |sums| json!(sums.admitted)),
        "flavors": flavors(&row.quotas, own),
    })
}

/// Quotas by flavor; `of` says how much of one is used, and how much is lent.
fn flavors(quotas: &[Quota], of: impl Fn(&Quota) -> (i64, i64)) -> Vec<Value> {
    let mut flavors: Vec<(&Name, Vec<Value>)> = Vec::new();
    for quota in quotas {
        let resource = resource(quota, of(quota));
        match flavors.iter_mut().find(|(flavor, _)| **flavor == quota.flavor) {
            Some((_, resources)) => resources.push(resource),
            None => flavors.push((&quota.flavor, vec![resource])),
        }
    }
    let flavor = |(flavor, resources)| json!({"flavor": flavor, "resources": resources});
    flavors.into_iter().map(flavor).collect()
}

fn resource(quota: &Quota, (used, lent): (i64, i64)) -> Value {
    let Quota { resource, nominal, .. } = quota;
    let borrowed = used.saturating_sub(*nominal).max(0);
    let limit = |limit: Option<i64>| limit.map(|limit| units(resource, limit));
    let words = |limit: Option<i64>| limit.map(|limit| shown(resource, limit));
    json!({
        "resource": resource,
        "nominal": units(resource, *nominal),
        "used": units(resource, used),
        "borrowed": units(resource, borrowed),
        "lent": units(resource, lent),
        "lendingLimit": limit(quota.lending_limit),
        "borrowingLimit": limit(quota.borrowing_limit),
        "shown": {
            "nominal": shown(resource, *nominal),
            "used": shown(resource, used),
            "borrowed": shown(resource, borrowed),
            "lent": shown(resource, lent),
            "lendingLimit": words(quota.lending_limit),
            "borrowingLimit": words(quota.borrowing_limit),
        },
    })
}

/// Of what the viewer may not see: when, what and in which ClusterQueue. Messages name others.
fn happening(one: &Happening, viewer: &Viewer) -> Value {
    let seen = viewer.sees(&one.key.namespace);
    json!({
        "at": one.at.to_string(),
        "what": one.what,
        "namespace": seen.then_some(&one.key.namespace),
        "workload": seen.then_some(&one.key.name),
        "clusterQueue": one.cluster_queue,
        "reason": one.reason,
        "message": seen.then_some(&one.message),
    })
}

#[cfg(test)]
mod tests {
    use sluice_engine::input::{Input, Object};

    use super::*;
    use crate::dashboard::store::tests::world;

    #[test]
    fn a_cohort_shows_its_own_quota_and_what_others_use_of_it() {
        let store = world();
        let quota = json!({"name": "cpu", "nominalQuota": "5", "lendingLimit": "3"});
        let flavors = json!([{"name": "spot", "resources": [quota]}]);
        let cohort = json!({
            "metadata": {"name": "all"},
            "spec": {"parentName": "top", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]},
        });
        store.note(&Input::Applied(Object::Cohort(serde_json::from_value(cohort).unwrap())));
        let viewer = Viewer { all: true, ..Viewer::default() };
        let now = now(&store.fresh(), &viewer, None);
        assert_eq!(
            (&now["cohorts"][0]["name"], &now["cohorts"][0]["parent"]),
            (&json!("all"), &json!("top"))
        );
        // The queue of four uses six.
        let own = &now["cohorts"][0]["flavors"][0]["resources"][0];
        let amounts =
            ["nominal", "used", "lent", "lendingLimit"].map(|field| own["shown"][field].as_str().unwrap());
        assert_eq!(amounts, ["5", "2", "2", "3"], "{own}");
        let queue = &now["clusterQueues"][0]["flavors"][0]["resources"][0];
        assert_eq!((&queue["borrowed"], &queue["lent"]), (&json!(2.0), &json!(0.0)), "{queue}");
        assert_eq!(now["cohorts"][1], json!({"name": "top", "parent": null, "flavors": []}));
    }
}
