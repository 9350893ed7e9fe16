//! Slices that move as a whole because nodes of theirs were lost (not in Kueue; gate HotswapSlices): whether they may move, and what happens to
//! their pods.
//!
//! The core decides, and the new assignment is written first. From then on, whatever happened in between, each pod that is bound to a node on which
//! the assignment has no place for it is deleted, and its controller makes it again; all others stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_api::status_apply::TOPOLOGY_MANAGER;
use sluice_core::{Name, SliceMoves, WorkloadKey};

use super::ungater::{MOST_CONTROLLERS, PodWrite, RankLabels, rank_of};
use super::ungater_domains::{Domains, HOSTNAME, ranks};
use super::ungater_index::PlacedPods;
use super::ungater_plan::domains_of_ranks;
use crate::config::EngineConfig;
use crate::effect::{Effect, Event, EventType, Purpose, Write};
use crate::engine::Engine;
use crate::hotswap::pod::PodKey;
use crate::hotswap::report::MOST_LISTED;
use crate::hotswap::scope::acts_for;
use crate::ingest::topology::request;
use crate::input::{Kind, ObjectRef};
use crate::job_pod::{JobPod, Place, Stage};
use crate::lifecycle::slices::first_slice;

/// The reason of the event on the Workload and on its pods, and of the pods' condition.
pub(super) const SLICE_MOVED: &str = "SliceMoved";
/// The message of a pod's condition.
pub(super) const MESSAGE: &str = "Pod is deleted by Kueue: its slice lost a node and moved to other nodes";

/// How many pods a slice of the outermost layer has.
fn slice_size(set: &slim::PodSet, config: &EngineConfig) -> Option<usize> {
    let size = request(set, config)?.slices.first()?.size;
    usize::try_from(size).ok().filter(|size| *size > 0)
}

/// Whether the pods of a pod set are in slices.
pub(super) fn has_slices(set: &slim::PodSet, config: &EngineConfig) -> bool {
    slice_size(set, config).is_some()
}

impl Engine {
    /// Whether slices of a Workload move: Hotswap acts for its queue.
    pub(super) fn may_move_slices(&self, key: &WorkloadKey) -> bool {
        let Some(entry) = self.world.workloads.get(key) else { return false };
        self.config.on(Gate::Hotswap)
            && self.config.on(Gate::HotswapSlices)
            && entry.object.spec.pod_sets.iter().any(|set| has_slices(set, &self.config))
            && self.queue_for(key, entry).is_some_and(|queue| acts_for(&self.world, &queue))
    }

    /// Whether several failed nodes of a Workload are replaced together: its slices move, and each pod set lost pods of one slice at most, of the innermost
    /// layer. Fails with the reason if slices of it move.
    pub(super) fn lost_one_slice(&self, key: &WorkloadKey, failed: &[&str]) -> Result<(), Option<String>> {
        if !self.may_move_slices(key) {
            return Err(None);
        }
        if failed.len() > MOST_LISTED {
            return Err(Some(format!("more than {MOST_LISTED} of its nodes failed")));
        }
        let sets = &self.world.workloads[key].object.spec.pod_sets;
        for (at, assignment) in self.assigned.of.get(key).into_iter().flatten() {
            let slices =
                sets.get(*at).and_then(|set| request(set, &self.config)).map(|request| request.slices);
            let size = slices.as_ref().and_then(|slices| slices.last()).map_or(0, |layer| layer.size);
            let (mut rank, mut lost) = (0_i64, BTreeSet::new());
            for domain in &assignment.domains {
                let first = rank;
                rank = rank.saturating_add(domain.count);
                if domain.count <= 0 || !domain.values.last().is_some_and(|host| failed.contains(&&**host)) {
                    continue;
                }
                if size <= 0 {
                    return Err(Some("pods that are in no slice lost their nodes".to_owned()));
                }
                lost.extend([first / size, (rank - 1) / size]);
            }
            if lost.len() > 1 {
                return Err(Some("the nodes have pods of several slices".to_owned()));
            }
        }
        Ok(())
    }

    /// Whether the slices of a Workload that lost a node may move, as far as its pods and its job are concerned.
    pub(crate) fn slice_moves(&self, key: &WorkloadKey) -> SliceMoves {
        if !self.may_move_slices(key) {
            return SliceMoves::Off;
        }
        if !self.listed.contains(&Kind::JobPod) {
            return SliceMoves::Refused("its pods were not seen yet".into());
        }
        let entry = &self.world.workloads[key];
        let (sets, status) = (&entry.object.spec.pod_sets, &entry.object.status);
        let home = WorkloadKey::new(Name::clone(&key.namespace), first_slice(&key.name, entry));
        let Some(pods) = self.world.placed.get(&home) else { return SliceMoves::Allowed };
        let lost: BTreeSet<&str> = status.unhealthy_nodes.iter().map(|node| node.name.as_str()).collect();
        let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        for (at, (set, assignment)) in sets.iter().zip(assignments).enumerate() {
            let Some(size) = slice_size(set, &self.config) else { continue };
            let Some(domains) = Domains::of(assignment, &lost).filter(Domains::are_nodes) else { continue };
            if !domains.rooms.iter().any(|room| room.closed) {
                continue;
            }
            let moved = self.may_lose((key, &set.name, pods), &domains, ranks(sets, status, at), size);
            if let Err(why) = moved {
                return SliceMoves::Refused(why.into());
            }
        }
        SliceMoves::Allowed
    }

    /// Whether the pods of the slices on closed domains may be deleted and made again.
    fn may_lose(
        &self,
        (key, set, pods): (&WorkloadKey, &str, &PlacedPods),
        domains: &Domains,
        ranks: Option<RankLabels<'_>>,
        size: usize,
    ) -> Result<(), String> {
        let of_rank = domains_of_ranks(&domains.rooms);
        let closed = |rank: &usize| domains.rooms.get(of_rank[*rank]).is_some_and(|room| room.closed);
        let broken: BTreeSet<usize> = (0..of_rank.len()).filter(closed).map(|rank| rank / size).collect();
        // The last slice may be incomplete.
        let wanted = (0..of_rank.len()).filter(|rank| broken.contains(&(rank / size))).count();
        let mut of_controller: BTreeMap<Option<&Name>, usize> = BTreeMap::new();
        let placed = [Stage::Unbound, Stage::Bound];
        let placed = placed.into_iter().flat_map(|stage| self.placed_in(key, (set, pods), stage));
        for (_, pod, place) in placed.filter(|(_, pod, _)| !pod.leaves) {
            if pod.elastic {
                return Err("its job is elastic".to_owned());
            }
            let rank = rank_of(ranks, place);
            let there = rank.and_then(|rank| of_rank.get(rank).copied());
            if ranks.is_some() && (there.is_none() || there != domains.of_pod(place)) {
                return Err("its pods are not where their ranks belong".to_owned());
            }
            // Without ranks, any pod may be of the slice.
            if rank.is_none_or(|rank| broken.contains(&(rank / size))) {
                *of_controller.entry(pod.controller.as_ref()).or_default() += 1;
            }
        }
        let known: usize = of_controller.values().sum();
        // Missing pods have failed, or will. A replacement that waits stands for a failure that was counted.
        let waiting = self.placed_in(key, (set, pods), Stage::Gated).filter(|(_, pod, _)| !pod.leaves);
        let ranks_waiting = waiting.map(|(.., place)| rank_of(ranks, place));
        let of_broken =
            |rank: &Option<usize>| rank.map_or(ranks.is_none(), |rank| broken.contains(&(rank / size)));
        let missing = wanted.saturating_sub(known).saturating_sub(ranks_waiting.filter(of_broken).count());
        for (controller, count) in of_controller {
            self.spares(controller, count.min(wanted).saturating_add(missing))?;
        }
        Ok(())
    }

    /// Another number of pods of a job may fail before it does: whether slices of a Workload that lost a node may move depends on that.
    pub(crate) fn spare_failures_changed(&mut self, job: &Name) {
        let mut uid = Name::clone(job);
        for _ in 0..MOST_CONTROLLERS {
            for key in self.world.owned(&uid) {
                if !self.world.workloads[&key].object.status.unhealthy_nodes.is_empty() {
                    self.dirty.workloads.insert(key);
                }
            }
            let job = self.world.job_by_uid.get(&uid).and_then(|job| self.world.jobs.get(job));
            let Some(above) = job.and_then(|job| job.view.controller.as_ref()) else { return };
            uid = Name::from(&*above.uid);
        }
    }

    /// Whether a controller makes this number of its pods again without failing.
    fn spares(&self, controller: Option<&Name>, count: usize) -> Result<(), String> {
        let Some(uid) = controller else { return Err("no controller recreates its pods".to_owned()) };
        let job = self.world.job_by_uid.get(uid).and_then(|key| self.world.jobs.get(key));
        let Some(view) = job.map(|job| &job.view) else {
            return Err("the controller of its pods is not known".to_owned());
        };
        let (kind, name) = (view.job.kind.kind(), &*view.job.name);
        let Some(spare) = view.spare_failures else {
            return Err(format!("Sluice does not know how {kind} {name:?} handles deleted pods"));
        };
        if usize::try_from(spare).is_ok_and(|spare| spare < count) {
            return Err(format!(
                "{kind} {name:?} would fail: its backoffLimit allows {spare} more pod(s) to fail, and {count} would be deleted \
                 (a podFailurePolicy that ignores DisruptionTarget does not count them)"
            ));
        }
        Ok(())
    }

    /// The bound pods of a pod set that are where its assignment has no place for them: on other nodes than its own, and, unless a node is `lost`,
    /// too many on one of its own.
    pub(super) fn misplaced(
        &self,
        workload: &WorkloadKey,
        of: (&str, &PlacedPods),
        domains: &Domains,
        (ranks, lost): (Option<RankLabels<'_>>, bool),
    ) -> BTreeSet<PodKey> {
        let mut misplaced = BTreeSet::new();
        if !domains.are_nodes() {
            return misplaced;
        }
        let placed = [Stage::Unbound, Stage::Bound].into_iter().flat_map(|stage| {
            let pods = self.placed_in(workload, of, stage).filter(|(_, pod, _)| !pod.leaves);
            pods.map(move |(key, pod, place)| (key, pod, place, domains.of_pod(place), stage))
        });
        let placed: Vec<_> = placed.collect();
        let mut surplus: Vec<usize> = vec![0; domains.rooms.len()];
        for domain in placed.iter().filter_map(|(.., domain, _)| *domain) {
            surplus[domain] += 1;
        }
        for (surplus, room) in surplus.iter_mut().zip(&domains.rooms) {
            *surplus = surplus.saturating_sub(room.pods);
        }
        let of_rank = domains_of_ranks(&domains.rooms);
        for (key, pod, place, domain, stage) in placed {
            if stage != Stage::Bound || pod.elastic || pod.controller.is_none() || !self.is_well(place) {
                continue;
            }
            let goes = match domain {
                // It was ungated for a node that its pod set no longer has.
                None => place.selects(HOSTNAME).is_some(),
                // Its slice may still get other nodes.
                Some(_) if lost => false,
                Some(domain) => {
                    let rank = rank_of(ranks, place).and_then(|rank| of_rank.get(rank));
                    let goes = surplus[domain] > 0 && rank != Some(&domain);
                    surplus[domain] -= usize::from(goes);
                    goes
                }
            };
            if goes {
                misplaced.insert(key);
            }
        }
        self.spared(misplaced)
    }

    /// The misplaced pods whose deletion their Jobs survive: a Job that would fail keeps its pods where they are.
    fn spared(&self, mut misplaced: BTreeSet<PodKey>) -> BTreeSet<PodKey> {
        let controller = |key: &PodKey| self.world.job_pods.get(key).and_then(|pod| pod.controller.as_ref());
        let mut of_controller: BTreeMap<Option<&Name>, usize> = BTreeMap::new();
        for key in &misplaced {
            *of_controller.entry(controller(key)).or_default() += 1;
        }
        misplaced.retain(|key| {
            let controller = controller(key);
            self.spares(controller, of_controller.get(&controller).copied().unwrap_or(0)).is_ok()
        });
        misplaced
    }

    /// Whether the node of a pod is ready: what is on others ends without help.
    fn is_well(&self, place: &Place) -> bool {
        let node = place.node.as_ref().and_then(|node| self.world.nodes.get(node));
        node.is_some_and(|node| node.ready == Some(true))
    }

    /// Deletes misplaced pods. Each of them says before that it is disrupted, so that its job need not count it as failed.
    pub(super) fn leave_old_nodes(&self, misplaced: BTreeSet<PodKey>, writes: &mut Vec<PodWrite>) {
        for key in misplaced {
            let Some(pod) = self.world.job_pods.get(&key) else { continue };
            if pod.open.is_some() || pod.retry.waits(self.now) {
                continue;
            }
            let (write, then) = if pod.place.as_ref().is_some_and(|place| place.disrupted) {
                let uid = Some(Arc::from(&*pod.uid));
                (
                    Write::Delete { uid, grace_period_seconds: None, foreground: false },
                    vec![slice_moved(&key, pod)],
                )
            } else {
                let body = self.disrupted_status(&key, pod).into();
                (
                    Write::Apply { subresource: Some("status"), field_manager: TOPOLOGY_MANAGER, body },
                    Vec::new(),
                )
            };
            writes.push(PodWrite { pod: key, purpose: Purpose::MovePod, write, then, target: None });
        }
    }

    fn disrupted_status(&self, (namespace, name): &PodKey, pod: &JobPod) -> Value {
        json!({
            "apiVersion": Kind::JobPod.api_version(),
            "kind": Kind::JobPod.as_str(),
            "metadata": {
                "name": &**name, "namespace": &**namespace, "uid": &*pod.uid, "resourceVersion": &*pod.version,
            },
            "status": {"conditions": [{
                "type": slim::DISRUPTION_TARGET,
                "status": "True",
                "reason": SLICE_MOVED,
                "message": MESSAGE,
                "lastTransitionTime": whole_seconds(self.now),
            }]},
        })
    }
}

/// The event about such a pod.
fn slice_moved((namespace, name): &PodKey, pod: &JobPod) -> Effect {
    Effect::Event(Event {
        object: ObjectRef::namespaced(Kind::JobPod, Arc::clone(namespace), Arc::clone(name)),
        uid: Arc::from(&*pod.uid),
        type_: EventType::Normal,
        reason: SLICE_MOVED.to_owned(),
        action: SLICE_MOVED.to_owned(),
        note: MESSAGE.to_owned(),
        reporter: TOPOLOGY_MANAGER,
        attempt: None,
    })
}
