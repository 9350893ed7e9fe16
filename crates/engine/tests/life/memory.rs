//! What is kept of objects that are not needed in full.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::EnvVar;
use serde_json::{Value, json};
use sluice_api::job::{ControllerRef, JobKind, JobView};
use sluice_engine::{Effect, Engine, EngineConfig, Input, Kind, Object, ObjectRef, Purpose};

use crate::model::Cluster;
use crate::model::build::{job, template};
use crate::model::pods::{member, pod};
use crate::plain_pods::bed;

const LARGE: usize = 1 << 20;

/// A job with a large pod template.
fn large(name: &str, queue: Option<&str>) -> JobView {
    let mut view = job("team-a", name, queue.unwrap_or("none"), 1, "1");
    view.queue_name = queue.map(str::to_owned);
    let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
    let env = EnvVar { name: "LARGE".to_owned(), value: Some("x".repeat(LARGE)), ..EnvVar::default() };
    template.spec.as_mut().unwrap().containers[0].env = Some(vec![env]);
    view
}

/// What an engine keeps of a job, in bytes.
fn kept(engine: &mut Engine, view: impl FnOnce() -> JobView) -> i64 {
    let measured = allocation_counter::measure(|| {
        engine.apply(Timestamp::UNIX_EPOCH, Input::Applied(Object::Job(Box::new(view()))));
    });
    measured.bytes_current
}

#[test]
fn of_a_job_without_a_queue_no_template_is_kept() {
    let mut engine = Engine::new(EngineConfig::default());
    for number in 0..20 {
        let bytes = kept(&mut engine, || large(&format!("plain-{number}"), None));
        assert!(bytes < 8 << 10, "{bytes} bytes are kept");
    }
    let bytes = kept(&mut engine, || large("queued", Some("q")));
    assert!(bytes > i64::try_from(LARGE).unwrap(), "{bytes}: its Workload is still to be made");
    // When it gets a queue name, it is seen in full.
    let bytes =
        kept(&mut engine, || JobView { resource_version: "9".to_owned(), ..large("plain-3", Some("q")) });
    assert!(bytes > i64::try_from(LARGE).unwrap(), "{bytes}");

    let all = EngineConfig { manage_jobs_without_queue_name: true, ..EngineConfig::default() };
    let bytes = kept(&mut Engine::new(all), || large("plain", None));
    assert!(bytes > i64::try_from(LARGE).unwrap(), "{bytes}: it gets a Workload, too");
}

/// An object may have tens of thousands of them.
#[test]
fn of_labels_those_that_are_copied_are_kept() {
    let copied = EngineConfig { label_keys_to_copy: vec!["team".to_owned()], ..EngineConfig::default() };
    let mut engine = Engine::new(copied);
    for queue in [None, Some("q")] {
        let bytes = kept(&mut engine, || {
            let mut view = job("team-a", "labelled", queue.unwrap_or_default(), 1, "1");
            view.resource_version = format!("1{}", queue.map_or(0, str::len));
            view.labels = (0..60_000).map(|at| (format!("l{at}"), String::new())).collect();
            view.labels.insert("team".to_owned(), "red".to_owned());
            view
        });
        assert!(bytes < 16 << 10, "{bytes} bytes are kept");
    }
}

#[test]
fn of_a_job_that_another_kind_made_no_template_is_kept() {
    let mut engine = Engine::new(EngineConfig::default());
    let text = |text: &str| text.to_owned();
    let bytes = kept(&mut engine, || {
        let mut view = job("team-a", "made", "", 1, "1");
        let (api_version, kind) = (text("example.com/v1"), text("Maker"));
        view.controller = Some(ControllerRef { api_version, kind, name: text("m"), uid: text("u") });
        view.pod_sets[0].scheduling.labels =
            (0..60_000).map(|at| (format!("l{at}"), String::new())).collect();
        view
    });
    assert!(bytes < 16 << 10, "{bytes} bytes are kept");
}

/// A job without a queue whose owner does not exist, with many labels in its template. Any user can write such a reference.
fn claiming() -> JobView {
    let mut view = job("team-a", "claims", "", 1, "1");
    let kind = JobKind::JOB_SET;
    let (api_version, kind) = (kind.api_version().to_owned(), kind.kind().to_owned());
    view.controller = Some(ControllerRef { api_version, kind, name: "no".to_owned(), uid: "no".to_owned() });
    view.pod_sets[0].scheduling.labels = (0..3_900).map(|at| (format!("l{at}"), String::new())).collect();
    view
}

#[test]
fn of_a_job_whose_owner_does_not_exist_no_template_is_kept() {
    for leads in [false, true] {
        let mut engine = Engine::new(EngineConfig::default());
        engine.apply(Timestamp::UNIX_EPOCH, Input::Leader(leads));
        engine.apply(Timestamp::UNIX_EPOCH, Input::Synced);
        engine.cycle(Timestamp::UNIX_EPOCH);
        let measured = allocation_counter::measure(|| {
            engine.apply(Timestamp::UNIX_EPOCH, Input::Applied(Object::Job(Box::new(claiming()))));
            engine.cycle(Timestamp::UNIX_EPOCH);
            // Until then its owner might still be seen.
            let later = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(11);
            engine.apply(later, Input::Tick);
            engine.cycle(later);
        });
        assert!(measured.bytes_current < 16 << 10, "{} bytes are kept", measured.bytes_current);
    }
}

/// Of an object whose pods are in groups each group would have its own.
#[test]
fn of_an_object_whose_pods_wait_in_its_place_no_template_is_kept_without_a_queue() {
    for kind in [JobKind::STATEFUL_SET, JobKind::LEADER_WORKER_SET] {
        let bytes = kept(&mut Engine::new(EngineConfig::default()), || {
            let mut view = claiming();
            view.job.kind = kind;
            view.groups = kind.has_groups().then_some(2);
            view
        });
        assert!(bytes < 64 << 10, "{kind:?}: {bytes} bytes are kept");
    }
}

#[test]
fn of_a_queued_object_whose_pods_wait_in_its_place_little_is_kept_for_each_group() {
    for (kind, groups) in [(JobKind::STATEFUL_SET, None), (JobKind::LEADER_WORKER_SET, Some(200))] {
        let bytes = kept(&mut Engine::new(EngineConfig::default()), || {
            let mut view = claiming();
            (view.job.kind, view.controller, view.groups) = (kind, None, groups);
            view.queue_name = Some("q".to_owned());
            if groups.is_some() {
                view.annotations = [("kueue.x-k8s.io/note".to_owned(), "x".repeat(64 << 10))].into();
            }
            view
        });
        let most = i64::from(groups.unwrap_or(4)) * (16 << 10);
        assert!(bytes < most, "{kind:?}: {bytes} bytes are kept");
    }
}

/// The groups of [`in_groups`].
const GROUPS: usize = 20;
/// The size of its template.
const OF_TEMPLATE: usize = 256 << 10;

/// An object whose groups of pods are jobs, with a large template. Its queue is missing, so that all wait.
fn in_groups() -> JobView {
    let mut view = job("team-a", "web", "nowhere", 1, "1");
    view.job.kind = JobKind::LEADER_WORKER_SET;
    view.groups = u32::try_from(GROUPS).ok();
    let set = &mut view.pod_sets[0];
    let spec = Arc::make_mut(set.template.as_mut().unwrap()).spec.as_mut().unwrap();
    let env = EnvVar { name: "LARGE".to_owned(), value: Some("x".repeat(OF_TEMPLATE)), ..EnvVar::default() };
    spec.containers[0].env = Some(vec![env]);
    set.containers_hash = sluice_api::names::containers_hash(spec);
    view
}

/// How many writes of a purpose come of the object of [`in_groups`] as it is now, and how many bytes are kept while none is answered.
fn pending(c: &mut Cluster, purpose: Purpose) -> (usize, i64) {
    let of = ObjectRef::namespaced(Kind::Job(JobKind::LEADER_WORKER_SET), "team-a", "web");
    let object = c.api.seen(&of);
    let (engine, now) = (&mut c.engine, c.now);
    let mut effects = Vec::new();
    let measured = allocation_counter::measure(|| {
        engine.apply(now, Input::Applied(object));
        effects = engine.cycle(now);
    });
    let is_of = |effect: &&Effect| matches!(effect, Effect::Write(write) if write.purpose == purpose);
    (effects.iter().filter(is_of).count(), measured.bytes_current)
}

#[test]
fn the_writes_for_all_groups_of_an_object_have_its_template_in_common() {
    let most = i64::try_from(4 * OF_TEMPLATE).unwrap();
    let mut c = bed("1");
    c.settle();
    c.api.add_job(in_groups());
    let (creations, bytes) = pending(&mut c, Purpose::CreateWorkload);
    assert_eq!(creations, GROUPS);
    assert!(bytes < most, "{bytes} bytes are kept");

    let mut c = bed("1");
    c.api.add_job(in_groups());
    c.settle();
    c.api.edit_job("web", |job| job.view.pod_sets[0].containers_hash += 1);
    let (updates, bytes) = pending(&mut c, Purpose::UpdateWorkload);
    assert_eq!(updates, GROUPS);
    assert!(bytes < most, "{bytes} bytes are kept");
}

#[test]
fn of_a_template_little_is_kept_however_many_values_it_has() {
    let mut engine = Engine::new(EngineConfig::default());
    for (values, most) in [(3_900, 512 << 10), (240_000, 16 << 10)] {
        let terms =
            json!([{"matchExpressions": [{"key": "a", "operator": "In", "values": vec!["a"; values]}]}]);
        let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let object = json!({
            "metadata": {"name": format!("of-{values}"), "namespace": "team-a", "uid": "u", "resourceVersion": "1",
                "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"suspend": true, "template": {"spec": {
                "affinity": {"nodeAffinity": nodes}, "containers": [{"name": "c", "image": "i"}]}}},
        });
        let bytes = kept(&mut engine, || sluice_jobs::observe(JobKind::JOB, &object));
        assert!(bytes < most, "{bytes} bytes are kept of {values} values");
    }
}

/// A Workload that a user made, as the API server has it once it has finished.
fn ended(number: usize) -> Value {
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": message, "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let template = serde_json::to_value(template("1")).unwrap();
    let usage = json!({"cpu": "3", "memory": "12Gi"});
    json!({
        "metadata": {
            "name": format!("workload-of-team-a-{number:06}"), "namespace": "team-a", "generation": 1,
            "uid": format!("11111111-2222-3333-4444-{number:012}"), "resourceVersion": (100_000 + number).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"class": "small"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(2_000)},
        },
        "spec": {"queueName": "lq", "priority": 50, "active": true,
            "podSets": [{"name": "main", "count": 3, "template": template}]},
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 3,
                "flavors": {"cpu": "default", "memory": "default"}, "resourceUsage": usage}]},
            "resourceRequests": [{"name": "main", "resources": usage}],
            "conditions": [
                condition("QuotaReserved", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
                condition("Admitted", "Admitted", "The workload is admitted"),
                condition("PodsReady", "Started", "All pods reached readiness and the workload is running"),
                condition("Finished", "Succeeded", "Job finished successfully"),
            ],
        },
    })
}

fn seen(workload: &Value) -> Input {
    // As the watch has it: from text.
    Input::Applied(Object::Workload(Box::new(serde_json::from_str(&workload.to_string()).unwrap())))
}

#[test]
fn a_finished_workload_that_is_made_to_continue_is_known_in_full_again() {
    let mut c = bed("3");
    let workload = c.api.put(Kind::Workload, ended(1));
    c.settle();
    let known = |c: &Cluster| c.engine.workloads().find(|(of, _)| *of == workload).unwrap().1.clone();
    let kept = known(&c);
    let shown = |type_: &str| {
        let condition = kept.status.conditions.iter().find(|condition| condition.type_ == type_);
        condition.map(|condition| (condition.status.as_str(), condition.message.as_str()))
    };
    assert_eq!(shown("Finished"), Some(("True", "Job finished successfully")));
    assert_eq!((shown("Admitted"), shown("PodsReady")), (Some(("True", "")), Some(("True", ""))));
    assert_eq!((&kept.metadata.labels, &kept.metadata.annotations), (&None, &None));
    c.api.edit_status(&workload, |status| {
        status["conditions"].as_array_mut().unwrap().truncate(3);
    });
    c.settle();
    let shown = serde_json::to_value(known(&c).status).unwrap();
    assert_eq!(shown["admission"], ended(1)["status"]["admission"]);
    assert_eq!(shown["conditions"][1]["message"], "The workload is admitted");
}

/// A Workload is seen again after each write of ours on it.
#[test]
fn what_was_seen_before_costs_the_same_however_many_own_it() {
    let mut engine = Engine::new(EngineConfig::default());
    engine.follow_positions();
    let mut cost = |owners: usize| {
        let owner = |at: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{at}"), "uid": format!("u{at}")});
        let mut workload = ended(owners);
        workload["metadata"]["ownerReferences"] = (0..owners).map(owner).collect();
        engine.apply(Timestamp::UNIX_EPOCH, seen(&workload));
        let again = seen(&workload);
        allocation_counter::measure(|| engine.apply(Timestamp::UNIX_EPOCH, again)).count_total
    };
    assert_eq!(cost(1_000), cost(1));
}

/// A pod of the group `g` of `total`, with a large template.
fn large_pod(name: &str, total: usize, role: &str) -> Value {
    let mut pod = member(name, "g", total, role);
    pod["spec"]["containers"][0]["env"] = json!([{"name": "LARGE", "value": "x".repeat(LARGE)}]);
    pod
}

#[test]
fn of_a_group_whose_pods_are_not_all_there_one_template_a_role_is_kept() {
    let mut c = bed("1");
    let mut kept = |name: &str, role: &str| {
        c.api.add_pod(large_pod(name, 5_000, role));
        let object = c.api.seen(&ObjectRef::namespaced(Kind::Job(JobKind::POD), "team-a", name));
        let (engine, now) = (&mut c.engine, c.now);
        allocation_counter::measure(|| engine.apply(now, Input::Applied(object))).bytes_current
    };
    let (full, little) = (i64::try_from(LARGE).unwrap(), 16 << 10);
    assert!(kept("p0", "main") >= 0);
    for at in 1..20 {
        let bytes = kept(&format!("p{at:02}"), "main");
        // What was read for it is dropped again.
        assert!(bytes < little, "{bytes} bytes are kept");
    }
    // Roles without end.
    let bytes: i64 = (0..40).map(|at| kept(&format!("r{at:02}"), &format!("role-{at}"))).sum();
    assert!(bytes < 19 * full, "{bytes} bytes are kept");
}

/// The pod that stands for a role is read again when a Workload is made, if its template is not there.
#[test]
fn a_group_whose_first_pod_goes_before_the_rest_comes_is_admitted_all_the_same() {
    let mut c = bed("3");
    for at in 0..2 {
        c.api.add_pod(large_pod(&format!("p{at}"), 3, "main"));
        c.settle();
    }
    c.api.delete_queued_pod("p0");
    c.settle();
    for at in 2..4 {
        c.api.add_pod(large_pod(&format!("p{at}"), 3, "main"));
        c.settle();
    }
    assert!((1..4).all(|at| c.api.is_free(&format!("p{at}"))), "{:?}", c.api.workloads());
    let template = json!(c.api.workloads()[0].spec.pod_sets[0].template);
    assert_eq!(template["spec"]["containers"][0]["env"][0]["name"], "LARGE");
}

/// The writer's channel has no bound of its own: this is what bounds it.
#[test]
fn open_writes_are_never_more_than_the_objects_however_much_happens_while_no_write_is_answered() {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.frameworks.insert(JobKind::POD);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    c.api.local_queue("team-a", "other", "cq");
    for name in ["runs", "waits"] {
        c.api.add_job(job("team-a", name, "lq", 2, "1"));
        c.settle();
    }
    c.api.add_pod(pod("gated", "lq", "9"));
    c.settle();
    c.silent = true;
    c.api.add_job(job("team-a", "late", "lq", 1, "1"));
    let workloads = c.api.names(Kind::Workload);
    let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    let mut most = 0;
    for round in 0..300 {
        let workload = &workloads[round % workloads.len()];
        match round % 6 {
            0 => c.api.edit(workload, &json!({"spec": {"active": round % 12 == 0}})),
            1 => c.api.edit_job("waits", |job| {
                job.view.queue_name = Some(if round % 12 == 1 { "other" } else { "lq" }.to_owned());
            }),
            2 => {
                c.api.cluster_queue("cq", "default", &(round % 5).to_string(), &json!({}));
            }
            3 => {
                let policy = ["None", "Hold", "HoldAndDrain"][round % 9 / 3];
                c.api.edit(&cq, &json!({"spec": {"stopPolicy": policy}}));
            }
            4 => c.api.edit_job("runs", |job| job.view.pods_ready = round % 12 == 4),
            _ => c.api.edit_pod("gated", &json!({"metadata": {"labels": {"round": round.to_string()}}})),
        }
        c.advance(7);
        // The Workload of one job is yet to be made.
        let objects = c.api.everything().len() + 1;
        let open = c.engine.open_writes();
        assert!(open <= objects, "round {round}: {open} writes for {objects} objects");
        most = most.max(open);
    }
    assert!(most >= 4, "{most}: nothing was written");
    c.release();
    c.advance(60);
    assert_eq!(c.engine.open_writes(), 0);
}
