//! Whether pods of a job may still use its quota: running pods, terminating pods that can still run, and pods that its status does not show, or not
//! yet.
//!
//! A pod on a lost node terminates until the node is deleted or the pod is deleted by force. It does not count once the loss is known, which takes
//! the lists of Nodes and Pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::gates::Gate;
use sluice_api::job::{JobKind, JobView};
use sluice_core::Name;

use crate::engine::{Alarm, Engine};
use crate::hotswap::health;
use crate::hotswap::pod::Pod;
use crate::input::Kind;
use crate::world::JobKey;

impl Engine {
    /// Whether pods of a job, or of jobs that it controls, may still use its quota. If only time changes that, the job is looked at again then.
    pub(crate) fn is_active(&mut self, key: &JobKey) -> bool {
        if let Some(job) = self.world.pod_jobs.get(key) {
            let fast = self.config.on(Gate::FastQuotaReleaseInPodIntegration);
            let until = job.pods.active_until(self.now, fast);
            let active = until.is_some() || job.is_uncertain();
            if let Some(until) = until.flatten() {
                self.wake_at(until, Alarm::Job(key.clone()));
            }
            return active;
        }
        let Some(entry) = self.world.jobs.get(key) else { return false };
        let uid = Arc::clone(&entry.view.job.uid);
        if self.parts_left_pods(&uid) {
            return true;
        }
        let Some(entry) = self.world.jobs.get(key) else { return false };
        let children = self.children(key, &uid);
        let all: Vec<_> = std::iter::once(entry).chain(children).collect();
        if entry.has_pods_left() || all.iter().any(|entry| entry.says_active()) {
            return true;
        }
        let views = all.iter().map(|entry| &entry.view);
        let terminating = views.filter(|view| view.terminating > 0);
        let terminating: Vec<_> =
            terminating.map(|view| (Arc::clone(&view.job.uid), view.terminating)).collect();
        let mut next = self.unanswered_until(key);
        let mut active = next.is_some();
        for (job, pods) in terminating {
            let (stuck, until) = self.stuck(&job);
            if usize::try_from(pods).is_ok_and(|pods| pods > stuck) {
                active = true;
                next = next.into_iter().chain(until).min();
            }
        }
        if let Some(until) = next {
            self.wake_at(until, Alarm::Job(key.clone()));
        }
        active || self.has_pods_after_stop(key)
    }

    /// How many of a job's terminating pods are on nodes that are lost, and when the next node will be.
    pub(super) fn stuck(&self, job: &str) -> (usize, Option<Timestamp>) {
        if ![Kind::Node, Kind::Pod].iter().all(|kind| self.listed.contains(kind)) {
            return (0, None);
        }
        let pods = self.world.leaving.get(job).into_iter().flatten();
        let from = pods.filter_map(|pod| self.lost_from(self.world.pods.get(pod)?));
        let (lost, later): (Vec<_>, Vec<_>) = from.partition(|from| *from <= self.now);
        (lost.len(), later.into_iter().min())
    }

    /// Marks the job of a pod that terminates on a node that is or may be lost.
    pub(crate) fn mark_if_stuck(&mut self, pod: &Pod) {
        if let Some(job) = pod.controller.as_ref().filter(|_| pod.leaving)
            && self.lost_from(pod).is_some()
        {
            self.mark_family(job);
        }
    }

    /// Marks the jobs with pods that terminate on a node that is or may be lost.
    pub(crate) fn mark_stuck_on(&mut self, node: &str) {
        let known = self.world.nodes.get(node);
        if known.is_some_and(|node| health::lost_from(node, &self.config.hotswap).is_none()) {
            return;
        }
        let pods = self.world.pods_on(node).filter_map(|key| self.world.pods.get(key));
        let jobs = pods.filter(|pod| pod.leaving).filter_map(|pod| pod.controller.clone());
        for job in jobs.collect::<BTreeSet<_>>() {
            self.mark_family(&job);
        }
    }

    /// Marks the jobs with pods that terminate: it is known now which nodes and pods there are.
    pub(crate) fn mark_stuck(&mut self) {
        for job in self.world.leaving.keys().cloned().collect::<Vec<_>>() {
            self.mark_family(&job);
        }
    }

    /// Marks a job and its controller.
    fn mark_family(&mut self, uid: &Name) {
        let Some(key) = self.world.job_by_uid.get(uid) else { return };
        let above = self.world.jobs.get(key).map(|entry| self.above(&entry.view)).unwrap_or_default();
        self.dirty.jobs.extend(above);
        self.dirty.jobs.insert(key.clone());
    }

    /// Marks the job that controls, or controlled, another that changes to `next`, or goes, if that may change whether it is active, or
    /// how many pods it has.
    pub(crate) fn mark_parent(&mut self, key: &JobKey, next: Option<&JobView>) {
        let known = self.world.jobs.get(key).map(|entry| &*entry.view);
        let matters = |view: &JobView| {
            // The number of active pods matters only if some are terminating.
            let active_pods = (view.terminating > 0).then_some(view.active_pods);
            let pods = (view.active, view.terminating, active_pods);
            let answer = (view.suspended_condition, view.observed_generation);
            let stop = (view.suspended, answer, view.deleting, view.finished.is_some());
            // The pod counts in its spec may be those of the job.
            let spec = (view.generation, view.invalid.is_some(), view.slim);
            (view.job.uid.clone(), view.controller.clone(), pods, stop, spec)
        };
        if known.map(matters) == next.map(matters) {
            return;
        }
        let parents: Vec<_> = known.into_iter().chain(next).flat_map(|view| self.above(view)).collect();
        self.dirty.jobs.extend(parents);
    }

    /// The job that controls a job, if it exists.
    pub(crate) fn parent(&self, view: &JobView) -> Option<&JobKey> {
        self.world.job_by_uid.get(view.controller.as_ref()?.uid.as_str())
    }

    /// The job that controls a job; and the job above that, if the former runs its pod sets.
    pub(crate) fn above(&self, view: &JobView) -> Vec<JobKey> {
        let Some(parent) = self.parent(view) else { return Vec::new() };
        let next = self.world.jobs.get(parent).and_then(|entry| self.parent(&entry.view));
        let next = next.filter(|next| next.kind.is_played_by(parent.kind));
        std::iter::once(parent).chain(next).cloned().collect()
    }

    /// Whether a job is part of a job of a managed kind: then it is known, although its own kind is not.
    pub(crate) fn is_child(&self, view: &JobView) -> bool {
        let owner = view.controller.as_ref();
        let kind = owner.and_then(|owner| JobKind::from_owner(&owner.api_version, &owner.kind));
        kind.is_some_and(|kind| self.config.knows(kind))
    }
}
