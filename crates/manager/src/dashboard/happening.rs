//! The latest changes of Workloads, limited in number; a namespace with many changes does not hide those of others.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_api::conditions::{WorkloadCondition, reason};
use sluice_engine::{Name, WorkloadKey};
use sluice_sim::explain::rank;

use super::rows::{Fact, WorkloadRow};

/// The number of changes that are kept.
pub const MOST: usize = 200;

/// A change of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// When.
    pub at: Timestamp,
    /// `admitted`, `reserved`, `preempted`, `evicted`, `finished`, `started`, `pending` or `hotswap`.
    pub what: &'static str,
    /// Which Workload.
    pub key: WorkloadKey,
    /// Its UID: another Workload may have had that name.
    pub uid: Name,
    /// The ClusterQueue, if it is known.
    pub cluster_queue: Option<Name>,
    /// The reason of the condition.
    pub reason: Name,
    /// Its message, cut.
    pub message: Name,
}

/// The word for a condition that is true.
pub fn word(fact: &Fact) -> Option<&'static str> {
    Some(match fact.of {
        WorkloadCondition::QuotaReserved => "reserved",
        WorkloadCondition::Admitted => "admitted",
        WorkloadCondition::PodsReady => "started",
        WorkloadCondition::Finished => "finished",
        WorkloadCondition::Evicted if &*fact.reason == reason::PREEMPTED => "preempted",
        WorkloadCondition::Evicted if &*fact.reason == reason::NODE_FAILURES => "hotswap",
        WorkloadCondition::Evicted => "evicted",
        _ => return None,
    })
}

/// The latest, by time and arrival.
#[derive(Debug, Default)]
pub struct Latest {
    by_time: BTreeMap<(Timestamp, u64), Happening>,
    next: u64,
}

impl Latest {
    /// A Workload was seen, and before in this form.
    pub fn note(&mut self, old: Option<&WorkloadRow>, new: &WorkloadRow, cluster_queue: Option<&Name>) {
        if let (None, Some(created)) = (old, new.created) {
            let (reason, message) = ("".into(), "".into());
            self.put(new, created, "pending", cluster_queue, (reason, message));
        }
        let is_known =
            |fact: &Fact| old.is_some_and(|old| old.facts.iter().any(|f| f.of == fact.of && f.at == fact.at));
        let facts = new.facts.iter().filter(|fact| !is_known(fact));
        let mut news: Vec<_> = facts.filter_map(|fact| Some((word(fact)?, fact))).collect();
        // A status lists its conditions in no order.
        news.sort_by_key(|(what, _)| rank(what, false));
        for (what, fact) in news {
            let words = (Name::clone(&fact.reason), Name::clone(&fact.message));
            self.put(new, fact.at, what, cluster_queue, words);
        }
    }

    fn put(
        &mut self,
        row: &WorkloadRow,
        at: Timestamp,
        what: &'static str,
        cluster_queue: Option<&Name>,
        (reason, message): (Name, Name),
    ) {
        self.next += 1;
        let (key, uid, cluster_queue) = (row.key.clone(), Name::clone(&row.uid), cluster_queue.cloned());
        let happening = Happening { at, what, key, uid, cluster_queue, reason, message };
        self.by_time.insert((at, self.next), happening);
        if self.by_time.len() > MOST {
            self.make_room();
        }
    }

    /// The oldest goes of the namespaces that have the most.
    fn make_room(&mut self) {
        let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
        for happening in self.by_time.values() {
            *counts.entry(&happening.key.namespace).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let mut all = self.by_time.iter();
        let goes = all.find(|(_, happening)| counts.get(&happening.key.namespace) == Some(&most));
        if let Some(at) = goes.map(|(at, _)| *at) {
            self.by_time.remove(&at);
        }
    }

    /// All of them, the newest first.
    pub fn list(&self) -> Vec<Happening> {
        self.by_time.values().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(latest: &mut Latest, namespace: &str, second: i64) {
        let at = Timestamp::from_second(second).unwrap().to_string();
        let metadata = json!({"namespace": namespace, "name": second.to_string(), "creationTimestamp": at});
        let workload = serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap();
        latest.note(None, &WorkloadRow::of(&workload), None);
    }

    #[test]
    fn a_namespace_with_many_changes_hides_none_of_others_and_the_oldest_go_first() {
        let mut latest = Latest::default();
        put(&mut latest, "quiet", 1);
        put(&mut latest, "calm", 2);
        for second in 10..5_000 {
            put(&mut latest, "loud", second);
        }
        let all = latest.list();
        assert_eq!(all.len(), MOST);
        let of = |namespace: &str| all.iter().filter(|one| &*one.key.namespace == namespace).count();
        assert_eq!((of("quiet"), of("calm"), of("loud")), (1, 1, MOST - 2));
        assert_eq!((&*all[0].key.name, &*all[MOST - 1].key.name), ("4999", "1"));
        // Among equals the oldest goes.
        let mut latest = Latest::default();
        for second in 0..300 {
            put(&mut latest, &format!("ns-{second}"), second);
        }
        assert_eq!(&*latest.list()[MOST - 1].key.name, "100");
    }
}
