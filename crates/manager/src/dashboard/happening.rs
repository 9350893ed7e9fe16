//! What just happened: the latest changes of Workloads, so many of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_api::conditions::{WorkloadCondition, reason};
use sluice_engine::{Name, WorkloadKey};

use super::rows::{Fact, WorkloadRow};

/// So many are kept.
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
    /// The ClusterQueue, if it is known.
    pub cluster_queue: Option<Name>,
    /// The reason of the condition.
    pub reason: Name,
    /// Its message, cut.
    pub message: Name,
}

/// What a condition that is true says.
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
        for fact in &new.facts {
            let known = old.is_some_and(|old| old.facts.iter().any(|f| f.of == fact.of && f.at == fact.at));
            if let Some(what) = word(fact).filter(|_| !known) {
                let words = (Name::clone(&fact.reason), Name::clone(&fact.message));
                self.put(new, fact.at, what, cluster_queue, words);
            }
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
        let (key, cluster_queue) = (row.key.clone(), cluster_queue.cloned());
        let happening = Happening { at, what, key, cluster_queue, reason, message };
        self.by_time.insert((at, self.next), happening);
        if self.by_time.len() > MOST {
            self.by_time.pop_first();
        }
    }

    /// All of them, the newest first.
    pub fn list(&self) -> Vec<Happening> {
        self.by_time.values().rev().cloned().collect()
    }
}
