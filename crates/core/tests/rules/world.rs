//! Small worlds: the cycles of a scheduler, and what it decided as plain text.

pub use sluice_core::fixtures::*;
use sluice_core::{
    Admission, AssignedDomain, Config, CycleReport, Detail, FairSharing, FairStrategy, FlavorSpec, Gates,
    LocalQueueSpec, Name, Outcome, Scheduler, SharedAssignment, SlicesMoved, Time, TopologyAssignment,
    TopologyState, Unadmitted, Victim, WorkloadSpec, WorkloadState,
};
use std::collections::BTreeMap;

/// The reference's gates: those that are ours are off.
pub fn reference_gates() -> Gates {
    Gates {
        preemption_loop_guard: false,
        admit_only_free_quota: false,
        requeue_reclaimers_on_borrowing: false,
        ..Gates::default()
    }
}

/// A scheduler, its inputs, and what it decided last.
pub struct World {
    pub core: Scheduler,
    pub report: CycleReport,
    jobs: BTreeMap<Name, Job>,
    flavors: Vec<Name>,
    now: i64,
    sequence: i64,
}

impl World {
    /// The reference's defaults.
    pub fn new() -> World {
        World::configured(|_| {})
    }

    /// With changes to the configuration.
    pub fn configured(change: impl FnOnce(&mut Config)) -> World {
        let mut config = Config { gates: reference_gates(), ..Config::default() };
        change(&mut config);
        World {
            core: Scheduler::new(config),
            report: CycleReport::default(),
            jobs: BTreeMap::new(),
            flavors: Vec::new(),
            now: 100_000,
            sequence: 0,
        }
    }

    /// With changes to the gates.
    pub fn gated(change: impl FnOnce(&mut Gates)) -> World {
        World::configured(|config| change(&mut config.gates))
    }

    /// With fair sharing by these strategies.
    pub fn fair(strategies: &[FairStrategy]) -> World {
        World::configured(|config| {
            config.fair_sharing = Some(FairSharing { strategies: strategies.to_vec() });
        })
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time::from_seconds(self.now)
    }

    /// Time passes.
    pub fn pass(&mut self, seconds: i64) {
        self.now += seconds;
    }

    /// Declares a flavor; one that is not declared but used is plain.
    pub fn flavor(&mut self, name: &str, change: impl FnOnce(&mut FlavorSpec)) {
        let mut spec = flavor(name);
        change(&mut spec);
        self.flavors.push(n(name));
        self.core.set_flavor(spec);
    }

    /// Declares or changes a ClusterQueue, with its LocalQueue and its flavors.
    pub fn cq(&mut self, queue: Cq) {
        for flavor in queue.0.resource_groups.iter().flat_map(|group| &group.flavors) {
            if !self.flavors.contains(&flavor.name) {
                self.flavor(&flavor.name, |_| {});
            }
        }
        let name = queue.0.name.clone();
        self.core.set_cluster_queue(queue.0);
        self.lq(&name, &name, |_| {});
    }

    /// Declares or changes a LocalQueue.
    pub fn lq(&mut self, name: &str, cluster_queue: &str, change: impl FnOnce(&mut LocalQueueSpec)) {
        let mut spec = lq(name, cluster_queue);
        change(&mut spec);
        self.core.set_local_queue(spec);
    }

    /// Declares or changes a Cohort.
    pub fn cohort(&mut self, cohort: Co) {
        self.core.set_cohort(cohort.0);
    }

    /// A workload arrives, or changes.
    pub fn submit(&mut self, job: Job) {
        let job = self.dated(job);
        self.core.set_workload(job.spec.clone(), self.now());
    }

    /// Workloads arrive.
    pub fn submit_all(&mut self, jobs: impl IntoIterator<Item = Job>) {
        for job in jobs {
            self.submit(job);
        }
    }

    fn dated(&mut self, mut job: Job) -> Job {
        if let Some(known) = self.jobs.get(&job.spec.key.name) {
            job.created = job.created.or(known.created);
        }
        self.sequence += 1;
        let created = *job.created.get_or_insert(self.sequence);
        if job.spec.created == Time(0) {
            job.spec.created = Time::from_seconds(created);
        }
        if job.spec.queue_order == Time(0) {
            job.spec.queue_order = Time::from_seconds(created);
        }
        self.jobs.insert(job.spec.key.name.clone(), job.clone());
        job
    }

    /// A workload that runs already: all its resources in this flavor, in the ClusterQueue of its LocalQueue's name;
    /// reserved in the order of these calls.
    pub fn running(&mut self, job: Job, flavor: &str) {
        let since = self.sequence + 1;
        self.running_since(job, flavor, since);
    }

    /// The same, reserved at this second.
    pub fn running_since(&mut self, job: Job, flavor: &str, second: i64) {
        let queue = job.spec.local_queue.clone();
        self.holding(job, &queue, flavor, |state| {
            if let WorkloadState::Reserved { reserved_at, .. } = state {
                *reserved_at = Time::from_seconds(second);
            }
        });
    }

    /// A workload that holds quota of a ClusterQueue, in whatever state.
    pub fn holding(&mut self, job: Job, queue: &str, flavor: &str, change: impl FnOnce(&mut WorkloadState)) {
        let job = self.dated(job);
        let mut state = WorkloadState::Reserved {
            admission: job.admission(queue, flavor),
            reserved_at: Time::from_seconds(self.sequence),
            admitted: true,
            evicted: false,
            pods_ready: true,
            topology: TopologyState::default(),
        };
        change(&mut state);
        self.core.set_workload(WorkloadSpec { state, ..job.spec }, self.now());
        assert_eq!(self.core.audit(), Ok(()));
    }

    /// The victim stopped: its quota is free, and it waits again.
    pub fn released(&mut self, name: &str) {
        let job = self.jobs[name].clone();
        let state = WorkloadState::PENDING;
        self.core.set_workload(WorkloadSpec { state, ..job.spec }, self.now());
    }

    /// A workload changes its state.
    pub fn state(&mut self, name: &str, state: WorkloadState) {
        let job = self.jobs[name].clone();
        self.core.set_workload(WorkloadSpec { state, ..job.spec }, self.now());
    }

    /// A workload is gone.
    pub fn finished(&mut self, name: &str) {
        self.core.remove_workload(&key(name), self.now());
        self.jobs.remove(name);
    }

    /// One cycle, a second later: a line for each head in the order processed.
    pub fn cycle(&mut self) -> Vec<String> {
        self.pass(1);
        self.report = self.core.cycle(self.now());
        assert_eq!(self.core.audit(), Ok(()));
        self.lines()
    }

    /// A line for each head of the last cycle.
    fn lines(&self) -> Vec<String> {
        self.report
            .entries
            .iter()
            .map(|entry| format!("{} {}", entry.key.name, line(&entry.outcome)))
            .collect()
    }

    /// Cycles until nothing moves, or nothing new is decided: all lines.
    pub fn settle(&mut self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for _ in 0..50 {
            let new = self.cycle();
            if !self.report.progress && lines.ends_with(&new) {
                return lines;
            }
            lines.extend(new);
            if !self.core.has_heads() {
                return lines;
            }
        }
        panic!("no rest after 50 cycles: {lines:?}");
    }

    /// What the last cycle reported about a head that was not admitted.
    pub fn why(&self, name: &str) -> &Unadmitted {
        let entry = self.report.entries.iter().find(|entry| &*entry.key.name == name).expect("it was a head");
        match &entry.outcome {
            Outcome::Preempting { why, .. } | Outcome::Unadmitted(why) | Outcome::PreemptionGated(why) => why,
            Outcome::Admitted { .. }
            | Outcome::SecondPass(_)
            | Outcome::SlicesMoved(_)
            | Outcome::SliceReclaims(_)
            | Outcome::NodesNotReplaced(..) => {
                panic!("{name} holds quota")
            }
        }
    }

    /// The message of a head that was not admitted.
    pub fn message(&self, name: &str) -> String {
        self.why(name).message()
    }

    /// What a head was admitted with in the last cycle.
    pub fn admission(&self, name: &str) -> &Admission {
        let entry = self.report.entries.iter().find(|entry| &*entry.key.name == name).expect("it was a head");
        match &entry.outcome {
            Outcome::Admitted { admission, .. } => admission,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// The flavors of a head admitted in the last cycle: `resource=flavor` per pod set.
    pub fn flavors(&self, name: &str) -> Vec<String> {
        let pod_sets = self.admission(name).pod_sets.iter();
        pod_sets.flat_map(|pod_set| &pod_set.flavors).map(|(r, f)| format!("{r}={f}")).collect()
    }

    /// The workloads in the heap of a queue, in order.
    pub fn heap(&self, queue: &str) -> Vec<String> {
        self.listed(queue, true)
    }

    /// The inadmissible workloads of a queue, in order.
    pub fn inadmissible(&self, queue: &str) -> Vec<String> {
        self.listed(queue, false)
    }

    fn listed(&self, queue: &str, active: bool) -> Vec<String> {
        let positions = self.core.positions(queue);
        positions.iter().filter(|at| at.active == active).map(|at| at.key.name.to_string()).collect()
    }

    /// What a queue may still use of `gpu` in the flavor `default`.
    pub fn available(&mut self, queue: &str) -> i64 {
        self.core.take_changed();
        self.core.snapshot().available(&self.core, queue, DEFAULT, "gpu").expect("there is quota").get()
    }

    /// What a queue uses of `gpu` in the flavor `default`: in total, and borrowed.
    pub fn used(&self, queue: &str) -> (i64, i64) {
        let status = self.core.cluster_queue_status(queue).expect("the queue exists");
        let resource = &status.reservation[0].1[0];
        (resource.total.get(), resource.borrowed.get())
    }

    /// `gpu` of the flavor `default` in a Cohort: the quota of its subtree, and the usage that reaches it.
    pub fn subtree(&self, cohort: &str) -> (i64, i64) {
        let status = self.core.cohort_status(cohort).expect("the cohort exists");
        let (_, _, quota, used) = status.subtree.first().expect("it has quota");
        (quota.get(), used.get())
    }

    /// The weighted share of a queue.
    pub fn share(&self, queue: &str) -> i64 {
        self.core.cluster_queue_status(queue).expect("the queue exists").weighted_share
    }
}

/// What a cycle decided, in short: `admitted FLAVORS`, `preempts NAME:REASON …`, or the reason with its message where
/// that does not come from the flavors.
fn line(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Admitted { admission, .. } => {
            let flavors =
                admission.pod_sets.iter().flat_map(|pod_set| &pod_set.flavors).map(|(_, flavor)| flavor);
            let mut flavors: Vec<&str> = flavors.map(|flavor| &**flavor).collect();
            flavors.dedup();
            format!("admitted {}", flavors.join(","))
        }
        Outcome::Preempting { victims, .. } => format!("preempts{}", listed(victims)),
        Outcome::SliceReclaims(victims) => format!("slice reclaims{}", listed(victims)),
        Outcome::Unadmitted(why) => match &why.detail {
            Detail::Flavors { .. } => why.reason.as_str().to_owned(),
            _ => format!("{}: {}", why.reason.as_str(), why.message()),
        },
        Outcome::PreemptionGated(_) => "gated".to_owned(),
        Outcome::SecondPass(Ok(nodes)) => format!("placed {}", placed(nodes)),
        Outcome::SecondPass(Err(why)) => format!("not placed: {why}"),
        Outcome::SlicesMoved(moved) => {
            let SlicesMoved { nodes, lost, pods, to } = moved;
            format!("{pods} moved from {} to {}: {}", lost.join(","), to.join(","), placed(nodes))
        }
        Outcome::NodesNotReplaced(nodes, slice) => {
            let slice = slice.as_ref().map_or_else(String::new, |why| format!("; slice: {why}"));
            format!("not replaced: {}{slice}", nodes.join(","))
        }
    }
}

/// Victims, each with the reason.
fn listed(victims: &[Victim]) -> String {
    let each = victims.iter().map(|victim| {
        let again = if victim.already_evicted { " (evicted before)" } else { "" };
        format!(" {}:{}{again}", victim.key.name, victim.reason.as_str())
    });
    each.collect()
}

/// The text of a skipped head that no longer fits.
pub const NO_LONGER_FITS: &str = "WaitingForQuota: Workload no longer fits after processing another workload";
/// The text of a skipped head whose victims another head took.
pub const OVERLAPS: &str =
    "WaitingForQuota: Workload has overlapping preemption targets with another workload";
/// The text of a head that will fit when the victims of another head are gone.
pub const DEFERRED: &str = "WaitingForPreemptedWorkloads: Workload has overlapping preemption targets with another \
                            workload, but will fit after these preemptions complete";

/// Pod sets and their domains: `main h1=2,h2=1`.
fn placed(nodes: &[(Name, SharedAssignment)]) -> String {
    let pod_sets = nodes.iter().map(|(name, assignment)| format!("{name} {}", domains(assignment)));
    pod_sets.collect::<Vec<_>>().join("; ")
}

/// Domains by their lowest value, with their pods: `h1=2,h2=1`.
pub fn domains(assignment: &TopologyAssignment) -> String {
    let lowest = |domain: &AssignedDomain| domain.values.join("/");
    let parts = assignment.domains.iter().map(|domain| format!("{}={}", lowest(domain), domain.count));
    parts.collect::<Vec<_>>().join(",")
}
