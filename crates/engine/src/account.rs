//! What the engine knows of one workload, as a value: other programs show explanations from it.

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition};
use sluice_api::job::JobKind;
use sluice_core::{Detail, LevelFits, Name, PendingPosition, Refusal, Standing, Unadmitted, WorkloadKey};

use crate::changes::Change;
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::lifecycle::ancestor::Whole;
use crate::metrics::LIGHT;
use crate::world::{WorkloadEntry, workload_ref};

/// How far a workload has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not admitted.
    Waiting,
    /// It is admitted.
    Admitted,
    /// It is finished.
    Finished,
}

/// A workload as the engine sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The Workload.
    pub workload: ObjectRef,
    /// Its UID.
    pub uid: Name,
    /// The number of the attempt to admit it, from 1, if traces are made.
    pub attempt: Option<u32>,
    /// The LocalQueue that it names.
    pub local_queue: String,
    /// How far it has come.
    pub stage: Stage,
    /// Reason and message of its condition `QuotaReserved`, while that is not true.
    pub condition: Option<(String, String)>,
    /// Its place in its queue, if it is in one.
    pub position: Option<PendingPosition>,
    /// The Workloads ahead of it there, the next one first.
    pub ahead: Vec<WorkloadKey>,
    /// Why it was not admitted when it was last tried.
    pub decision: Option<Unadmitted>,
    /// How its queues, Cohorts and flavors changed since it was made, as far as the engine saw that, oldest first.
    pub changes: Vec<Change>,
    /// Where its pods would fit, for each pod set that a flavor's nodes have no place for as close together as it asks.
    pub fits: Vec<PodSetFits>,
    /// Why it was not moved away from nodes that failed, if that was decided.
    pub not_moved: Option<WhyNotMoved>,
}

/// Why a Workload was not moved away from nodes that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNotMoved {
    /// As its event says.
    pub text: String,
    /// What keeps its ClusterQueue from admitting it again, if that is why it waits.
    pub barred: Option<String>,
    /// Whether no nodes were free for it, not even without workloads of lower priority.
    pub no_room: bool,
}

/// Where the pods of a pod set would fit on the nodes of a flavor.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSetFits {
    /// The pod set.
    pub pod_set: Name,
    /// The flavor.
    pub flavor: Name,
    /// How many pods it has.
    pub count: i64,
    /// The pod set of the leader that is placed with them, whose pod is not among those that fit.
    pub leader: Option<Name>,
    /// The pod sets of the Workload that get nodes before this one, so that what they take is not free.
    pub placed: Vec<Name>,
    /// By level of the flavor's topology, from the highest.
    pub levels: Vec<LevelFits>,
}

/// Pairs of pod set and flavor whose domains are looked at: each takes a pass over the lowest domains, which is a page of its own if they are many.
const MOST_FITS: usize = 4;
/// Domains that are named of each level.
const MOST_DOMAINS: usize = 3;

/// An account in progress: of a long queue, page by page.
#[derive(Clone, Debug)]
pub struct Accounting {
    kind: Option<Kind>,
    namespace: Name,
    name: Name,
    last: Option<WorkloadKey>,
    /// The Workloads that wait in the same ClusterQueue.
    waiting: Vec<Standing>,
    account: Option<Account>,
    /// Of its pod sets: which found no place on the nodes of which flavor, after which others; of those that were not looked at yet.
    short: std::vec::IntoIter<Short>,
    whole: Option<Whole>,
    largest: usize,
}

/// A pod set and a flavor on whose nodes it found no place, after the pod sets that were placed before it, each with its flavor.
type Short = (Name, Name, Vec<(Name, Name)>);

impl Accounting {
    /// The account of a Workload, or of a job's Workload; of an object each of whose pods is a job, that of one of these pods. `kind` is the kind of
    /// the name; without it a Workload of that name comes first.
    pub fn new(kind: Option<Kind>, namespace: &str, name: &str) -> Self {
        let (namespace, name) = (namespace.into(), name.into());
        Self {
            kind,
            namespace,
            name,
            last: None,
            waiting: Vec::new(),
            account: None,
            short: Vec::new().into_iter(),
            whole: None,
            largest: 0,
        }
    }

    /// The largest number of Workloads that one page looked at, and of domains of a topology, of which 32 count as one.
    pub fn largest_page(&self) -> usize {
        self.largest
    }

    /// For a job without a Workload: the job that it is a part of, if that is the reason.
    pub fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// The account, with up to `most` of the Workloads ahead of it; `None` if there is no such Workload. The queue is sorted here.
    pub fn into_account(self, most: usize) -> Option<Account> {
        let mut account = self.account?;
        let all = Standing::positions(self.waiting);
        let own = |p: &PendingPosition| {
            *p.key.namespace == *account.workload.namespace && *p.key.name == *account.workload.name
        };
        if let Some(at) = all.iter().position(own) {
            account.ahead = all[..at].iter().take(most).map(|p| p.key.clone()).collect();
            account.position = all.into_iter().nth(at);
        }
        Some(account)
    }
}

impl Engine {
    /// The names of the next `most` nodes behind one, in their order.
    pub fn node_names(&self, behind: Option<&Name>, most: usize) -> Vec<Name> {
        self.world.nodes.names_after(behind).take(most).cloned().collect()
    }

    /// The account of a Workload, or of a job's Workload, with at most `most` of those ahead of it: see [`Accounting`].
    pub fn account(&self, kind: Option<Kind>, namespace: &str, name: &str, most: usize) -> Option<Account> {
        let mut accounting = Accounting::new(kind, namespace, name);
        while !self.account_page(&mut accounting, usize::MAX) {}
        accounting.into_account(most)
    }

    /// Looks at the next `most` Workloads for an account, and then at the nodes where its pods would fit: a page ends with the pass over the nodes of a
    /// flavor at which so much was looked at. Returns whether it was the last.
    pub fn account_page(&self, accounting: &mut Accounting, most: usize) -> bool {
        let most = most.max(1);
        let mut looks = 0;
        if accounting.account.is_none() {
            let Some(key) = self.accounted(accounting) else {
                if let Some(kind @ Kind::Job(_)) = accounting.kind {
                    let (namespace, name) =
                        (Name::clone(&accounting.namespace), Name::clone(&accounting.name));
                    accounting.whole = self.whole_of(&ObjectRef::namespaced(kind, namespace, name));
                }
                return true;
            };
            if let Some((queue, _)) = self.scheduler.waits_in(&key) {
                let from = accounting.last.take();
                for (other, _) in self.world.workloads.after(from.as_ref()) {
                    if looks == most {
                        return false;
                    }
                    looks += 1;
                    accounting.largest = accounting.largest.max(looks);
                    accounting.waiting.extend(self.scheduler.standing(other, Some(queue)));
                    accounting.last = Some(other.clone());
                }
            }
            accounting.short = short_of(self.scheduler.last_decision(&key)).into_iter();
            accounting.account = self.account_of(&key);
        }
        self.account_fits(accounting, looks, most)
    }

    /// Adds where the pods would fit that found no place, while less than so much was looked at; returns whether that is all.
    fn account_fits(&self, accounting: &mut Accounting, mut looks: usize, most: usize) -> bool {
        let Some(account) = &mut accounting.account else { return true };
        let workload = &account.workload;
        let key = WorkloadKey::new(Name::clone(&workload.namespace), Name::clone(&workload.name));
        let mut fits = self.scheduler.fits_of(&key);
        while account.fits.len() < MOST_FITS {
            if looks >= most && !accounting.short.as_slice().is_empty() {
                return false;
            }
            let Some((pod_set, flavor, placed)) = accounting.short.next() else { return true };
            let before = fits.looked();
            let Some(room) = fits.of((&pod_set, &flavor), &placed, MOST_DOMAINS) else { continue };
            let Some(lowest) = room.levels.last() else { continue };
            let tried = usize::try_from(fits.looked() - before).unwrap_or(usize::MAX);
            let light = lowest.domains.saturating_add(tried);
            looks = looks.saturating_add(light.div_ceil(LIGHT));
            accounting.largest = accounting.largest.max(looks);
            account.fits.push(PodSetFits {
                pod_set,
                flavor,
                count: room.pods,
                leader: room.leader,
                placed: placed.into_iter().map(|(pod_set, _)| pod_set).collect(),
                levels: room.levels,
            });
        }
        true
    }

    fn accounted(&self, of: &Accounting) -> Option<WorkloadKey> {
        let (namespace, name) = (&of.namespace, &of.name);
        let own = || {
            let key = WorkloadKey::new(Name::clone(namespace), Name::clone(name));
            Some(key).filter(|k| self.world.workloads.contains_key(k))
        };
        let of_job = |kind: JobKind| {
            if kind.integration().pods_are_jobs {
                return self.workload_of_pods(kind, namespace, name);
            }
            let object = ObjectRef::namespaced(Kind::Job(kind), Name::clone(namespace), Name::clone(name));
            let key = self.world.job_key(&object)?;
            if kind.has_groups() {
                return self.workload_of_set(&key);
            }
            let uid = &self.world.jobs.get(&key)?.view.job.uid;
            self.world.owned(uid).pop()
        };
        match of.kind {
            Some(Kind::Workload) => own(),
            Some(Kind::Job(kind)) => of_job(kind),
            Some(_) => None,
            None => own().or_else(|| JobKind::all().iter().copied().find_map(of_job)),
        }
    }

    /// The Workload of one of the pods of an object each of whose pods is a job: of a waiting pod, if there is one.
    fn workload_of_pods(&self, kind: JobKind, namespace: &Name, object: &str) -> Option<WorkloadKey> {
        let from = (Name::clone(namespace), Name::from(format!("{object}-")));
        let pods = self.world.pod_homes.range(from.clone()..);
        let pods = pods.take_while(|((of, pod), _)| of == namespace && pod.starts_with(&*from.1));
        let own = pods.filter(|((_, pod), _)| kind.names_pod(object, pod));
        let mut first = None;
        for (_, home) in own {
            let Some(job) = self.world.jobs.get(home) else { continue };
            let Some(key) = self.world.owned(&job.view.job.uid).pop() else { continue };
            if self.world.workloads.get(&key).is_some_and(|entry| stage(entry) == Stage::Waiting) {
                return Some(key);
            }
            first.get_or_insert(key);
        }
        first
    }

    /// All but its place, and where its pods would fit.
    fn account_of(&self, key: &WorkloadKey) -> Option<Account> {
        let entry = self.world.workloads.get(key)?;
        let made = entry.object.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |t| t.0);
        Some(Account {
            workload: workload_ref(key),
            uid: entry.uid(),
            attempt: self.attempt_of(&workload_ref(key), &entry.uid()),
            local_queue: entry.object.spec.queue_name.clone(),
            stage: stage(entry),
            condition: waits_for(entry),
            position: None,
            ahead: Vec::new(),
            fits: Vec::new(),
            not_moved: self.why_not_moved(key),
            decision: self.scheduler.last_decision(key).cloned(),
            changes: self.changes_for(&key.namespace, &Name::from(&*entry.object.spec.queue_name), made),
        })
    }

    /// The changes since a time of all that a LocalQueue's workloads depend on: itself, its ClusterQueue, the Cohorts above, the flavors.
    fn changes_for(&self, namespace: &Name, local_queue: &Name, since: Timestamp) -> Vec<Change> {
        let mut relevant =
            vec![ObjectRef::namespaced(Kind::LocalQueue, Name::clone(namespace), Name::clone(local_queue))];
        let local = self.world.local_queues.get(&(Name::clone(namespace), Name::clone(local_queue)));
        if let Some(local) = local {
            let name = Name::from(local.spec.cluster_queue.as_deref().unwrap_or_default());
            if let Some(queue) = self.world.cluster_queues.get(&name) {
                let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
                relevant.extend(flavors.map(|f| ObjectRef::cluster(Kind::ResourceFlavor, &*f.name)));
                let cohorts = self.cohorts_above(&name);
                relevant.extend(cohorts.into_iter().map(|c| ObjectRef::cluster(Kind::Cohort, c)));
            }
            relevant.push(ObjectRef::cluster(Kind::ClusterQueue, name));
        }
        self.changes.since(since, &relevant)
    }
}

/// Which pod sets found no place on the nodes of which flavors.
fn short_of(decision: Option<&Unadmitted>) -> Vec<Short> {
    let Some(decision) = decision else { return Vec::new() };
    let (Detail::Flavors { pod_sets, .. } | Detail::PreemptionLoop { pod_sets, .. }) = &decision.detail
    else {
        return Vec::new();
    };
    let each = pod_sets.iter().flat_map(|set| set.refusals.iter().map(move |refusal| (set, refusal)));
    let short = each.filter_map(|(set, refusal)| match refusal {
        Refusal::NoPlacement { flavor, placed, .. } => {
            Some((Name::clone(&set.name), Name::clone(flavor), placed.clone()))
        }
        _ => None,
    });
    short.collect()
}

fn stage(entry: &WorkloadEntry) -> Stage {
    let is = |of: WorkloadCondition| conditions::is_true(&entry.status().conditions, of.as_str());
    if is(WorkloadCondition::Finished) {
        Stage::Finished
    } else if is(WorkloadCondition::Admitted) {
        Stage::Admitted
    } else {
        Stage::Waiting
    }
}

fn waits_for(entry: &WorkloadEntry) -> Option<(String, String)> {
    let found = conditions::find(&entry.status().conditions, WorkloadCondition::QuotaReserved.as_str())?;
    (found.status != "True").then(|| (found.reason.clone(), found.message.clone()))
}
