//! A managed job that is not admitted does not run, whatever other problems it has.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::job::{ControllerRef, JobFinished, JobKind, JobView};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WriteError};

use crate::kinds::{restart_with, suspended_by_field};
use crate::late_owners::circle;
use crate::model::build::{job, template, wrapped};
use crate::model::{Cluster, condition};

pub fn with(config: EngineConfig) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..config });
    c.api.namespace("team-a", &[("managed", "yes")]);
    c.api.namespace("team-b", &[]);
    c.api.simple("1", &json!({}));
    c.api.local_queue("team-b", "lq", "cq");
    c
}

pub fn cluster() -> Cluster {
    with(EngineConfig::default())
}

/// Puts a job there that a user lets run.
pub fn running(c: &mut Cluster, mut view: JobView) {
    let name = view.job.name.to_string();
    (view.suspended, view.active) = (false, true);
    c.api.add_job(view);
    c.api.edit_job(&name, |job| job.started_by_user = true);
}

/// A Workload of one pod, with this owner.
pub fn workload(c: &mut Cluster, name: &str, queue: &str, owner: &Value) -> ObjectRef {
    let template = serde_json::to_value(template("1")).unwrap();
    let owners: Vec<_> = Some(owner).into_iter().filter(|owner| !owner.is_null()).collect();
    c.api.put(
        Kind::Workload,
        json!({
            "metadata": {"name": name, "namespace": "team-a", "ownerReferences": owners,
                "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
            "spec": {"queueName": queue, "active": true,
                "podSets": [{"name": "main", "count": 1, "template": template}]},
        }),
    )
}

fn owner(kind: JobKind, name: &str, uid: &str) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "name": name, "uid": uid, "controller": true})
}

pub fn set(c: &mut Cluster, workload: &ObjectRef, types: &[&str]) {
    let conditions: Vec<_> = types
        .iter()
        .map(|kind| {
            json!({"type": kind, "status": "True", "reason": "Test", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        })
        .collect();
    let assignments =
        json!([{"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}]);
    let reserved = types.contains(&"QuotaReserved");
    c.api.edit_status(workload, |status| {
        *status = json!({"conditions": conditions});
        if reserved {
            status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": assignments});
        }
    });
}

pub const ADMITTED: [&str; 2] = ["QuotaReserved", "Admitted"];
const EVICTED: [&str; 3] = ["QuotaReserved", "Admitted", "Evicted"];

/// The writes that stopped a job.
pub fn halts(c: &Cluster, name: &str) -> usize {
    let stops = |(object, purpose): &&(ObjectRef, Purpose)| {
        *object.name == *name && matches!(purpose, Purpose::StopJob | Purpose::SuspendJob)
    };
    c.writes.iter().filter(stops).count()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    None,
    /// A UID that nothing has.
    MadeUp,
    /// The UID of a managed JobSet in another namespace.
    Elsewhere,
    /// A managed JobSet's name with another UID.
    WrongUid,
    /// A managed JobSet in a version that nothing serves, which made no such job.
    Unserved,
    /// A JobSet without a queue.
    Unmanaged,
    /// A managed JobSet whose Workload waits.
    Waiting,
    /// A managed JobSet whose Workload is admitted.
    Admitted,
    /// A batch Job that is admitted: those make no jobs.
    Job,
    /// Itself.
    Itself,
    /// One of two Jobs without a queue that own each other.
    Circle,
}

const OWNERS: [Owner; 11] = [
    Owner::None,
    Owner::MadeUp,
    Owner::Elsewhere,
    Owner::WrongUid,
    Owner::Unserved,
    Owner::Unmanaged,
    Owner::Waiting,
    Owner::Admitted,
    Owner::Job,
    Owner::Itself,
    Owner::Circle,
];

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a job")]
struct State {
    owner: Owner,
    /// What it is, unless its owner could have made it.
    alone: JobKind,
    /// Whether AppWrappers stand where JobSets do.
    wrapped: bool,
    /// Whether the name is one that the owner would give.
    named_as_made: bool,
    queue: Option<&'static str>,
    unnamed_managed: bool,
    namespace: &'static str,
    prebuilt: Option<&'static str>,
    own: Option<Vec<&'static str>>,
    invalid: bool,
    deleting: bool,
    finished: bool,
    stopping: bool,
    class: bool,
    too_many: bool,
    old: bool,
}

prop_compose! {
    fn states()(
        owner in prop::sample::select(OWNERS.to_vec()),
        alone in prop::sample::select(suspended_by_field()),
        named_as_made: bool,
        queue in prop::option::of(prop::sample::select(vec!["lq", "missing"])),
        unnamed_managed: bool,
        namespace in prop::sample::select(vec!["team-a", "team-a", "team-b"]),
        prebuilt in prop::option::of(prop::sample::select(vec!["nowhere", "others", "finished", "leaving", "free", "own"])),
        own in prop::option::of(prop::sample::select(vec![
            vec![], vec!["QuotaReserved"], ADMITTED.to_vec(), EVICTED.to_vec(), vec!["QuotaReserved", "Admitted", "Finished"], vec!["Finished"],
        ])),
        flags in any::<[bool; 8]>(),
    ) -> State {
        let [invalid, deleting, finished, stopping, class, too_many, old, wrapped] = flags;
        State { owner, alone, wrapped, named_as_made, queue, unnamed_managed, namespace, prebuilt, own, invalid, deleting, finished, stopping, class, too_many, old }
    }
}

impl State {
    fn managed_itself(&self) -> bool {
        // Without its queue it is managed as long as it has the quota that it had with it.
        let held = [&ADMITTED[..1], &ADMITTED, &EVICTED].contains(&self.own.as_deref().unwrap_or_default());
        self.queue.is_some() || (self.unnamed_managed || self.deleting && held) && self.namespace == "team-a"
    }

    fn kind(&self) -> JobKind {
        let is_alone = matches!(self.owner, Owner::None | Owner::MadeUp | Owner::WrongUid);
        if is_alone { self.alone } else { JobKind::JOB }
    }

    /// The kind of the job above.
    fn above(&self) -> JobKind {
        if self.wrapped { JobKind::APP_WRAPPER } else { JobKind::JOB_SET }
    }

    /// Whether the job runs on the Workload of the job above.
    fn is_part(&self) -> bool {
        let beside = self.namespace == "team-a";
        let managed = match self.owner {
            Owner::Waiting | Owner::Admitted | Owner::Unserved | Owner::Job => beside,
            // With this, every job is managed.
            Owner::Unmanaged => beside && self.unnamed_managed,
            Owner::Elsewhere => !beside,
            _ => false,
        };
        let made = self.named_as_made && !matches!(self.owner, Owner::Job | Owner::Elsewhere);
        managed && (made || !self.managed_itself())
    }

    fn is_admitted(&self) -> bool {
        if self.is_part() {
            return !matches!(self.owner, Owner::Waiting | Owner::Unmanaged | Owner::Elsewhere);
        }
        let own = self.own.as_ref().is_some_and(|types| *types == ADMITTED || *types == EVICTED);
        own && self.namespace == "team-a" && self.prebuilt.is_none_or(|name| name == "own")
    }

    fn is_to_be_stopped(&self) -> bool {
        if self.is_part() {
            // The controller of a job that is being deleted does not look whether it is suspended.
            // It is not known what a wrapped object asks for that cannot be read.
            let wrapped = self.wrapped && self.owner != Owner::Job;
            let unknown = wrapped && self.too_many && self.named_as_made;
            return (!self.is_admitted() || unknown) && !self.finished && !self.deleting;
        }
        // What follows changes while it runs may run anything once it cannot be read.
        let unread = (self.invalid || self.too_many) && self.kind().integration().follows_changes;
        // A new one waits for its owner to be seen.
        let waits = !self.old && matches!(self.owner, Owner::MadeUp | Owner::WrongUid | Owner::Elsewhere);
        let unknown = unread && !self.deleting && !waits;
        // Whatever is above it, and also when it has left its queue.
        let own_evicted = self.own.as_ref().is_some_and(|types| *types == EVICTED);
        let evicted = own_evicted && self.namespace == "team-a" && !self.deleting && !waits;
        (evicted || self.managed_itself() && (!self.is_admitted() || unknown)) && !self.finished
    }

    fn play(&self) -> Cluster {
        let selector = serde_json::from_value(json!({"matchLabels": {"managed": "yes"}})).unwrap();
        let mut c = with(EngineConfig {
            manage_jobs_without_queue_name: self.unnamed_managed,
            managed_jobs_namespace_selector: Some(selector),
            ..EngineConfig::default()
        });
        let queue = |of: Owner| if of == Owner::Unmanaged { "" } else { "lq" };
        for (namespace, name, kind) in [
            ("team-a", "set", self.above()),
            ("team-b", "far", self.above()),
            ("team-a", "plain", JobKind::JOB),
        ] {
            let mut above = job(namespace, name, queue(self.owner), 1, "1");
            above.job.kind = kind;
            if kind == JobKind::APP_WRAPPER {
                above.pod_sets[0].wrapped = Some(wrapped(JobKind::JOB, &format!("{name}-main-0")));
            }
            c.api.add_job(above);
        }
        let uid = |c: &Cluster, name: &str| c.api.job(name).view.job.uid.to_string();
        let set_uid = uid(&c, "set");
        if matches!(self.owner, Owner::Admitted | Owner::Unserved) {
            let of = workload(&mut c, "of-set", "lq", &owner(self.above(), "set", &set_uid));
            set(&mut c, &of, &ADMITTED);
        }
        if self.owner == Owner::Job {
            let plain = uid(&c, "plain");
            let of = workload(&mut c, "of-plain", "lq", &owner(JobKind::JOB, "plain", &plain));
            set(&mut c, &of, &ADMITTED);
        }
        let others = workload(&mut c, "others", "lq", &owner(JobKind::JOB, "other", "u-other"));
        set(&mut c, &others, &ADMITTED);
        let finished = workload(&mut c, "finished", "lq", &Value::Null);
        set(&mut c, &finished, &["Finished"]);
        let leaving = workload(&mut c, "leaving", "lq", &Value::Null);
        c.api.delete(&leaving);
        workload(&mut c, "free", "elsewhere", &Value::Null);
        let name = if self.named_as_made { "set-main-0" } else { "a" };
        let mut view = job(self.namespace, name, self.queue.unwrap_or_default(), 1, "1");
        let (kind, owner_name, owner_uid) = match self.owner {
            Owner::None => (self.above(), "", String::new()),
            Owner::MadeUp => (self.above(), "made-up", "made-up".to_owned()),
            Owner::Elsewhere => (self.above(), "far", uid(&c, "far")),
            Owner::WrongUid => (self.above(), "set", "made-up".to_owned()),
            Owner::Job => (JobKind::JOB, "plain", uid(&c, "plain")),
            Owner::Itself => (JobKind::JOB, name, String::new()),
            Owner::Circle => (JobKind::JOB, "ring-a", circle(&mut c).uid),
            _ => (self.above(), "set", set_uid),
        };
        let api_version = match self.owner {
            Owner::Unserved => format!("{}/v9", kind.group()),
            _ => kind.api_version().to_owned(),
        };
        view.controller = (self.owner != Owner::None).then(|| ControllerRef {
            api_version,
            kind: kind.kind().to_owned(),
            name: owner_name.to_owned(),
            uid: owner_uid,
        });
        view.job.kind = self.kind();
        view.prebuilt_workload = self.prebuilt.map(str::to_owned);
        view.invalid = self.invalid.then(|| "it cannot be read".to_owned());
        view.deleting = self.deleting;
        view.stopping = self.stopping;
        view.workload_priority_class = self.class.then(|| "missing".to_owned());
        view.finished = self.finished.then(|| JobFinished { success: true, message: String::new() });
        if self.too_many {
            view.pod_sets.clear();
            view.invalid = Some("too many pod sets: 19, at most 18".to_owned());
        }
        running(&mut c, view);
        let own_uid = uid(&c, name);
        let (now, old) = (c.now, self.old);
        c.api.edit_job(name, |job| {
            if let Some(owner) = job.view.controller.as_mut().filter(|owner| owner.uid.is_empty()) {
                owner.uid.clone_from(&own_uid);
            }
            job.view.created = if old { jiff::Timestamp::UNIX_EPOCH } else { now };
        });
        if let Some(types) = &self.own {
            let of = workload(&mut c, "own", self.queue.unwrap_or("lq"), &owner(self.kind(), name, &own_uid));
            set(&mut c, &of, types);
        }
        // A manager that starts now sees all of it at once: so it is, too, if the webhook was down when the job was made.
        restart_with(&mut c, self.kind());
        c
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn a_managed_job_that_is_not_admitted_does_not_run(state in states()) {
        let mut c = state.play();
        let name = if state.named_as_made { "set-main-0" } else { "a" };
        for effect in c.engine.take_effects() {
            if let sluice_engine::Effect::Write(request) = effect {
                c.writes.push((request.object, request.purpose));
            }
        }
        prop_assert_eq!(halts(&c, name), usize::from(state.is_to_be_stopped()), "{:#?}", c.writes);
    }

    /// The API server does not take the first stop, or the manager is killed before it has sent it, or while it does.
    #[test]
    fn a_stop_that_is_refused_or_cut_off_once_is_made_good(
        state in states(),
        error in prop::sample::select(vec![
            WriteError::Conflict("409".to_owned()),
            WriteError::Refused("422".to_owned()),
            WriteError::Transient("500".to_owned()),
        ]),
        killed_after in prop::option::of(0_usize..4),
        is_lost: bool,
    ) {
        // That one will be admitted, and run.
        prop_assume!(state.own.as_ref().is_none_or(|types| *types != ["QuotaReserved"]));
        let mut c = state.play();
        let name = if state.named_as_made { "set-main-0" } else { "a" };
        if is_lost {
            c.lost = Some(Purpose::StopJob);
        } else {
            c.fail.extend([Purpose::StopJob, Purpose::SuspendJob].map(|purpose| (purpose, error.clone())));
        }
        if killed_after.is_some() {
            c.writes_left = killed_after;
            c.settle();
            c.writes_left = None;
            restart_with(&mut c, state.kind());
        }
        c.advance(60);
        // It may have been deleted, so that it is made again as it was declared.
        let runs = c.api.jobs().any(|(job, state)| *job.name == *name && !state.view.suspended);
        prop_assert!(!(runs && state.is_to_be_stopped()), "{:#?}", c.writes);
    }
}

#[test]
fn a_job_whose_owner_never_appears_is_a_job_of_its_own() {
    let mut c = cluster();
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.controller = Some(ControllerRef {
        api_version: "jobset.x-k8s.io/v9".to_owned(),
        kind: "JobSet".to_owned(),
        name: "made-up".to_owned(),
        uid: "made-up".to_owned(),
    });
    running(&mut c, view);
    c.settle();
    assert!(c.api.job("a").view.suspended && c.api.workloads().is_empty(), "its owner may yet be seen");
    c.advance(11);
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
}

#[test]
fn children_of_a_job_set_run_on_its_quota_as_soon_as_it_is_seen() {
    let mut c = cluster();
    let mut set = job("team-a", "set", "lq", 1, "1");
    set.job.kind = JobKind::JOB_SET;
    c.api.add_job(set);
    c.settle();
    assert!(!c.api.job("set").view.suspended);
    let controller = |uid: &str| {
        Some(ControllerRef {
            api_version: "jobset.x-k8s.io/v1alpha2".to_owned(),
            kind: "JobSet".to_owned(),
            name: "set".to_owned(),
            uid: uid.to_owned(),
        })
    };
    let uid = c.api.job("set").view.job.uid.to_string();
    // One that the JobSet's controller made, and one that copies its owner reference and asks for a queue.
    for (name, queue) in [("set-main-0", ""), ("copy", "lq")] {
        let mut child = job("team-a", name, queue, 1, "1");
        child.controller = controller(&uid);
        running(&mut c, child);
    }
    c.settle();
    assert!(!c.api.job("set-main-0").view.suspended && c.api.job("copy").view.suspended);
    assert_eq!(halts(&c, "set-main-0"), 0);
    assert_eq!(condition(&c.workload("copy"), "QuotaReserved"), "False");
    // The same after a restart that sees the children first.
    c.restart_without(&[Kind::Job(JobKind::JOB_SET)]);
    c.settle();
    assert!(!c.api.job("set-main-0").view.suspended && c.api.job("copy").view.suspended);
}

#[test]
fn a_job_of_any_kind_that_runs_without_an_admission_is_stopped() {
    for kind in suspended_by_field() {
        let mut c = cluster();
        let mut view = job("team-a", "a", "lq", 2, "1");
        view.job.kind = kind;
        running(&mut c, view);
        restart_with(&mut c, kind);
        c.settle();
        assert!(c.api.job("a").view.suspended, "{kind:?}");
        assert_eq!(c.api.workloads().len(), 1, "{kind:?} waits for quota that there is not");
    }
}
