//! A workload's usage, its excess over another's, and what it keeps from others.

use super::snapshot::{Snapshot, queue};
use super::world::{Admitted, Fr, Name, Usage, Workload};
use sluice_quantity::Amount;

/// What this is more than that.
pub fn beyond(usage: &Usage, held: &Usage) -> Usage {
    let more =
        |fr: &Fr, amount: &Amount| amount.sub(held.get(fr).copied().unwrap_or_default()).max(Amount::ZERO);
    usage.iter().map(|(fr, amount)| (fr.clone(), more(fr, amount))).collect()
}

/// What the workload uses when it is admitted like this.
pub fn usage_of(workload: &Workload, admitted: &Admitted, covers_pods: bool) -> Usage {
    let mut usage = Usage::new();
    for (pod_set, (_, count, flavors)) in workload.pod_sets.iter().zip(&admitted.pod_sets) {
        for (resource, flavor) in flavors {
            let per_pod = match pod_set.requests.get(resource) {
                _ if covers_pods && &**resource == "pods" => Amount(1),
                Some(amount) => (*amount).max(Amount::ZERO),
                None => continue,
            };
            let fr = Fr { flavor: flavor.clone(), resource: resource.clone() };
            let sum = usage.entry(fr).or_default();
            *sum = sum.add(per_pod.saturating_mul(*count));
        }
    }
    usage
}

/// The capacity that a head which cannot preempt anyone keeps from others in this cycle.
pub fn reserved(snapshot: &Snapshot<'_>, name: &Name, usage: &Usage, borrowing: bool) -> Usage {
    let node = queue(name);
    let of = |fr: &Fr, usage: Amount| {
        let quota = snapshot.tree.quota(&node, fr);
        let used = snapshot.usage(&node, fr);
        match (borrowing, quota.borrowing_limit) {
            (true, None) => usage,
            (true, Some(limit)) => usage.min(quota.nominal.add(limit).sub(used)),
            (false, _) => usage.min(quota.nominal.sub(used)).max(Amount::ZERO),
        }
    };
    usage.iter().map(|(fr, usage)| (fr.clone(), of(fr, *usage))).collect()
}
