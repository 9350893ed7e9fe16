//! Jobs that wait although they would fit: computed from the objects' quotas and nodes alone.

use super::objects::Workload;
use super::pod_sets::{Gift, PodSet, assigned, usage};
use super::quota::node_queue;
use super::{Checker, Rule};

impl Checker {
    /// Called when nothing has happened for long: a waiting job for which there is capacity is lost. While an eviction continues, its capacity may be
    /// meant for another job, so nothing can be said.
    pub fn judge_waiting(&mut self) {
        if self.workloads.values().any(|workload| workload.reserved && !workload.finished && workload.evicted)
        {
            return;
        }
        for key in self.waiting_with_room() {
            self.note(Rule::Lost, &key, "it waits, and there is room for it".to_owned());
        }
    }

    /// The lost jobs, by key.
    fn waiting_with_room(&mut self) -> Vec<String> {
        let waits = |workload: &Workload| !workload.reserved && !workload.finished;
        let workloads = self.workloads.iter().filter(|(_, workload)| waits(workload));
        let waiting: Vec<_> = workloads
            .filter_map(|(key, workload)| {
                let job = self.keys.get(workload.job.as_ref()?)?.clone();
                let is_open = self.open.contains(&job) && !self.jobs.get(&job)?.deleting;
                let queue = self.rights.open_queue(key, workload).filter(|_| is_open)?;
                Some((job, queue.to_owned(), workload.clone()))
            })
            .collect();
        let mut fit = Vec::new();
        for (job, queue, workload) in &waiting {
            // In a StrictFIFO queue only the first job may start, and finding it would be more complex.
            let alone = waiting.iter().filter(|(_, other, _)| other == queue).count() == 1;
            if (alone || !self.quotas.is_strict(queue)) && self.fits(queue, workload) {
                fit.push(job.clone());
            }
        }
        fit
    }

    /// Whether a queue has room for a Workload as it asks, without taking anything from others.
    fn fits(&mut self, queue: &str, workload: &Workload) -> bool {
        let mut trial = workload.clone();
        trial.nodes = None;
        trial.usage.clear();
        let flavors = self.quotas.flavors(queue);
        self.fits_from(queue, &mut trial, 0, &flavors)
    }

    /// Tries each flavor for the pod set at this index, and continues with the next pod set.
    fn fits_from(&mut self, queue: &str, trial: &mut Workload, index: usize, flavors: &[String]) -> bool {
        if index == trial.sets.len() {
            return true;
        }
        for flavor in flavors {
            let set = &trial.sets[index];
            let pods = set.asked.saturating_sub(set.reclaimable);
            let given = set.each.keys().map(|resource| (resource.clone(), flavor.clone())).collect();
            let nodes = set.placed.then(|| self.room(trial, set, pods, flavor));
            if matches!(nodes, Some(None)) {
                continue;
            }
            let gift = Gift { pods, flavors: given, nodes: nodes.flatten(), ..Gift::default() };
            trial.sets[index].gift = Some(gift);
            trial.usage = usage(&trial.sets[..=index]);
            trial.nodes = assigned(&trial.sets[..=index]);
            let charges: Vec<_> = std::iter::once((queue.to_owned(), trial.usage.clone()))
                .chain(trial.nodes.iter().flatten().map(|(node, has)| (node_queue(node), has.usage.clone())))
                .collect();
            for (queue, usage) in &charges {
                self.quotas.add(queue, usage, 1);
            }
            let within = charges
                .iter()
                .all(|(queue, usage)| usage.keys().all(|key| self.quotas.above(queue, key).is_none()));
            for (queue, usage) in &charges {
                self.quotas.add(queue, usage, -1);
            }
            if within && self.fits_from(queue, trial, index + 1, flavors) {
                return true;
            }
        }
        trial.sets[index].gift = None;
        false
    }

    /// Nodes of one domain of the required level with capacity for the pods of a set, besides those of the sets before it.
    fn room(
        &self,
        trial: &Workload,
        set: &PodSet,
        pods: usize,
        flavor: &str,
    ) -> Option<Vec<(String, usize)>> {
        let level = set.required.as_deref().unwrap_or_default();
        for nodes in self.places.domains(flavor, level).values() {
            let (mut left, mut found) = (pods, Vec::new());
            for node in nodes {
                let taken = trial.nodes.as_ref().and_then(|nodes| nodes.get(*node));
                let room = self.quotas.room(node, &set.each, taken.map(|has| &has.usage)).min(left);
                if room > 0 {
                    found.push(((*node).to_owned(), room));
                    left -= room;
                }
            }
            if left == 0 {
                return Some(found);
            }
        }
        None
    }
}
