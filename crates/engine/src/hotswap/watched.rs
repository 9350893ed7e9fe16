//! Which Workloads a look at the nodes visits: of all that there are, those that hold quota or were evicted for their nodes; and which groups of nodes
//! those that wait will take.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::{Name, WorkloadKey};

/// A LocalQueue: its namespace and its name.
pub(crate) type LocalQueueKey = (Name, Name);

/// Which Workloads a look visits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Watched {
    /// Those that matter, and some that no longer do, until their next change or the next look.
    pub visited: BTreeSet<WorkloadKey>,
    /// The Workloads that wait for whole groups of nodes: their LocalQueue, and the labels that make the groups.
    pub waiting: BTreeMap<WorkloadKey, (LocalQueueKey, BTreeSet<String>)>,
    /// By LocalQueue and label: how many Workloads that is.
    pub labels: BTreeMap<LocalQueueKey, BTreeMap<String, usize>>,
}

impl Watched {
    /// The Workloads that a look visits, by name.
    pub fn visited(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.visited.iter()
    }

    /// What Workloads that wait will take: the LocalQueue of some, and a label that makes their groups.
    pub fn awaited(&self) -> impl Iterator<Item = (&LocalQueueKey, &String)> {
        self.labels.iter().flat_map(|(queue, labels)| labels.keys().map(move |label| (queue, label)))
    }

    /// Replaces the groups that a Workload waits for.
    pub fn set_groups(&mut self, key: &WorkloadKey, new: Option<(LocalQueueKey, BTreeSet<String>)>) {
        if self.waiting.get(key) == new.as_ref() {
            return;
        }
        if let Some((queue, labels)) = self.waiting.remove(key)
            && let Some(of_queue) = self.labels.get_mut(&queue)
        {
            for label in &labels {
                if let Some(count) = of_queue.get_mut(label) {
                    *count -= 1;
                }
            }
            of_queue.retain(|_, count| *count > 0);
            if of_queue.is_empty() {
                self.labels.remove(&queue);
            }
        }
        if let Some((queue, labels)) = new {
            let of_queue = self.labels.entry(queue.clone()).or_default();
            for label in &labels {
                *of_queue.entry(label.clone()).or_default() += 1;
            }
            self.waiting.insert(key.clone(), (queue, labels));
        }
    }
}
