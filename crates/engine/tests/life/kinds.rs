//! A managed job of any kind that is not admitted does not run, and has no running pods. The kinds are those of the registry, declared kinds, and a
//! kind whose Workloads another controller makes.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::job::{ControllerRef, JobKind, PartNames};
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::answered::errand;
use crate::gated_pods;
use crate::model::build::{job, made_by, pod_set};
use crate::model::pods::{FREED, member, pod};
use crate::model::{Cluster, condition};
use crate::plain_pods::bed;
use crate::unadmitted::{ADMITTED, running, set, with, workload};

/// The kinds that a field suspends, with one that is declared. Those of pods are below.
pub fn suspended_by_field() -> Vec<JobKind> {
    let own = |kind: &JobKind| !kind.integration().of_pods && !kind.integration().suspends_pods;
    let declared = errand("engine.kinds.example.com", &json!({"name": "main", "template": "spec.template"}));
    JobKind::ALL.into_iter().filter(own).chain([declared]).collect()
}

/// A new manager, with this kind, also if it is a declared one.
pub fn restart_with(c: &mut Cluster, kind: JobKind) {
    c.config.frameworks.insert(kind);
    c.restart();
    if !JobKind::ALL.contains(&kind) {
        let present = c.api.names(Kind::Job(kind));
        let revision = c.api.revision();
        c.list(Kind::Job(kind), present, revision);
    }
}

/// Whose pods they are.
#[derive(Clone, Copy, Debug)]
enum Pods {
    /// Each is a job.
    Alone,
    /// They are one job together.
    Group,
    /// Of an object of this kind.
    Of(JobKind),
}

fn pods() -> Vec<Pods> {
    let of = |kind: &JobKind| kind.integration().suspends_pods;
    let kinds = JobKind::ALL.into_iter().filter(of).chain([gated_pods::kind()]);
    [Pods::Alone, Pods::Group].into_iter().chain(kinds.map(Pods::Of)).collect()
}

const SIZE: usize = 3;

/// One of three pods of one cpu each, as the webhook leaves it.
fn one(of: Pods, number: usize, queue: &str) -> Value {
    let name = format!("web-{number}");
    let mut made = match of {
        Pods::Alone => pod(&name, queue, "1"),
        Pods::Group => member(&name, "web", SIZE, "main"),
        Pods::Of(kind) => {
            let mut pod = pod(&name, queue, "1");
            let metadata = &mut pod["metadata"];
            metadata["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] = json!(kind.framework());
            if kind.gathers_pods() {
                metadata.as_object_mut().unwrap().remove("finalizers");
            }
            if let Some(label) = kind.label_of_pods() {
                metadata["labels"][label] = json!("web");
            }
            let owner = if kind.gathers_pods() && !kind.has_groups() { kind } else { JobKind::STATEFUL_SET };
            metadata["ownerReferences"] = json!([{"apiVersion": owner.api_version(), "kind": owner.kind(),
                "name": "web", "uid": "u-web", "controller": true}]);
            pod
        }
    };
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
    made
}

/// The object of the pods, if it is looked at itself.
fn add_object(c: &mut Cluster, kind: JobKind, queue: &str) {
    if !kind.gathers_pods() {
        return;
    }
    let count = i32::try_from(SIZE).unwrap();
    let mut view = job("team-a", "web", queue, count, "1");
    view.job.kind = kind;
    view.on_hold = Some(false);
    if kind.has_groups() {
        view.groups = u32::try_from(SIZE).ok();
        view.pod_sets = vec![pod_set("main", 1, "1")];
    }
    c.api.add_job(view);
}

/// How many pods run, or may at any time, and how many are admitted.
fn free_and_admitted(c: &Cluster) -> (usize, usize) {
    let free = c.api.pods().iter().filter(|name| c.api.is_free(name)).count();
    let admitted = |w: &&sluice_api::v1beta2::Workload| {
        condition(w, "Admitted") == "True" && condition(w, "Finished") != "True"
    };
    let all = c.api.workloads();
    let sets = all.iter().filter(admitted).flat_map(|w| &w.spec.pod_sets);
    let pods: i32 = sets.map(|set| set.count).sum();
    (free, usize::try_from(pods).unwrap())
}

/// What becomes of pods.
#[derive(Clone, Debug)]
struct Outcome {
    of: Pods,
    queue: &'static str,
    cpu: usize,
    /// Which of them have no gate when they come: the webhook was down.
    came_free: [bool; SIZE],
    /// Of which the user takes the gates off.
    freed: [bool; SIZE],
    evicted: bool,
    workload_deleted: bool,
    restarted: bool,
}

prop_compose! {
    fn outcomes()(
        of in prop::sample::select(pods()),
        queue in prop::sample::select(vec!["lq", "lq", "missing"]),
        cpu in 0..=SIZE,
        came_free in any::<[bool; SIZE]>(),
        freed in any::<[bool; SIZE]>(),
        flags in any::<[bool; 3]>(),
    ) -> Outcome {
        let [evicted, workload_deleted, restarted] = flags;
        Outcome { of, queue, cpu, came_free, freed, evicted, workload_deleted, restarted }
    }
}

impl Outcome {
    fn begin(&self) -> Cluster {
        let mut c = bed(&self.cpu.to_string());
        if let Pods::Of(kind) = self.of {
            restart_with(&mut c, kind);
            add_object(&mut c, kind, self.queue);
            c.settle();
        }
        for number in 0..SIZE {
            let mut pod = one(self.of, number, self.queue);
            if let Pods::Of(kind) = self.of
                && kind.gathers_pods()
                && !kind.has_groups()
            {
                pod["metadata"]["ownerReferences"][0]["uid"] = json!(&*c.api.job("web").view.job.uid);
            }
            if self.came_free[number] {
                pod["spec"]["schedulingGates"] = Value::Null;
                pod["metadata"]["annotations"][FREED] = json!("yes");
            }
            c.api.add_pod(pod);
        }
        c.settle();
        c
    }
}

fn right(c: &Cluster, outcome: &Outcome) -> Result<(), TestCaseError> {
    let (free, admitted) = free_and_admitted(c);
    prop_assert!(free <= admitted && admitted <= outcome.cpu, "{free} run, {admitted} are admitted");
    prop_assert!(admitted == 0 || outcome.queue == "lq", "{admitted} are admitted");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn no_more_pods_run_than_are_admitted_whosever_they_are(outcome in outcomes()) {
        let mut c = outcome.begin();
        right(&c, &outcome)?;
        for number in (0..SIZE).filter(|number| outcome.freed[*number]) {
            let name = format!("web-{number}");
            if c.api.is_gated(&name) {
                c.api.free(&name);
            }
        }
        if outcome.restarted {
            c.restart();
            if let Pods::Of(kind) = outcome.of {
                restart_with(&mut c, kind);
            }
        }
        c.settle();
        right(&c, &outcome)?;
        for workload in c.api.names(Kind::Workload) {
            if outcome.evicted {
                c.api.edit(&workload, &json!({"spec": {"active": false}}));
            }
            if outcome.workload_deleted {
                c.api.delete(&workload);
            }
        }
        c.settle();
        right(&c, &outcome)?;
        let (free, _) = free_and_admitted(&c);
        prop_assert!(!outcome.evicted || outcome.workload_deleted || free == 0, "{free} run on");
    }

    /// A job whose parent's Workload others make, of any kind.
    #[test]
    fn a_job_below_a_parent_that_only_a_workload_admits_runs_with_that(
        kind in prop::sample::select(suspended_by_field()),
        queue in prop::sample::select(vec!["", "lq"]),
        types in prop::option::of(prop::sample::select(vec![
            vec![], vec!["QuotaReserved"], ADMITTED.to_vec(), vec!["QuotaReserved", "Admitted", "Finished"], vec!["Finished"],
        ])),
        restarted: bool,
    ) {
        let parent = JobKind::external("Errand.v1.external.example.com").unwrap();
        let mut c = with(EngineConfig { external: [parent].into_iter().collect(), ..EngineConfig::default() });
        c.api.cluster_queue("cq", "default", "0", &json!({}));
        let mut above = job("team-a", "above", "lq", 0, "0");
        above.job.kind = parent;
        above.pod_sets.clear();
        c.api.add_job(above);
        let uid = c.api.job("above").view.job.uid.to_string();
        let (api_version, name) = ("external.example.com/v1".to_owned(), "above".to_owned());
        let owner = json!({"apiVersion": api_version, "kind": "Errand", "name": name, "uid": uid, "controller": true});
        if let Some(types) = &types {
            let of = workload(&mut c, "of-above", "lq", &owner);
            set(&mut c, &of, types);
        }
        let mut view = job("team-a", "a", queue, 1, "1");
        view.job.kind = kind;
        view.controller = Some(ControllerRef { api_version, kind: "Errand".to_owned(), name, uid });
        running(&mut c, view);
        restart_with(&mut c, kind);
        c.settle();
        if restarted {
            restart_with(&mut c, kind);
            c.settle();
        }
        let admitted = types.as_ref().is_some_and(|types| *types == ADMITTED);
        prop_assert_eq!(!c.api.job("a").view.suspended, admitted, "{:#?}", c.writes);
    }
}

/// The property above is of no use if nothing runs.
#[test]
fn all_pods_run_that_are_admitted_whosever_they_are() {
    for of in pods() {
        let outcome = Outcome {
            of,
            queue: "lq",
            cpu: SIZE,
            came_free: [false; SIZE],
            freed: [false; SIZE],
            evicted: false,
            workload_deleted: false,
            restarted: false,
        };
        assert_eq!(free_and_admitted(&outcome.begin()), (SIZE, SIZE), "{of:?}");
    }
}

/// Every kind is played here or in `unadmitted`, by a field that suspends it or by its pods.
#[test]
fn no_kind_is_left_out() {
    let of_pods = pods().into_iter().map(|of| match of {
        Pods::Alone | Pods::Group => JobKind::POD,
        Pods::Of(kind) => kind,
    });
    let played: Vec<_> = suspended_by_field().into_iter().chain(of_pods).collect();
    let left_out: Vec<_> = JobKind::ALL.into_iter().filter(|kind| !played.contains(kind)).collect();
    assert_eq!(left_out, []);
    let declared = |kind: &&JobKind| !JobKind::ALL.contains(*kind);
    assert_eq!(played.iter().filter(declared).count(), 2, "one that is suspended, and one whose pods wait");
}

/// The kinds whose controllers make jobs of other kinds, those kinds, and how such jobs are called.
fn makers() -> Vec<(JobKind, JobKind, PartNames)> {
    let of = |above: JobKind| {
        let parts = above.integration().parts.iter();
        parts.map(move |parts| (above, JobKind::named(parts.framework).unwrap(), parts.names))
    };
    JobKind::ALL.into_iter().flat_map(of).collect()
}

/// A part that runs of a job in a queue with so much cpu, of one pod. Its object has more pods than its job if it is `large`.
fn with_part(
    (above, part, names): (JobKind, JobKind, PartNames),
    cpu: &str,
    queue: &str,
    large: bool,
) -> (Cluster, ObjectRef) {
    let mut c = with(EngineConfig::default());
    c.api.cluster_queue("cq", "default", cpu, &json!({}));
    let mut view = job("team-a", "above", "lq", 1, "1");
    view.job.kind = above;
    let (set, name) = match names {
        PartNames::Numbered => ("main", "above-main-0"),
        PartNames::PodSet => ("main", "above-main"),
        PartNames::Job(set) => (set, "above"),
        PartNames::Same => ("main", "above"),
        PartNames::Generated => ("main", "above-x7k2p"),
    };
    view.pod_sets = vec![pod_set(set, 1, "1")];
    if matches!(names, PartNames::Generated) {
        view.part_names = vec![name.to_owned()];
    }
    c.api.add_job(view);
    restart_with(&mut c, above);
    restart_with(&mut c, part);
    c.settle();
    let mut view = job("team-a", name, queue, 1, "1");
    view.job.kind = part;
    // Its controller made it of the job as that is now.
    view.pod_sets.clone_from(&c.api.job("above").view.pod_sets);
    view.pod_sets[0].count = if large { 2 } else { 1 };
    view.controller = Some(made_by(&c.api.job("above").view));
    (view.suspended, view.active) = (false, true);
    c.api.add_job(view);
    let reference = ObjectRef::namespaced(Kind::Job(part), "team-a", name);
    c.api.edit_job_at(&reference, |job| job.started_by_user = true);
    (c, reference)
}

#[test]
fn what_a_job_of_any_kind_consists_of_runs_with_its_admission_and_no_larger() {
    let cases = |of: (JobKind, JobKind, PartNames)| {
        let flags = 0..16_u8;
        flags.map(move |flags| (of, [1, 2, 4, 8].map(|flag| flags & flag != 0)))
    };
    let all: Vec<_> = makers().into_iter().flat_map(cases).collect();
    assert_eq!(all.len(), 6 * 16, "JobSets, MPIJobs, RayJobs twice, RayServices and TrainJobs");
    for (of, [admitted, queued, large, restarted]) in all {
        let (cpu, queue) = (if admitted { "1" } else { "0" }, if queued { "lq" } else { "" });
        let (mut c, part) = with_part(of, cpu, queue, large);
        c.settle();
        if restarted {
            c.restart();
            restart_with(&mut c, of.0);
        }
        c.advance(30);
        let what =
            format!("{of:?}: admitted {admitted}, queued {queued}, large {large}, restarted {restarted}");
        let runs = c.api.jobs().any(|(job, state)| *job == part && !state.view.suspended);
        assert_eq!(runs, admitted && !large, "{what}: {:#?}", c.writes);
        let above = |w: &sluice_api::v1beta2::Workload| {
            w.metadata.owner_references.iter().flatten().all(|owner| owner.kind == of.0.kind())
        };
        assert!(c.api.workloads().iter().all(above), "{what}: the part has no Workload");
    }
}
