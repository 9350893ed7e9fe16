//! The plan of a seed: which jobs are created in which order, what their users do to them, and which faults happen. Pure: the same seed and size give
//! the same plan.

use std::time::Duration;

use sluice_testkit::{Disruption, Harm, Part};

use super::dice::Dice;
use super::world::{NAMESPACES, PLACED, PLACED_NODES, PRIORITIES, QUEUES, RACK};

/// How a job comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// All pods at once.
    Plain,
    /// More completions than pods at once.
    Waves,
    /// With indexes.
    Indexed,
    /// Its pods end at different times: some have completed when it is preempted.
    Ragged,
    /// Its first pod fails, and it with that.
    Fails,
    /// It runs with fewer pods if it must.
    Partial,
    /// A JobSet of two kinds of Jobs.
    Set,
    /// A JobSet whose driver soon completes, and whose workers run until it is deleted: it stays partly completed. No seed plans one.
    Half,
}

/// The shapes of Jobs.
const SHAPES: [Shape; 8] = [
    Shape::Plain,
    Shape::Waves,
    Shape::Indexed,
    Shape::Ragged,
    Shape::Ragged,
    Shape::Fails,
    Shape::Partial,
    Shape::Set,
];

/// How near to each other pods may be.
const PLACEMENTS: [(&str, &str); 4] = [
    ("kueue.x-k8s.io/podset-required-topology", RACK),
    ("kueue.x-k8s.io/podset-required-topology", "kubernetes.io/hostname"),
    ("kueue.x-k8s.io/podset-preferred-topology", RACK),
    ("kueue.x-k8s.io/podset-unconstrained-topology", "true"),
];

/// One job in so many that has partly completed is stopped.
const PARTLY: usize = 10;

/// A job that a user makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobPlan {
    pub name: String,
    pub namespace: &'static str,
    pub queue: &'static str,
    pub shape: Shape,
    /// At once.
    pub pods: u64,
    /// Thousandths of a processor for each pod.
    pub cpu: u64,
    /// How long a pod runs, in thousandths of a second.
    pub runs: u64,
    /// How long a pod takes to stop after SIGTERM, in seconds.
    pub stops: u64,
    pub priority: Option<&'static str>,
    /// The annotation that says how near to each other its pods are to be.
    pub placement: Option<(&'static str, &'static str)>,
}

impl JobPlan {
    /// One of this number that stays partly completed, and does not wait for others for long.
    pub fn half(number: usize) -> Self {
        Self {
            name: format!("half-{number}"),
            namespace: NAMESPACES[0],
            queue: "production",
            shape: Shape::Half,
            pods: 3,
            cpu: 250,
            runs: 3_600_000,
            stops: 0,
            priority: Some("urgent"),
            placement: None,
        }
    }

    /// Whether it is a JobSet.
    pub fn is_set(&self) -> bool {
        matches!(self.shape, Shape::Set | Shape::Half)
    }
}

/// What users do between two jobs. Numbers are those of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Make(JobPlan),
    Delete {
        job: usize,
        foreground: bool,
    },
    Reprioritize {
        job: usize,
        priority: &'static str,
    },
    Deactivate {
        job: usize,
    },
    Activate {
        job: usize,
    },
    /// Lets it run by hand, in whatever state it is.
    Unsuspend {
        job: usize,
    },
    /// Moves it to another queue, in whatever state it is.
    Requeue {
        job: usize,
        queue: &'static str,
    },
    /// Deletes its Workload.
    DeleteWorkload {
        job: usize,
    },
    /// Deactivates the Workload of any job of which some pods have completed and others run, until it holds no quota.
    StopPartly,
    Hold {
        queue: &'static str,
        drain: bool,
    },
    Resume {
        queue: &'static str,
    },
}

/// Which replicas a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Leader,
    Follower,
    Both,
}

/// What happens to the managers and the control plane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// SIGKILL; a new start after this time.
    Kill(Whom, Duration),
    /// SIGTERM, and a new start.
    Restart(Whom),
    /// The leader stands still until another leads, and comes back.
    FreezeLeader,
    /// The leader does not reach the API server until another leads.
    CutLeader,
    /// A program of the plane stands still.
    Freeze(Part, Duration),
    /// A program of the plane is killed and starts again.
    Replace(Part),
    /// Requests are harmed.
    Disrupt(Whom, Disruption),
    /// Every connection breaks.
    DropConnections,
    /// A node with a topology is deleted, and is there again after this time. Its pods stay until their own time is over, or until the control
    /// plane takes them for lost.
    LoseNode(&'static str, Duration),
}

impl Fault {
    /// What kind of fault it is, with whom or what it hits.
    pub fn kind(self) -> String {
        let kind = match self {
            Self::Disrupt(..) => "Disrupt".to_owned(),
            Self::LoseNode(..) => "LoseNode".to_owned(),
            other => format!("{other:?}"),
        };
        kind.split([',', '{']).next().unwrap_or_default().replace('(', " ").replace(')', "").trim().to_owned()
    }

    /// How a recording calls it: its kind, and for requests what happens to them.
    pub fn recorded(self) -> String {
        match self {
            Self::Disrupt(_, Disruption { harm, .. }) => format!("{} {}", self.kind(), harm_kind(harm)),
            other => other.kind(),
        }
    }
}

/// What kind of harm it is, without for how long.
pub(super) fn harm_kind(harm: Harm) -> String {
    match harm {
        Harm::Slow(_) => "Slow".to_owned(),
        Harm::Refuse(status) => format!("Refuse {status}"),
        other => format!("{other:?}"),
    }
}

/// What a user does, in order.
pub(super) fn acts(seed: u64, user: u32, jobs: usize) -> Vec<Act> {
    // Another number is that of the faults.
    let mut dice = Dice::new(seed, if user == 0 { 1 } else { 100 + u64::from(user) });
    // What was planned before there were more kinds of acts is still planned.
    let mut more = Dice::new(seed, (1 << 20) + u64::from(user));
    let mut plans: Vec<JobPlan> = Vec::new();
    let mut acts = Vec::new();
    // What must be taken back later: after this many jobs.
    let mut later: Vec<(usize, Act)> = Vec::new();
    for number in 0..jobs {
        let plan = job(&mut dice, format!("job-{user}-{number}"));
        plans.push(plan.clone());
        acts.push(Act::Make(plan));
        let (due, rest) = later.into_iter().partition(|(when, _)| *when <= number);
        later = rest;
        acts.extend(Vec::into_iter(due).map(|(_, act)| act));
        // One that is about to start, runs, or waits, as it may be.
        let recent = number.saturating_sub(dice.index(12));
        match dice.below(20) {
            0 | 1 => acts.push(Act::Delete { job: recent, foreground: dice.one_in(2) }),
            2 => acts.push(Act::Reprioritize { job: recent, priority: dice.pick(&PRIORITIES).0 }),
            3 => {
                acts.push(Act::Deactivate { job: recent });
                later.push((number + 6, Act::Activate { job: recent }));
            }
            4 if later.iter().all(|(_, act)| !matches!(act, Act::Resume { .. })) => {
                let queue = dice.pick(&QUEUES);
                acts.push(Act::Hold { queue, drain: dice.one_in(2) });
                later.push((number + 8, Act::Resume { queue }));
            }
            _ => {}
        }
        acts.extend(one_more(&mut more, number, &plans));
    }
    acts.extend(later.into_iter().map(|(_, act)| act));
    acts
}

/// What a user does besides, after the last of these jobs was made.
fn one_more(dice: &mut Dice, number: usize, plans: &[JobPlan]) -> Option<Act> {
    let job = number.saturating_sub(dice.index(8));
    let (which, queue) = (dice.below(15), *dice.pick(&QUEUES));
    let plan = &plans[job];
    match which {
        _ if number % PARTLY == PARTLY - 1 => Some(Act::StopPartly),
        // Pods that are made by hand get no places, and are as many as the job asks for. When the Jobs of a JobSet have heard of the stop, it does
        // not say.
        0 | 1 if plan.placement.is_none() && ![Shape::Partial, Shape::Set].contains(&plan.shape) => {
            Some(Act::Unsuspend { job })
        }
        // One that asks for places would wait for ever where there are none.
        2 | 3 if plan.queue != PLACED && queue != PLACED => Some(Act::Requeue { job, queue }),
        4 => Some(Act::DeleteWorkload { job }),
        _ => None,
    }
}

fn job(dice: &mut Dice, name: String) -> JobPlan {
    // Some run for longer than anything else may continue; they leave room for others.
    let long = dice.one_in(20);
    let shape = if long { Shape::Plain } else { *dice.pick(&SHAPES) };
    let pods = dice.between(1, 4).max(if shape == Shape::Plain { 1 } else { 2 });
    // At most three processors in all: every queue has that for itself.
    let cpu = if long { 250 } else { *dice.pick(&[250, 500, 750]) };
    let runs = if long { dice.between(60, 90) * 1_000 } else { dice.between(2, 16) * 100 };
    let stops = if dice.one_in(3) { dice.between(2, 5) } else { 0 };
    let priority = dice.one_in(2).then(|| dice.pick(&PRIORITIES).0);
    let (namespace, queue) = (*dice.pick(&NAMESPACES), *dice.pick(&QUEUES));
    let placement = (queue == PLACED).then(|| *dice.pick(&PLACEMENTS));
    JobPlan { name, namespace, queue, shape, pods, cpu, runs, stops, priority, placement }
}

/// Every kind of fault once, in an order of its own each time.
pub(super) fn faults(dice: &mut Dice) -> Vec<Fault> {
    let span = |dice: &mut Dice, least, most| Duration::from_millis(dice.between(least, most));
    let mut faults = vec![
        Fault::Kill(Whom::Leader, span(dice, 0, 1_500)),
        Fault::Kill(Whom::Leader, span(dice, 0, 200)),
        Fault::Kill(Whom::Follower, span(dice, 0, 1_500)),
        Fault::Kill(Whom::Both, span(dice, 0, 1_500)),
        Fault::Restart(Whom::Leader),
        Fault::FreezeLeader,
        Fault::CutLeader,
        Fault::Freeze(Part::ApiServer, span(dice, 300, 3_500)),
        Fault::Freeze(Part::Etcd, span(dice, 300, 3_500)),
        Fault::Replace(Part::ApiServer),
        Fault::Replace(Part::Etcd),
        Fault::DropConnections,
        Fault::LoseNode(dice.pick::<&'static str>(&PLACED_NODES), span(dice, 1_000, 30_000)),
    ];
    let harms = [
        (Harm::Refuse(429), 2),
        (Harm::Refuse(500), 2),
        (Harm::Refuse(503), 2),
        (Harm::Refuse(409), 2),
        (Harm::Refuse(410), 1),
        (Harm::ExpireWatch, 1),
        (Harm::LoseAnswer, 3),
        (Harm::LoseRequest, 3),
        (Harm::Slow(span(dice, 50, 800)), 1),
    ];
    for (harm, one_in) in harms {
        let disruption = Disruption { harm, one_in, period: span(dice, 500, 2_500) };
        faults.push(Fault::Disrupt(*dice.pick(&[Whom::Leader, Whom::Both]), disruption));
    }
    dice.shuffle(&mut faults);
    faults
}

/// The pause before the next fault.
pub(super) fn pause(dice: &mut Dice) -> Duration {
    Duration::from_millis(dice.between(50, 1_000))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_always_means_the_same() {
        assert_eq!(acts(7, 0, 200), acts(7, 0, 200));
        assert_ne!(acts(7, 0, 200), acts(8, 0, 200));
        assert_ne!(acts(7, 0, 200), acts(7, 1, 200));
        let reported = |seed| format!("{:?}", faults(&mut Dice::new(seed, 2)));
        assert_eq!(reported(7), reported(7));
        assert_ne!(reported(7), reported(8));
    }

    #[test]
    fn everything_happens_and_what_is_stopped_resumes() {
        let acts = acts(1, 0, 300);
        let shapes: BTreeSet<_> = acts
            .iter()
            .filter_map(|act| if let Act::Make(job) = act { Some(job.shape) } else { None })
            .collect();
        assert_eq!(shapes.len(), 7, "{shapes:?}");
        let (mut held, mut inactive, mut deleted) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut ever = (0, 0);
        let (mut unsuspended, mut moved, mut without_workload, mut partly) = (0, 0, 0, 0);
        for act in &acts {
            match act {
                Act::Hold { queue, .. } => ever.0 += usize::from(held.insert(*queue)),
                Act::Resume { queue } => assert!(held.remove(queue)),
                Act::Deactivate { job } => ever.1 += usize::from(inactive.insert(*job)),
                Act::Activate { job } => drop(inactive.remove(job)),
                Act::Delete { .. } => deleted += 1,
                Act::Unsuspend { .. } => unsuspended += 1,
                Act::Requeue { .. } => moved += 1,
                Act::DeleteWorkload { .. } => without_workload += 1,
                Act::StopPartly => partly += 1,
                _ => {}
            }
        }
        assert!(held.is_empty() && inactive.is_empty());
        assert!(ever.0 > 0 && ever.1 > 0 && deleted > 0, "{ever:?} {deleted}");
        assert_eq!(partly, 30);
        assert!(
            [unsuspended, moved, without_workload].iter().all(|times| *times >= 10),
            "{unsuspended} {moved} {without_workload}"
        );
    }

    #[test]
    fn faults_are_distinguished_by_what_they_hit() {
        let second = Duration::from_secs(1);
        assert_eq!(Fault::Kill(Whom::Both, second).kind(), "Kill Both");
        assert_eq!(Fault::Freeze(Part::Etcd, second).kind(), "Freeze Etcd");
        assert_eq!(Fault::LoseNode("n", second).kind(), "LoseNode");
        assert_eq!(Fault::FreezeLeader.kind(), "FreezeLeader");
        assert_eq!(Fault::Replace(Part::ApiServer).recorded(), "Replace ApiServer");
        let slow = Disruption { harm: Harm::Slow(second), one_in: 1, period: second };
        assert_eq!(Fault::Disrupt(Whom::Leader, slow).recorded(), "Disrupt Slow");
        let kinds: BTreeSet<_> = faults(&mut Dice::new(1, 2)).into_iter().map(Fault::kind).collect();
        assert_eq!(kinds.len(), 13, "{kinds:?}");
        let harms = [Harm::Refuse(429), Harm::Slow(second), Harm::LoseAnswer].map(harm_kind);
        assert_eq!(harms, ["Refuse 429", "Slow", "LoseAnswer"]);
    }

    #[test]
    fn some_pods_run_long_and_some_take_time_to_stop() {
        let jobs: Vec<_> = acts(1, 0, 300)
            .into_iter()
            .filter_map(|act| if let Act::Make(job) = act { Some(job) } else { None })
            .collect();
        let of = |is: fn(&JobPlan) -> bool| jobs.iter().filter(|job| is(job)).count();
        assert!((8..=25).contains(&of(|job| job.runs >= 60_000)), "{}", of(|job| job.runs >= 60_000));
        assert!((80..=120).contains(&of(|job| job.stops >= 2)), "{}", of(|job| job.stops >= 2));
    }

    #[test]
    fn every_job_fits_into_its_queue() {
        let made = |act| if let Act::Make(job) = act { Some(job) } else { None };
        for job in acts(3, 0, 500).into_iter().filter_map(made).chain([JobPlan::half(0)]) {
            assert!(job.pods * job.cpu <= 3_000, "{job:?}");
            assert!(QUEUES.contains(&job.queue), "{job:?}");
            assert!(
                job.priority.is_none_or(|name| PRIORITIES.iter().any(|(class, _)| *class == name)),
                "{job:?}"
            );
        }
    }
}
