//! How many pods an elastic job has, if its spec does not say it (docs/reference/06-algorithm.md 6.26).
//!
//! A job whose controller makes parts of it has the pods of the parts that run: their sizes change, and the job's spec does not. A job that stops, or
//! whose own autoscaler ends its pods, holds its quota as long as its pods use it.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::{JobPodSet, JobView};

use crate::engine::Engine;
use crate::hotswap::pod::PodKey;
use crate::ingest::workload::{is, reserved};
use crate::input::Kind;
use crate::job_pod::JobPod;
use crate::world::JobKey;

impl Engine {
    /// A job with the numbers of pods that it has.
    pub(super) fn sized(&mut self, key: &JobKey, view: Arc<JobView>) -> Arc<JobView> {
        if view.finished.is_some() || view.invalid.is_some() || !self.is_elastic(&view) {
            return view;
        }
        let mut counts: Vec<i32> = view.pod_sets.iter().map(|set| set.count).collect();
        if view.suspended {
            if self.is_active(key) {
                for (at, count) in counts.iter_mut().enumerate() {
                    *count = self.held(&view, at).max(*count);
                }
            }
        } else {
            self.follow_parts(key, &view, &mut counts);
            self.keep_what_runs(key, &view, &mut counts);
        }
        if view.pod_sets.iter().zip(&counts).all(|(set, count)| set.count == *count) {
            return view;
        }
        let mut next = JobView::clone(&view);
        for (set, count) in next.pod_sets.iter_mut().zip(counts) {
            set.count = count;
        }
        Arc::new(next)
    }

    /// The parts of an elastic job that play its pod sets, and hold their pods back as it does.
    fn playing_parts<'a>(
        &'a self,
        key: &'a JobKey,
        view: &'a JobView,
    ) -> impl Iterator<Item = (&'a JobView, &'a [JobPodSet])> {
        let parts = self.world.children.get(&view.job.uid).into_iter().flatten();
        let parts = parts.filter(move |part| part.namespace == key.namespace);
        let parts = parts.filter_map(move |part| self.world.jobs.get(part)).map(|entry| &*entry.view);
        parts.filter_map(move |part| {
            let sets = self.made(view, part)?;
            (!view.is_exceeded_by(part, true)).then_some((part, sets))
        })
    }

    /// The parts whose pod counts are those of their job.
    fn sizing_parts<'a>(&'a self, key: &'a JobKey, view: &'a JobView) -> impl Iterator<Item = &'a JobView> {
        let parts = self.playing_parts(key, view).map(|(part, _)| part);
        parts.filter(move |part| {
            let runs = !part.suspended && !part.deleting && part.finished.is_none();
            runs && view.job.kind.names_parts_of(part.job.kind)
        })
    }

    fn follow_parts(&self, key: &JobKey, view: &JobView, counts: &mut [i32]) {
        for (set, count) in view.pod_sets.iter().zip(counts) {
            let sets = self.sizing_parts(key, view).flat_map(|part| &part.pod_sets);
            let of_set = sets.filter(|theirs| theirs.name == set.name).map(|theirs| theirs.count);
            *count = of_set.reduce(i32::saturating_add).unwrap_or(*count);
        }
    }

    /// Pods that a job does not want any more keep their quota until they have ended, which the job's own autoscaler, if it has one, may delay.
    fn keep_what_runs(&self, key: &JobKey, view: &JobView, counts: &mut [i32]) {
        let pods = self.pods_of_elastic(key, view);
        for ((at, set), count) in view.pod_sets.iter().enumerate().zip(counts) {
            let held = self.held(view, at);
            if *count >= held {
                continue;
            }
            let stays =
                |pod: &OfElastic<'_>| pod.pod.is_free() && !(pod.pod.leaves && self.is_stuck(pod.key));
            let run = pods.iter().filter(|pod| pod.is_of(view, &set.name) && stays(pod)).count();
            let run = i32::try_from(run).unwrap_or(i32::MAX);
            let run = if self.listed.contains(&Kind::JobPod) { run.min(held) } else { held };
            *count = run.max(*count);
        }
    }

    /// Whether a pod is on a node that is known to be lost.
    fn is_stuck(&self, pod: &PodKey) -> bool {
        let pod = self.world.pods.get(pod).filter(|_| self.listed.contains(&Kind::Node));
        pod.and_then(|pod| self.lost_from(pod)).is_some_and(|from| from <= self.now)
    }

    /// How many pods of a pod set the slices of a job hold quota for.
    fn held(&self, view: &JobView, at: usize) -> i32 {
        let owned = self.world.owned(&view.job.uid);
        let holding = owned.iter().map(|key| &self.world.workloads[key]).filter(|entry| {
            let status = entry.status();
            reserved(status) && !is(status, Type::Finished)
        });
        holding.filter_map(|entry| Some(entry.object.spec.pod_sets.get(at)?.count)).max().unwrap_or(0)
    }

    /// The suffix of a slice's name after the job's name: the generation of the job, and of the parts by which it changes its size
    /// (docs/reference/07-integrations.md 7.2).
    pub(super) fn slice_generation(&self, key: &JobKey, view: &JobView) -> String {
        let parts = self.sizing_parts(key, view).map(|part| part.generation);
        let all = std::iter::once(view.generation).chain(parts);
        all.map(|generation| generation.to_string()).collect::<Vec<_>>().join("_")
    }

    /// The pods of an elastic job: its own, and those of its parts. Those of one part are sorted by name. Pods in other namespaces only claim to be
    /// its.
    pub(super) fn pods_of_elastic<'a>(&'a self, key: &'a JobKey, view: &'a JobView) -> Vec<OfElastic<'a>> {
        let own = std::iter::once((view, &view.pod_sets[..]));
        let all = own.chain(self.playing_parts(key, view)).flat_map(move |(of, sets)| {
            let pods = self.world.job_pods_of.get(&of.job.uid).into_iter().flatten();
            let pods = pods.filter(move |(namespace, _)| *namespace == key.namespace);
            pods.filter_map(move |key| Some(OfElastic { key, pod: self.world.job_pods.get(key)?, sets }))
        });
        all.collect()
    }
}

/// A pod of an elastic job.
pub(super) struct OfElastic<'a> {
    /// The pod's name.
    pub key: &'a PodKey,
    /// The pod.
    pub pod: &'a JobPod,
    /// The pod sets that its part plays.
    sets: &'a [JobPodSet],
}

impl OfElastic<'_> {
    /// Whether it is of this pod set of the job: as it says, if there are several.
    pub fn is_of(&self, job: &JobView, set: &str) -> bool {
        let says = job.pod_sets.len() == 1 || self.pod.pod_set.as_deref() == Some(set);
        says && self.sets.iter().any(|own| own.name == set)
    }
}
