//! Ungates pods so that they are scheduled where their Workload's topology assignment has them (docs/reference/06-algorithm.md 6.13).
//!
//! One write for each pod removes the gate and adds the labels of the domain to the node selector, valid for the version that was seen. Until its
//! answer, or a newer version of the pod, shows the outcome, the pod counts in that domain, and gets no other write. The pods of one Workload are
//! looked at together, at most once a cycle, and those of a large Workload once a second. If many are marked, several cycles share them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::gates::Gate;
use sluice_api::labels;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::{Name, WorkloadKey};
use sluice_jobs::Patch;

use super::moved_slices::has_slices;
use super::ungater_domains::{Domains, ranks};
use super::ungater_index::PlacedPods;
use super::ungater_plan::{Placed, Ranks, Waiting, plan};
use crate::effect::{Effect, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::hotswap::pod::PodKey;
use crate::ingest::topology::is_of_pod;
use crate::ingest::workload::is;
use crate::input::{Kind, ObjectRef};
use crate::job_pod::{JobPod, Place, Stage};
use crate::metrics::RemovedGate;
use crate::world::WorkloadEntry;

/// How many pods of a Workload are ungated at a time: the highest number of unanswered writes.
const AT_ONCE: usize = 2_000;

/// How many Workloads, and pods of them that wait, a cycle looks at: the pods of the last Workload may be more.
const IN_A_CYCLE: usize = 2_000;

/// How many controllers may be above a pod: an AppWrapper's TrainJob's JobSet's Job has four.
pub(super) const MOST_CONTROLLERS: usize = 8;

/// A write on a pod.
pub(super) struct PodWrite {
    pub pod: PodKey,
    pub purpose: Purpose,
    pub write: Write,
    /// The effects that report it once it succeeded.
    pub then: Vec<Effect>,
    /// The domain that it lets the pod into.
    pub target: Option<Box<[Name]>>,
}

/// A pod of a pod set that waits.
struct Gated<'a> {
    key: PodKey,
    pod: &'a JobPod,
    place: &'a Place,
    rank: Option<usize>,
}

/// How the pods of a pod set are ranked, and the labels with their index and with that of their group.
pub(super) type RankLabels<'a> = (Ranks, &'a str, Option<&'a str>);

/// The rank of a pod.
pub(super) fn rank_of(ranks: Option<RankLabels<'_>>, place: &Place) -> Option<usize> {
    let (ranks, index, group) = ranks?;
    let ranks = Ranks { offset: ranks.offset.saturating_add(place.offset), ..ranks };
    ranks.of(place.number(index), group.and_then(|group| place.number(group)))
}

/// Whether pods may be ungated for the Workload: its admission is written, and will not be revoked.
fn is_settled(entry: &WorkloadEntry) -> bool {
    let status = &entry.object.status;
    let same = |assumed: &WorkloadStatus| {
        assumed.admission == status.admission
            && assumed.unhealthy_nodes == status.unhealthy_nodes
            && !is(assumed, Type::Evicted)
    };
    is(status, Type::Admitted)
        && !is(status, Type::Evicted)
        && !is(status, Type::Finished)
        && entry.assumed.as_deref().is_none_or(same)
        && !entry.unchecked
        && !entry.uncertain
        && entry.object.metadata.deletion_timestamp.is_none()
}

impl Engine {
    /// Looks at the pods with a topology assignment of the Workloads in which something changed, as many as a cycle looks at.
    pub(crate) fn place_pods(&mut self) {
        if !self.decides()
            || !self.listed.contains(&Kind::JobPod)
            || !self.config.on(Gate::TopologyAwareScheduling)
        {
            // All are looked at when that changes.
            return self.dirty.placed.clear();
        }
        let mut left = IN_A_CYCLE;
        for _ in 0..self.dirty.placed.len() {
            let Some(first) = self.dirty.placed.pop() else { return };
            left = left.saturating_sub(1 + self.place_pods_of(&first));
            if left == 0 {
                return;
            }
        }
    }

    /// Whether the next cycle has to look at more of them.
    pub(crate) fn places_more(&self) -> bool {
        !self.dirty.placed.is_empty()
    }

    /// Looks at the pods of one Workload, unless it is too early; says how many of them wait.
    fn place_pods_of(&mut self, first: &WorkloadKey) -> usize {
        let now = self.now;
        let Some(pods) = self.world.placed.get_mut(first) else { return 0 };
        if let Some(until) = pods.waits(now) {
            self.wake_at(until, Alarm::Place(first.clone()));
            return 0;
        }
        // Also if they follow no Workload: it takes a pass over them to know that.
        pods.looked_at = Some(now);
        let waiting = pods.waiting();
        self.write_on_pods_of(first);
        waiting
    }

    fn write_on_pods_of(&mut self, first: &WorkloadKey) {
        let Some(workload) = self.placed_workload(first) else { return };
        let pods = &self.world.placed[first];
        let writes = self.writes_on_placed(&workload, pods);
        let retries = |pod: &JobPod| pod.retry.until().filter(|until| *until > self.now);
        let bound = self.may_move_slices(&workload).then_some(Stage::Bound);
        let stages = [Some(Stage::Gated), Some(Stage::Unbound), bound];
        let waiting = self.placed_at(first, pods, stages).filter_map(|(_, pod)| retries(pod)).min();
        if let Some(until) = waiting {
            self.wake_at(until, Alarm::Place(first.clone()));
        }
        let object = &self.world.workloads[&workload].object;
        if is_of_pod(object) && !object.status.unhealthy_nodes.is_empty() {
            // Whether it may get another node depends on its pod.
            self.sync_core(&workload);
        }
        if writes.is_empty() {
            return;
        }
        if self.read_inherited(&workload) {
            if let Some(until) = self.world.workloads[&workload].retry.until() {
                self.wake_at(until, Alarm::Place(first.clone()));
            }
            return;
        }
        for PodWrite { pod, purpose, write, then, target } in writes {
            let object = ObjectRef::namespaced(Kind::JobPod, Arc::clone(&pod.0), Arc::clone(&pod.1));
            let id = self.outbox.write(object, purpose, write, then);
            if purpose == Purpose::UngatePod {
                let (status, group) =
                    (self.world.workloads[&workload].status(), self.world.is_of_group(&pod));
                let gate = RemovedGate::of(status, labels::TOPOLOGY_SCHEDULING_GATE, group);
                self.outbox.amend(id, |open| open.gate = gate);
            }
            if let Some(known) = self.world.job_pods.get_mut(&pod) {
                known.open = Some(id);
                if let Some(place) = known.place.as_mut().filter(|_| target.is_some()) {
                    place.target = target;
                }
            }
        }
    }

    /// The Workload whose assignment the pods follow: of the slices of an elastic job the one that runs.
    pub(crate) fn placed_workload(&mut self, first: &WorkloadKey) -> Option<WorkloadKey> {
        let pods = self.world.placed.get(first)?;
        self.work.followed_workloads += 1;
        let is_usable = |key: &WorkloadKey| self.world.workloads.get(key).is_some_and(is_settled);
        if is_usable(first) && !self.replacing(first).iter().any(is_usable) {
            return Some(first.clone());
        }
        let stages = [Some(Stage::Gated), Some(Stage::Unbound), None];
        if !self.placed_at(first, pods, stages).any(|(_, pod)| pod.elastic) {
            return None;
        }
        let mut visited = 0;
        let named = self.world.slices.of(first).inspect(|_| visited += 1);
        let slices: Vec<_> = std::iter::once(first).chain(named).filter(|key| is_usable(key)).collect();
        let replaced: BTreeSet<_> = slices.iter().filter_map(|key| self.replaced_by(key)).collect();
        let found = slices.into_iter().find(|key| !replaced.contains(*key)).cloned();
        self.work.followed_workloads += visited;
        found
    }

    /// The pods that a look goes through, and may write to.
    fn placed_at<'a>(
        &'a self,
        first: &'a WorkloadKey,
        pods: &'a PlacedPods,
        stages: [Option<Stage>; 3],
    ) -> impl Iterator<Item = (PodKey, &'a JobPod)> {
        let at = stages.into_iter().flatten().flat_map(|stage| pods.all([stage]));
        at.filter_map(move |name| {
            let key = (Arc::clone(&first.namespace), Arc::clone(name));
            let pod = self.world.job_pods.get(&key)?;
            Some((key, pod))
        })
    }

    /// Whether all pods of a Workload still wait behind their gate, and no write under way lets them go: they may be placed anywhere.
    pub(crate) fn waits_for_places(&self, key: &WorkloadKey) -> bool {
        let Some(pods) = self.world.placed.get(key) else { return false };
        let waits = |(_, pod): (PodKey, &JobPod)| pod.open.is_none() && !pod.uncertain;
        pods.all([Stage::Unbound, Stage::Bound]).next().is_none()
            && self.placed_at(key, pods, [Some(Stage::Gated), None, None]).all(waits)
    }

    /// The writes for the pods of a Workload.
    fn writes_on_placed(&self, workload: &WorkloadKey, pods: &PlacedPods) -> Vec<PodWrite> {
        let entry = &self.world.workloads[workload];
        let (sets, status) = (&entry.object.spec.pod_sets, &entry.object.status);
        let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        let unhealthy: BTreeSet<&str> =
            status.unhealthy_nodes.iter().map(|node| node.name.as_str()).collect();
        let mut writes = Vec::new();
        let may_move = self.may_move_slices(workload);
        for (at, (set, assignment)) in sets.iter().zip(assignments).enumerate() {
            let any = |stage| pods.at(&set.name, stage).next().is_some();
            let moves = may_move && has_slices(set, &self.config);
            if !(any(Stage::Gated) || any(Stage::Unbound) || moves && any(Stage::Bound)) {
                continue;
            }
            let Some(domains) = Domains::of(assignment, &unhealthy) else { continue };
            let domains = domains.at_most(set.count);
            let ranks = ranks(sets, status, at);
            let misplaced = if moves {
                self.misplaced(workload, (&set.name, pods), &domains, (ranks, !unhealthy.is_empty()))
            } else {
                BTreeSet::new()
            };
            self.ungate_placed(workload, (&set.name, pods), &domains, (ranks, &misplaced), &mut writes);
            self.fail_placed(workload, (&set.name, pods), (&domains, moves), &mut writes);
            self.leave_old_nodes(misplaced, &mut writes);
        }
        writes
    }

    /// The pods of a pod set at a stage.
    pub(super) fn placed_in<'a>(
        &'a self,
        workload: &'a WorkloadKey,
        (set, pods): (&'a str, &'a PlacedPods),
        stage: Stage,
    ) -> impl Iterator<Item = (PodKey, &'a JobPod, &'a Place)> {
        pods.at(set, stage).filter_map(move |name| {
            let key = (Arc::clone(&workload.namespace), Arc::clone(name));
            let pod = self.world.job_pods.get(&key).filter(|pod| self.may_be_of(workload, &key, pod))?;
            Some((key, pod, &**pod.place.as_ref()?))
        })
    }

    /// Whether a pod that names a Workload may belong to its job: a pod without a controller has to be queued itself, and if its controllers are
    /// known the job has to be one of them. Any user can write a name into a pod.
    fn may_be_of(&self, workload: &WorkloadKey, key: &PodKey, pod: &JobPod) -> bool {
        let Some(controller) = &pod.controller else { return self.world.pod_homes.contains_key(key) };
        let mut uid: &str = controller;
        for _ in 0..MOST_CONTROLLERS {
            if self.world.by_owner.get(uid).is_some_and(|owned| owned.contains(workload)) {
                return true;
            }
            let Some(job) = self.world.job_by_uid.get(uid).and_then(|job| self.world.jobs.get(job)) else {
                // A controller of a kind that is not watched.
                return true;
            };
            let Some(above) = &job.view.controller else { return false };
            uid = &above.uid;
        }
        false
    }

    /// Lets the pods of a pod set go that there is room for.
    fn ungate_placed(
        &self,
        workload: &WorkloadKey,
        of: (&str, &PlacedPods),
        domains: &Domains,
        (ranks, misplaced): (Option<RankLabels<'_>>, &BTreeSet<PodKey>),
        writes: &mut Vec<PodWrite>,
    ) {
        let rank = |place: &Place| rank_of(ranks, place);
        let gated = self.placed_in(workload, of, Stage::Gated);
        let gated: Vec<_> =
            gated.map(|(key, pod, place)| Gated { key, pod, place, rank: rank(place) }).collect();
        if gated.is_empty() {
            return;
        }
        let placed = [Stage::Unbound, Stage::Bound].into_iter().flat_map(|stage| {
            let pods = self.placed_in(workload, of, stage);
            pods.map(|(key, pod, place)| Placed {
                domain: domains.of_pod(place),
                rank: rank(place),
                leaves: pod.leaves || misplaced.contains(&key),
            })
        });
        let placed: Vec<_> = placed.collect();
        let target = |place: &Place| domains.find(place.target.iter().flatten().map(|value| &**value));
        let waiting: Vec<_> =
            gated.iter().map(|pod| Waiting { rank: pod.rank, uncertain: target(pod.place) }).collect();
        let planned = plan(&domains.rooms, &placed, &waiting, ranks.is_some());
        let open = gated.iter().filter(|pod| pod.pod.open.is_some()).count();
        let may_be_written = |pod: &Gated<'_>| pod.pod.open.is_none() && !pod.pod.retry.waits(self.now);
        let chosen = gated.into_iter().zip(planned).filter_map(|(pod, domain)| Some((pod, domain?)));
        let chosen = chosen.filter(|(pod, _)| may_be_written(pod)).take(AT_ONCE.saturating_sub(open));
        writes.extend(chosen.map(|(Gated { key, pod, .. }, domain)| PodWrite {
            write: Write::Patch(ungated(pod, domains.labels(domain))),
            purpose: Purpose::UngatePod,
            then: Vec::new(),
            target: Some(domains.labels(domain).map(|(_, value)| Name::from(value)).collect()),
            pod: key,
        }));
    }
}

/// The patch that lets a pod go into a domain. Its other gates stay.
fn ungated<'a>(pod: &JobPod, domain: impl Iterator<Item = (&'a str, &'a str)>) -> Patch {
    let gates = pod.gates.iter().filter(|gate| ***gate != *labels::TOPOLOGY_SCHEDULING_GATE);
    let gates: Vec<_> = gates.map(|gate| json!({"name": &**gate})).collect();
    let selector: Map<String, Value> =
        domain.map(|(level, value)| (level.to_owned(), json!(value))).collect();
    let body = json!({
        "metadata": {"uid": &*pod.uid},
        "spec": {
            "schedulingGates": if gates.is_empty() { Value::Null } else { json!(gates) },
            "nodeSelector": selector,
        },
    });
    Patch::Merge(body).pinned(&pod.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::ungater_names::Names;

    #[test]
    fn the_patch_takes_one_gate_off_and_adds_to_the_node_selector() {
        let pod = |gates: Value| {
            let metadata = json!({"name": "p", "uid": "u", "resourceVersion": "7"});
            let pod = json!({"metadata": metadata, "spec": {"containers": [], "schedulingGates": gates}});
            let seen = serde_json::from_value(pod).unwrap();
            ungated(&JobPod::new(&seen, &mut Names::default()), [("rack", "r1")].into_iter()).body()
        };
        let gate = json!({"name": labels::TOPOLOGY_SCHEDULING_GATE});
        assert_eq!(
            pod(json!([gate])),
            json!({"metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {"schedulingGates": null, "nodeSelector": {"rack": "r1"}}})
        );
        assert_eq!(pod(json!([{"name": "a/b"}, gate]))["spec"]["schedulingGates"], json!([{"name": "a/b"}]));
    }
}
