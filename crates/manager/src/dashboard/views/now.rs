//! The view Now: cohorts, ClusterQueues with their quotas, and the latest changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_engine::Name;

use crate::dashboard::amounts::{shown, units};
use crate::dashboard::happening::Happening;
use crate::dashboard::rows::{CohortRow, QueueRow, Quota};
use crate::dashboard::seen_queues::SeenQueues;
use crate::dashboard::snapshot::{QueueSums, Snapshot};
use crate::dashboard::viewer::Viewer;
use crate::dashboard::views::items::shown_reason;
use crate::dashboard::views::lent::{Lent, used};

/// The answer: as of `old` if the cluster cannot be read, else as of now.
pub fn now(snapshot: &Snapshot, viewer: &Viewer, old: Option<Timestamp>) -> Value {
    let none = QueueSums::default();
    let lent = Lent::of(snapshot);
    let seen = snapshot.seen_queues(viewer);
    let sums = |name: &Name| snapshot.complete.then(|| snapshot.sums().get(name).unwrap_or(&none));
    let (own, others): (Vec<_>, Vec<_>) =
        snapshot.cluster_queues.iter().partition(|(name, _)| seen.queue(name));
    let queue = |(name, row): (&Name, &Arc<QueueRow>)| cluster_queue((name, row), sums(name), &lent);
    json!({
        "at": old.unwrap_or_else(Timestamp::now).to_string(),
        "live": old.is_none(),
        "revision": snapshot.revision,
        "cohorts": cohorts(snapshot, &lent, &seen),
        "clusterQueues": own.into_iter().map(queue).collect::<Vec<_>>(),
        "others": (!others.is_empty()).then(|| sum(&others, sums, &lent)),
        "recent": snapshot.recent.iter().map(|one| happening(one, viewer, &seen)).collect::<Vec<_>>(),
    })
}

/// Cohorts that have an object, and Cohorts that are only named, as far as the viewer may know them.
fn cohorts(snapshot: &Snapshot, lent: &Lent<'_>, seen: &SeenQueues<'_>) -> Vec<Value> {
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
        // A Cohort's own quota is used only by others.
        let own = |quota: &Quota| {
            let lent = lent.by_cohort(name, quota);
            Use::of(quota, lent, lent)
        };
        json!({"name": name, "parent": row.parent, "flavors": flavors(&row.quotas, own)})
    };
    all.into_iter().filter(|(name, _)| seen.cohort(name)).map(cohort).collect()
}

/// The use of a quota: by its owner, borrowed by its owner, lent to others.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    used: i64,
    borrowed: i64,
    lent: i64,
}

impl Use {
    fn of(quota: &Quota, used: i64, lent: i64) -> Self {
        Self { used, borrowed: used.saturating_sub(quota.nominal).max(0), lent }
    }

    fn add(&mut self, other: Self) {
        self.used = self.used.saturating_add(other.used);
        self.borrowed = self.borrowed.saturating_add(other.borrowed);
        self.lent = self.lent.saturating_add(other.lent);
    }
}

/// How many Workloads are pending, reserving and admitted: from the sums over all of them, if they are known, else from the queue's status.
fn counts(row: &QueueRow, sums: Option<&QueueSums>) -> [usize; 3] {
    match sums {
        Some(sums) => [sums.pending, sums.reserving, sums.admitted],
        None => row.counts.map(|count| usize::try_from(count).unwrap_or(0)),
    }
}

/// The queues that the viewer may not know, as one: their number, and their sums. What borrows and lends are several queues, each with limits of its
/// own.
fn sum<'a>(
    queues: &[(&Name, &Arc<QueueRow>)],
    sums: impl Fn(&Name) -> Option<&'a QueueSums>,
    lent: &Lent<'_>,
) -> Value {
    let mut all_counts = [0_usize; 3];
    let mut slots: BTreeMap<(Name, Name), (Quota, Use)> = BTreeMap::new();
    for (name, row) in queues {
        let sums = sums(name);
        for (count, one) in all_counts.iter_mut().zip(counts(row, sums)) {
            *count += one;
        }
        for quota in &row.quotas {
            let slot = (Name::clone(&quota.flavor), Name::clone(&quota.resource));
            let none = Quota { nominal: 0, borrowing_limit: None, lending_limit: None, ..quota.clone() };
            let (sum, all) = slots.entry(slot).or_insert((none, Use::default()));
            sum.nominal = sum.nominal.saturating_add(quota.nominal);
            all.add(Use::of(quota, used(row, sums, quota), lent.by_queue(name, quota)));
        }
    }
    let quotas: Vec<Quota> = slots.values().map(|(quota, _)| quota.clone()).collect();
    let of = |quota: &Quota| {
        let slot = (Name::clone(&quota.flavor), Name::clone(&quota.resource));
        slots.get(&slot).map(|(_, all)| *all).unwrap_or_default()
    };
    let [pending, reserving, admitted] = all_counts;
    json!({
        "queues": queues.len(),
        "pending": pending,
        "reserving": reserving,
        "admitted": admitted,
        "flavors": flavors(&quotas, of),
    })
}

/// `sums` are over all Workloads, if they are known: else the queue's status has its usage.
fn cluster_queue((name, row): (&Name, &QueueRow), sums: Option<&QueueSums>, lent: &Lent<'_>) -> Value {
    let state = match (row.stopped, row.active) {
        (true, _) => "stopped",
        (false, true) => "active",
        (false, false) => "inactive",
    };
    let [pending, reserving, admitted] = counts(row, sums);
    let own = |quota: &Quota| Use::of(quota, used(row, sums, quota), lent.by_queue(name, quota));
    json!({
        "name": name,
        "cohort": row.cohort,
        "state": state,
        "reason": row.reason,
        "message": row.message,
        "pending": pending,
        "reserving": reserving,
        "admitted": admitted,
        "flavors": flavors(&row.quotas, own),
    })
}

/// Quotas by flavor; `of` returns the use of one.
fn flavors(quotas: &[Quota], of: impl Fn(&Quota) -> Use) -> Vec<Value> {
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

fn resource(quota: &Quota, Use { used, borrowed, lent }: Use) -> Value {
    let Quota { resource, nominal, .. } = quota;
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

/// For a change that the viewer may not see: when, what, and its ClusterQueue, if the viewer may know that; and a reason that managers write. Messages
/// name other objects.
fn happening(one: &Happening, viewer: &Viewer, queues: &SeenQueues<'_>) -> Value {
    let seen = viewer.sees(&one.key.namespace);
    let queue = one.cluster_queue.as_ref().filter(|queue| seen || queues.queue(queue));
    json!({
        "at": one.at.to_string(),
        "what": one.what,
        "namespace": seen.then_some(&one.key.namespace),
        "workload": seen.then_some(&one.key.name),
        "clusterQueue": queue,
        "reason": shown_reason(&one.reason, seen),
        "message": seen.then_some(&one.message),
    })
}

#[cfg(test)]
mod tests {
    use sluice_engine::input::{Input, Object};

    use super::*;
    use crate::dashboard::store::tests::{cluster_queue, local_queue, world};

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
        let viewer = Viewer { all: true, queues: true, ..Viewer::default() };
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
        assert_eq!(now["cohorts"][2], json!({"name": "top", "parent": null, "flavors": []}));
        assert_eq!(now["others"], json!(null));
    }

    #[test]
    fn queues_that_the_viewer_may_not_know_are_one_sum() {
        let store = world();
        for name in ["secret-1", "secret-2"] {
            store.note(&Input::Applied(local_queue("secret-ns", name, name)));
            store.note(&Input::Applied(cluster_queue(name)));
        }
        let viewer = Viewer { namespaces: ["a".into()].into(), ..Viewer::default() };
        let shown = now(&store.fresh(), &viewer, None);
        assert!(!shown["others"].to_string().contains("secret"), "{shown}");
        let others = &shown["others"];
        assert_eq!(
            (&others["queues"], &others["pending"], &others["admitted"]),
            (&json!(3), &json!(1), &json!(0))
        );
        // One of them is in another cohort; the others lend what `cq` borrows.
        let slot = &others["flavors"][0]["resources"][0];
        let amounts =
            ["nominal", "used", "borrowed", "lent"].map(|field| slot["shown"][field].as_str().unwrap());
        assert_eq!((amounts, &slot["lendingLimit"]), (["12", "0", "0", "2"], &json!(null)), "{slot}");
        let queues = shown["clusterQueues"].as_array().unwrap();
        assert_eq!(queues.iter().map(|queue| &queue["name"]).collect::<Vec<_>>(), [&json!("cq")]);
    }
}
