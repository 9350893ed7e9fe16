//! Tables stay short, and decisions stay the same, after any creations and deletions.

use crate::config::Config;
use crate::fixtures::{Co, Cq, Job, NS, cohort, cq, flavor, job, key, lq, n, q};
use crate::report::Changed;
use crate::scheduler::Scheduler;
use crate::spec::{PreemptionPolicy, Time};
use crate::tables::LEAST;
use crate::workload::{WorkloadSpec, WorkloadState};

fn queue(name: &str) -> Cq {
    cq(name).within(PreemptionPolicy::LowerPriority).reclaim(PreemptionPolicy::Any)
}

/// A workload that is created, and ordered, now.
fn created(job: Job, now: Time) -> WorkloadSpec {
    WorkloadSpec { created: now, queue_order: now, ..job.spec }
}

fn workload(name: &str, queue: &str, resource: &str, amount: i64, now: Time) -> WorkloadSpec {
    created(job(name, queue).req(resource, amount), now)
}

fn longest(scheduler: &Scheduler) -> usize {
    scheduler.sizes().into_iter().map(|size| size.rows).max().unwrap_or(0)
}

#[test]
fn ten_thousand_names_that_came_and_went_leave_short_tables() {
    let mut scheduler = Scheduler::new(Config::default());
    scheduler.set_flavor(flavor("kept"));
    scheduler.set_cluster_queue(queue("kept").cohort("kept").flavor("kept", &[("cpu", q(10))]).0);
    scheduler.set_local_queue(lq("kept", "kept"));
    scheduler.set_workload(workload("kept", "kept", "cpu", 1, Time(0)), Time(0));
    assert_eq!(scheduler.cycle(Time(1)).entries.len(), 1);
    for round in 0..10_000 {
        let [name, resource] = ["n", "example.com/r"].map(|stem| format!("{stem}-{round}"));
        let now = Time(i64::from(round) + 2);
        scheduler.set_flavor(flavor(&name));
        scheduler.set_cohort(cohort(&name).parent("kept").flavor(&name, &[(&resource, q(1))]).0);
        scheduler.set_cluster_queue(queue(&name).cohort(&name).flavor(&name, &[(&resource, q(1))]).0);
        scheduler.set_local_queue(lq(&name, &name));
        scheduler.set_workload(workload(&name, &name, &resource, 1, now), now);
        assert_eq!(scheduler.cycle(now).entries.len(), 1, "round {round}");
        // Names that nothing else ever knows: of a queue, and of resources.
        scheduler.set_workload(workload("stray", &format!("nowhere-{round}"), &resource, 1, Time(0)), now);
        scheduler.set_local_queue(lq("stray", &format!("missing-{round}")));
        scheduler.remove_workload(&key("stray"), now);
        scheduler.remove_workload(&key(&name), now);
        scheduler.remove_local_queue(NS, &name);
        scheduler.remove_cluster_queue(&name);
        scheduler.remove_cohort(&name);
        scheduler.remove_flavor(&name);
        scheduler.take_changed();
    }
    assert_eq!(scheduler.audit(), Ok(()));
    assert!(longest(&scheduler) <= LEAST + 64, "{:?}", scheduler.sizes());
    scheduler.sweep();
    let alive = scheduler.sizes().map(|size| size.rows - size.free);
    assert!(alive.into_iter().max() <= Some(4), "{alive:?}");
    assert_eq!(
        scheduler.world.namespace_locals.values().map(Vec::len).sum::<usize>(),
        scheduler.world.local_index.len()
    );
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn name(&mut self, stem: &str, end: u64) -> String {
        format!("{stem}{}", self.below(end))
    }
}

/// Whether a ClusterQueue has a flavor for a resource.
fn covers(scheduler: &Scheduler, queue: &str, flavor: &str, resource: &str) -> bool {
    let spec =
        scheduler.world.queue_index.get(queue).and_then(|id| scheduler.world.queues[id.at()].spec.as_ref());
    let mut groups = spec.into_iter().flat_map(|spec| &spec.resource_groups);
    groups.any(|group| {
        group.covered.contains(&n(resource)) && group.flavors.iter().any(|of| &*of.name == flavor)
    })
}

/// One change of a small world, out of few names, so that what is gone comes back.
fn change(random: &mut Random, schedulers: &mut [Scheduler; 2], now: Time) {
    let what = random.below(12);
    let (flavor_name, resource) = (random.name("f", 4), random.name("r", 3));
    let (queue_name, cohort_name) = (random.name("q", 6), random.name("c", 3));
    let (local_name, name) = (random.name("l", 8), random.name("w", 24));
    let (amount, priority) = (random.below(4), random.below(3));
    let (amount, priority) = (i64::try_from(amount).unwrap(), i32::try_from(priority).unwrap());
    let lonely = random.below(3) == 0;
    for scheduler in schedulers {
        match what {
            0 => scheduler.set_flavor(flavor(&flavor_name)),
            1 => {
                let queue = queue(&queue_name).flavor(&flavor_name, &[(&resource, q(amount))]);
                scheduler.set_cluster_queue(if lonely { queue } else { queue.cohort(&cohort_name) }.0);
            }
            2 => {
                let under = |cohort: Co| if cohort_name == "c0" { cohort } else { cohort.parent("c0") };
                let quota = |cohort: Co| cohort.flavor(&flavor_name, &[(&resource, q(amount))]);
                let cohort = under(cohort(&cohort_name));
                scheduler.set_cohort(if lonely { cohort } else { quota(cohort) }.0);
            }
            3 | 4 => scheduler.set_local_queue(lq(&local_name, &queue_name)),
            5 => match priority {
                0 => scheduler.remove_flavor(&flavor_name),
                1 => scheduler.remove_cohort(&cohort_name),
                _ => scheduler.remove_local_queue(NS, &local_name),
            },
            6 => scheduler.remove_cluster_queue(&queue_name),
            7 | 8 => scheduler.remove_workload(&key(&name), now),
            // What a queue has no quota for is new to it if it was forgotten, and others in its tree are tried again.
            9 if !covers(scheduler, &queue_name, &flavor_name, &resource) => {}
            9 => {
                let job = job(&name, &local_name).req(&resource, amount).priority(priority);
                let state = WorkloadState::Reserved {
                    admission: job.admission(&queue_name, &flavor_name),
                    reserved_at: now,
                    admitted: true,
                    evicted: false,
                    pods_ready: true,
                    topology: crate::TopologyState::default(),
                };
                scheduler.set_workload(WorkloadSpec { state, ..created(job, now) }, now);
            }
            _ => {
                let job = job(&name, &local_name).req(&resource, amount).priority(priority);
                scheduler.set_workload(created(job, now), now);
            }
        }
    }
}

#[test]
fn decisions_do_not_depend_on_what_was_forgotten() {
    let (mut decided, mut forgotten) = (0, 0);
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut schedulers = [Scheduler::new(Config::default()), Scheduler::new(Config::default())];
        for step in 0..250 {
            let now = Time(step + 1);
            change(&mut random, &mut schedulers, now);
            let [sweeping, keeping] = &mut schedulers;
            keeping.refresh();
            sweeping.sweep();
            assert_eq!(sweeping.audit(), Ok(()), "seed {seed}, step {step}");
            let (of_one, of_other) = (sweeping.cycle(now), keeping.cycle(now));
            decided += of_one.entries.len();
            assert_eq!(format!("{of_one:?}"), format!("{of_other:?}"), "seed {seed}, step {step}");
            assert_eq!(sweeping.audit(), Ok(()), "seed {seed}, step {step}");
            if step % 16 == 0 {
                let (of_one, mut of_other) = (sweeping.take_changed(), keeping.take_changed());
                // That a Cohort does not exist can be reported only while its name is known.
                of_other.cohorts.retain(|name| sweeping.world.forest.cohort(name).is_some());
                assert!(of_other.cohorts.iter().all(|name| of_one.cohorts.contains(name)));
                let queues = |changed: Changed| (changed.cluster_queues, changed.local_queues);
                assert_eq!(queues(of_one), queues(of_other), "seed {seed}, step {step}");
            }
        }
        let [sweeping, keeping] = &schedulers;
        forgotten += keeping.sizes().map(|size| size.rows).iter().sum::<usize>()
            - sweeping.sizes().map(|size| size.rows - size.free).iter().sum::<usize>();
    }
    assert!(decided > 1_000 && forgotten > 60, "{decided} decisions, {forgotten} rows");
}
