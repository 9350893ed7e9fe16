//! Whether a Workload may have an admission at all: by its queues, their flavors and its own state.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::faults::Excuse;
use super::objects::{Admission, Workload};
use super::{Checker, Rule};

/// How late an admission may arrive after its right has ended, if a fault delays it: a watch that failed several times is asked for again after 5 s at
/// most, its list takes some time, and then a request may be in flight. How often this may be is another bound (`too_many` of a report).
pub(super) const LATE: Duration = Duration::from_secs(10);
/// How late it may arrive without any: the change has not reached the leader yet whose request is in flight.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(2);

/// The parts of a queue that decide who may be admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Queue {
    /// Of a LocalQueue: its ClusterQueue.
    above: String,
    /// `Hold` or `HoldAndDrain`.
    stopped: bool,
    drained: bool,
    /// The resource groups as they are written.
    groups: Value,
}

impl Queue {
    fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let policy = spec["stopPolicy"].as_str().unwrap_or("None");
        Self {
            above: spec["clusterQueue"].as_str().unwrap_or_default().to_owned(),
            stopped: policy != "None",
            drained: policy == "HoldAndDrain",
            groups: spec["resourceGroups"].clone(),
        }
    }
}

/// The queues, those Workloads that are deactivated, and since when.
#[derive(Debug, Default)]
pub(super) struct Rights {
    local: BTreeMap<String, (Queue, Duration)>,
    queues: BTreeMap<String, (Queue, Duration)>,
    inactive: BTreeMap<String, Duration>,
}

fn set(all: &mut BTreeMap<String, (Queue, Duration)>, name: &str, object: Option<&Value>, now: Duration) {
    let Some(object) = object else {
        all.remove(name);
        return;
    };
    let queue = Queue::read(object);
    if all.get(name).is_none_or(|(before, _)| *before != queue) {
        all.insert(name.to_owned(), (queue, now));
    }
}

/// A queue, and since when it has this state.
type KnownQueue = (Queue, Duration);

impl Rights {
    pub fn set_queue(&mut self, name: &str, object: Option<&Value>, now: Duration) {
        set(&mut self.queues, name, object, now);
    }

    /// By namespace and name.
    pub fn set_local(&mut self, name: &str, object: Option<&Value>, now: Duration) {
        set(&mut self.local, name, object, now);
    }

    pub fn set_active(&mut self, workload: &str, inactive: bool, now: Duration) {
        if inactive {
            self.inactive.entry(workload.to_owned()).or_insert(now);
        } else {
            self.inactive.remove(workload);
        }
    }

    pub fn forget(&mut self, workload: &str) {
        self.inactive.remove(workload);
    }

    /// The queues of a Workload.
    fn of(&self, key: &str, workload: &Workload) -> Option<(&KnownQueue, &KnownQueue)> {
        let namespace = key.strip_prefix(super::WORKLOADS)?.split('/').next()?;
        let local = self.local.get(&format!("{namespace}/{}", workload.local))?;
        Some((local, self.queues.get(&local.0.above)?))
    }

    /// The ClusterQueue that a Workload waits in, if it may be admitted there now.
    pub fn open_queue(&self, key: &str, workload: &Workload) -> Option<&str> {
        let (local, queue) = self.of(key, workload)?;
        let open = !workload.inactive && !local.0.stopped && !queue.0.stopped;
        open.then_some(local.0.above.as_str())
    }

    /// Why a Workload may not be admitted in its present state, and since when.
    fn why_not(&self, key: &str, workload: &Workload) -> Option<(String, Duration)> {
        let admission = workload.admission.as_ref()?;
        if let Some(since) = self.inactive.get(key) {
            return Some(("it is deactivated".to_owned(), *since));
        }
        let Some((local, queue)) = self.of(key, workload) else {
            return Some((
                format!("its LocalQueue {:?} or the ClusterQueue of that is not there", workload.local),
                Duration::ZERO,
            ));
        };
        let (name, given) = (&local.0.above, &admission.queue);
        if name != given {
            let text = format!("its LocalQueue is of the ClusterQueue {name}, and {given} gives it quota");
            return Some((text, local.1));
        }
        for (kind, (queue, since)) in [("LocalQueue", local), ("ClusterQueue", queue)] {
            if queue.stopped {
                return Some((format!("its {kind} is stopped"), *since));
            }
        }
        let gifts = workload.sets.iter().filter_map(|set| set.gift.as_ref());
        let mut flavors = gifts.flat_map(|gift| &gift.flavors);
        let strange = flavors.find(|(resource, flavor)| !has(&queue.0.groups, resource, flavor))?;
        Some((format!("{name} has no {} of the flavor {}", strange.0, strange.1), queue.1))
    }

    /// Why an admitted Workload must be evicted.
    pub fn must_go(&self, key: &str, workload: &Workload) -> Option<&'static str> {
        if self.inactive.contains_key(key) {
            return Some("it is deactivated");
        }
        let (local, queue) = self.of(key, workload)?;
        (local.0.drained || queue.0.drained).then_some("its queue is drained")
    }
}

/// Whether a queue has this resource of this flavor.
fn has(groups: &Value, resource: &str, flavor: &str) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let flavors = list(groups).into_iter().flat_map(|group| list(&group["flavors"]));
    let mut of_name = flavors.filter(|one| one["name"] == flavor);
    of_name.any(|one| list(&one["resources"]).iter().any(|one| one["name"] == resource))
}

impl Checker {
    /// Quota is reserved for a Workload that may have it.
    pub(super) fn judge_right(&mut self, key: &str, before: &Workload, now: &Workload) {
        let alike = before.admission.as_ref().map(Admission::without_places)
            == now.admission.as_ref().map(Admission::without_places);
        if !now.reserved || now.finished || (before.reserved && alike) {
            return;
        }
        let Some((why, since)) = self.rights.why_not(key, now) else { return };
        let late = self.now.saturating_sub(since);
        let delayed = late <= LATE && self.faults.overlap(Excuse::LateAdmission, since, self.now);
        if since > Duration::ZERO && (late <= IN_FLIGHT || delayed) {
            self.account.late_admissions += 1;
            return;
        }
        let mut text = format!("quota is reserved for it, and {why} for {} s", late.as_secs());
        if late <= LATE {
            text.push_str(", without a fault that delays it");
        }
        self.note(Rule::WithoutRight, key, text);
    }
}
