//! Objects of every kind that cannot be queued: each gets a reason, or the webhook refuses it; none of it runs, and other queued objects are not
//! affected.
//!
//! An API server with the kinds' own CRDs would refuse much of this: counts beyond 2^31-1 in fields with the format `int32`, negative counts of
//! Kubernetes' own kinds and of JobSets, two replicated Jobs of one name, containers that are not a list. It is tested because a CRD may be of
//! another release, or without a schema.

#![expect(clippy::panic, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, TemplateKind};
use sluice_engine::Kind;
use sluice_jobs::Patch;
use sluice_jobs::webhook::{
    Context, Operation, PodSelectors, mutate, mutate_plain_pod, validate, validate_plain_pod,
};

use crate::kueues::{empty, example};
use crate::model::api::JobState;
use crate::model::build::job;
use crate::model::{Cluster, condition, reported};

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The webhook refuses it, with this among what it says.
    Refused(&'static str),
    /// It gets no Workload, and an event on it says this.
    Reported(&'static str),
    /// Its Workload waits for what there is not, and says so.
    Waits,
    /// It asks for no pod of the pod set, or for the one that there is at least, and gets no more.
    Least,
}

/// A queue with a hundred processors, in which a Job runs.
fn bed() -> Cluster {
    let mut c = empty("100");
    c.api.add_job(job("team-a", "before", "lq", 2, "1"));
    c.settle();
    assert!(!c.api.job("before").view.suspended);
    c
}

/// Writes an object as the API server does: by way of the webhooks. Gives what they refuse it for.
fn write(c: &mut Cluster, kind: JobKind, mut object: Value) -> Result<(), String> {
    object["metadata"]["resourceVersion"] = json!("1");
    object["metadata"]["generation"] = json!(1);
    let configuration = Configuration::default();
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "team-a".to_owned())]);
    let context = Context {
        manage_jobs_without_queue_name: false,
        managed_jobs_namespace_selector: &configuration.managed_jobs_namespace_selector,
        namespace_labels: &labels,
        default_local_queue: false,
        default_priority_class: false,
        managed_owner: false,
        gatherer: None,
        gates: Gates::default(),
    };
    let is_pod = kind.integration().of_pods;
    if is_pod {
        object["spec"].as_object_mut().unwrap().remove("schedulingGates");
    }
    let patch = if is_pod {
        mutate_plain_pod(&object, &context, &PodSelectors::default())
    } else {
        mutate(kind, Operation::Create, &object, &context)
    };
    let Patch::Json(operations) = patch else { unreachable!("{kind:?}") };
    let patch: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    let answer = if is_pod {
        validate_plain_pod(&object, None, &context)
    } else {
        validate(kind, &object, None, &context)
    };
    answer.map_err(|denied| denied.to_string())?;
    if is_pod {
        c.api.add_pod(object);
    } else if !kind.integration().pods_are_jobs {
        c.api.add_job(sluice_jobs::observe(kind, &object));
    }
    c.settle();
    c.advance(60);
    Ok(())
}

/// What became of it; nothing of it runs.
fn outcome(c: &Cluster, kind: JobKind, written: Result<(), String>, wanted: &Outcome, what: &str) {
    let own = |note: &String| note.starts_with(&format!("{}/sample: ", kind.kind()));
    let notes: Vec<_> = c.notes("ErrWorkloadCompose").into_iter().filter(own).collect();
    let mut made = c.api.workloads();
    made.retain(|w| w.metadata.owner_references.iter().flatten().any(|owner| owner.name == "sample"));
    match (written, wanted) {
        (Err(said), Outcome::Refused(why)) => assert!(said.contains(why), "{what}: {said}"),
        (Ok(()), Outcome::Reported(why)) => {
            assert_eq!(made, [], "{what}");
            let reported = !notes.is_empty() && notes.iter().all(|note| note.contains(why));
            assert!(reported, "{what}: {:?}", c.events);
        }
        (Ok(()), Outcome::Waits) => {
            assert!(!made.is_empty() && notes.is_empty(), "{what}: {notes:?}");
            for workload in &made {
                assert_eq!(condition(workload, "QuotaReserved"), "False", "{what}");
                assert!(
                    reported(workload, "QuotaReserved").len() > 30,
                    "{what}: {}",
                    reported(workload, "QuotaReserved")
                );
            }
        }
        (Ok(()), Outcome::Least) => {
            let mut sets = made.iter().flat_map(|workload| &workload.spec.pod_sets);
            assert!(sets.all(|set| (0..=1).contains(&set.count)), "{what}: {made:?}");
            return;
        }
        (written, wanted) => {
            panic!("{what}: {written:?} and {notes:?} and {} Workloads instead of {wanted:?}", made.len())
        }
    }
    // What gathers pods has none here.
    let own = |state: &JobState| &*state.view.job.name == "sample" && !kind.gathers_pods();
    let runs = c.api.jobs().any(|(_, state)| own(state) && !state.view.suspended);
    assert!(!runs && !c.api.is_free("sample"), "{what}");
}

/// The Job beside it runs on, and another one is admitted.
fn undisturbed(c: &mut Cluster, what: &str) {
    assert!(!c.api.job("before").view.suspended, "{what}");
    c.api.add_job(job("team-a", "after", "lq", 1, "1"));
    c.settle();
    assert!(!c.api.job("after").view.suspended, "{what}");
}

/// Plays an object of a kind.
fn play(kind: JobKind, object: Value, wanted: &Outcome, what: &str) {
    let what = format!("{kind:?} {what}");
    let mut c = bed();
    let written = write(&mut c, kind, object);
    outcome(&c, kind, written, wanted, &what);
    undisturbed(&mut c, &what);
}

/// The kinds whose objects are jobs, or have them.
fn kinds() -> impl Iterator<Item = JobKind> {
    JobKind::ALL.into_iter().filter(|kind| !kind.integration().pods_are_jobs)
}

/// An object with something else at a place. Those of the last part of the path are made.
fn with(kind: JobKind, pointer: &str, value: Value) -> Value {
    let mut object = example(kind);
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap_or_else(|| panic!("{kind:?} {pointer}"))[field] = value;
    object
}

/// What an object has that says what its pods are, and is no map of a pod template.
const OTHERS: [(JobKind, &str, Outcome); 2] = [
    (JobKind::SPARK_APPLICATION, "/spec/driver/template", Outcome::Refused("spec.driver.template")),
    (JobKind::SPARK_APPLICATION, "/spec/executor/template", Outcome::Refused("spec.executor.template")),
];

#[test]
fn a_template_that_cannot_be_read_is_reported_on_the_object() {
    let mut played = Vec::new();
    for kind in kinds() {
        let object = example(kind);
        for group in sluice_jobs::pod_groups(kind, &object) {
            if object.pointer(&format!("{}/spec/containers", group.pointer)).is_none() {
                continue;
            }
            played.push(kind);
            for odd in [json!("none"), json!({"name": "main"}), json!([{"name": 5}])] {
                let pointer = format!("{}/spec/containers", group.pointer);
                let what = format!("with {odd} at {pointer}");
                play(kind, with(kind, &pointer, odd), &Outcome::Reported(""), &what);
            }
            // Of a pod nothing would be left without.
            if !kind.integration().of_pods {
                for odd in [json!(7), json!({}), Value::Null] {
                    let what = format!("with {odd} at {}", group.pointer);
                    play(kind, with(kind, &group.pointer, odd), &Outcome::Reported(""), &what);
                }
            }
        }
    }
    // A Deployment is none: each of its pods is. Its webhook, too, takes whatever comes.
    for kind in JobKind::ALL.into_iter().filter(|kind| kind.integration().pods_are_jobs) {
        for odd in [json!("none"), json!(7), json!({}), Value::Null, json!([{"name": 5}])] {
            for pointer in [
                "/spec/template",
                "/spec/template/metadata",
                "/spec/template/spec/containers",
                "/spec/replicas",
            ] {
                let mut c = bed();
                write(&mut c, kind, with(kind, pointer, odd.clone())).unwrap();
                assert_eq!(c.api.workloads().len(), 1, "that of the Job");
            }
        }
    }
    for (kind, pointer, wanted) in OTHERS {
        played.push(kind);
        play(kind, with(kind, pointer, json!("none")), &wanted, &format!("with none at {pointer}"));
    }
    // A TrainJob has no template of its own: its runtime has.
    assert!(kinds().all(|kind| kind == JobKind::TRAIN_JOB || played.contains(&kind)), "{played:?}");
}

/// Where each kind has its numbers of pods. A pod is one, and has none.
const COUNTS: [(JobKind, &str); 25] = [
    (JobKind::JOB, "/spec/parallelism"),
    (JobKind::JOB_SET, "/spec/replicatedJobs/0/replicas"),
    (JobKind::JOB_SET, "/spec/replicatedJobs/0/template/spec/parallelism"),
    (JobKind::JAX_JOB, "/spec/jaxReplicaSpecs/Worker/replicas"),
    (JobKind::MPI_JOB, "/spec/mpiReplicaSpecs/Launcher/replicas"),
    (JobKind::MPI_JOB, "/spec/mpiReplicaSpecs/Worker/replicas"),
    (JobKind::PADDLE_JOB, "/spec/paddleReplicaSpecs/Master/replicas"),
    (JobKind::PADDLE_JOB, "/spec/paddleReplicaSpecs/Worker/replicas"),
    (JobKind::PYTORCH_JOB, "/spec/pytorchReplicaSpecs/Master/replicas"),
    (JobKind::PYTORCH_JOB, "/spec/pytorchReplicaSpecs/Worker/replicas"),
    (JobKind::TF_JOB, "/spec/tfReplicaSpecs/Chief/replicas"),
    (JobKind::TF_JOB, "/spec/tfReplicaSpecs/PS/replicas"),
    (JobKind::TF_JOB, "/spec/tfReplicaSpecs/Worker/replicas"),
    (JobKind::XGBOOST_JOB, "/spec/xgbReplicaSpecs/Master/replicas"),
    (JobKind::XGBOOST_JOB, "/spec/xgbReplicaSpecs/Worker/replicas"),
    (JobKind::LEADER_WORKER_SET, "/spec/replicas"),
    (JobKind::LEADER_WORKER_SET, "/spec/leaderWorkerTemplate/size"),
    (JobKind::RAY_CLUSTER, "/spec/workerGroupSpecs/0/replicas"),
    (JobKind::RAY_JOB, "/spec/rayClusterSpec/workerGroupSpecs/0/replicas"),
    (JobKind::RAY_SERVICE, "/spec/rayClusterConfig/workerGroupSpecs/0/replicas"),
    (JobKind::RAY_CLUSTER, "/spec/workerGroupSpecs/0/numOfHosts"),
    (JobKind::SPARK_APPLICATION, "/spec/executor/instances"),
    (JobKind::STATEFUL_SET, "/spec/replicas"),
    (JobKind::TRAIN_JOB, "/spec/trainer/numNodes"),
    (JobKind::APP_WRAPPER, "/spec/components/0/template/spec/parallelism"),
];

/// What becomes of a count below nothing, and of one beyond all bounds.
fn outcomes(kind: JobKind, pointer: &str) -> [Outcome; 2] {
    let of_replicas = pointer.contains("ReplicaSpecs/");
    let groups = kind.has_groups() && pointer == "/spec/replicas";
    let less = if of_replicas {
        Outcome::Refused("must be greater than or equal to 0")
    } else if kind == JobKind::SPARK_APPLICATION {
        Outcome::Refused("must not be negative")
    } else {
        Outcome::Least
    };
    let more = if pointer.contains("Launcher") {
        Outcome::Refused("must be 1")
    } else if groups {
        Outcome::Refused("must be less than or equal to 5000")
    } else {
        Outcome::Waits
    };
    [less, more]
}

#[test]
fn absurd_counts_run_nothing() {
    let of = |kind: JobKind| COUNTS.iter().any(|(of, _)| *of == kind);
    assert!(kinds().all(|kind| of(kind) || kind == JobKind::POD), "every kind has its counts");
    for (kind, pointer) in COUNTS {
        let [less, more] = outcomes(kind, pointer);
        let play = |count: i64, wanted: &Outcome| {
            let mut object = with(kind, pointer, json!(count));
            // No more run at a time than are to be completed.
            let completions = pointer.strip_suffix("parallelism").map(|of| format!("{of}completions"));
            if let Some(completions) = completions.and_then(|pointer| object.pointer_mut(&pointer)) {
                *completions = json!(count);
            }
            play(kind, object, wanted, &format!("with {count} at {pointer}"));
        };
        for count in [-1, i64::from(i32::MIN), i64::MIN] {
            play(count, &less);
        }
        for count in [i64::from(i32::MAX), i64::MAX] {
            play(count, &more);
        }
    }
}

/// A list of `count` like that at a place, each with another name in this field.
fn many(object: &mut Value, pointer: &str, field: &str, count: usize) {
    let list = object.pointer_mut(pointer).unwrap();
    let one = list[0].clone();
    let named = |at: usize| {
        let mut next = one.clone();
        if !field.is_empty() {
            next[field] = json!(format!("{}{at}", one[field].as_str().unwrap()));
        }
        next
    };
    *list = (0..count).map(named).collect();
}

/// A kind with a list of what has pods, the field with the names in it, and what is said of nineteen pod sets.
const LISTS: [(JobKind, &str, &str, usize, Outcome); 5] = [
    (
        JobKind::JOB_SET,
        "/spec/replicatedJobs",
        "name",
        19,
        Outcome::Reported("too many pod sets: 19, at most 18"),
    ),
    (
        JobKind::RAY_CLUSTER,
        "/spec/workerGroupSpecs",
        "groupName",
        18,
        Outcome::Refused("must have at most 18 items"),
    ),
    (
        JobKind::RAY_JOB,
        "/spec/rayClusterSpec/workerGroupSpecs",
        "groupName",
        18,
        Outcome::Refused("must have at most 18 items"),
    ),
    (
        JobKind::RAY_SERVICE,
        "/spec/rayClusterConfig/workerGroupSpecs",
        "groupName",
        18,
        Outcome::Refused("must have at most 18 items"),
    ),
    (
        JobKind::APP_WRAPPER,
        "/spec/components",
        "",
        19,
        Outcome::Reported("too many pod sets: 19, at most 18"),
    ),
];

#[test]
fn more_pod_sets_than_a_workload_may_have_are_reported_or_refused() {
    for (kind, pointer, field, count, wanted) in LISTS {
        let mut object = example(kind);
        many(&mut object, pointer, field, count);
        play(kind, object, &wanted, "with many");
    }
    // A TrainJob has those of its runtime. The other kinds have no more than they have types of replicas.
    let mut c = bed();
    let template = Kind::Template(TemplateKind::CLUSTER_TRAINING_RUNTIME);
    let reference = c.api.names(template).remove(0);
    let mut runtime = c.api.json(&reference).unwrap().clone();
    many(&mut runtime, "/spec/template/spec/replicatedJobs", "name", 19);
    c.api.edit(&reference, &json!({"spec": runtime["spec"]}));
    let written = write(&mut c, JobKind::TRAIN_JOB, example(JobKind::TRAIN_JOB));
    outcome(&c, JobKind::TRAIN_JOB, written, &Outcome::Reported("too many pod sets: 19"), "TrainJob");
    undisturbed(&mut c, "TrainJob");
}

/// The field with the types of replicas of a kind.
fn replica_types(object: &Value) -> Option<String> {
    let fields = object["spec"].as_object()?;
    fields.keys().find(|name| name.ends_with("ReplicaSpecs")).cloned()
}

#[test]
fn two_pod_sets_of_one_name_are_reported_or_refused() {
    // A type in other letters, which an operator may take for the same.
    let mut played = 0;
    for kind in kinds() {
        let mut object = example(kind);
        let Some(field) = replica_types(&object) else { continue };
        let types = object["spec"][&field].as_object_mut().unwrap();
        let (name, first) = types.iter().next().map(|(name, spec)| (name.clone(), spec.clone())).unwrap();
        types.insert(name.to_lowercase(), first);
        played += 1;
        play(kind, object, &Outcome::Reported("unknown replica type"), "with a type in small letters");
    }
    assert_eq!(played, 6, "the kinds of Kubeflow");
    for (kind, pointer, field, ..) in LISTS.into_iter().filter(|(.., field, _, _)| !field.is_empty()) {
        let of_ray = kind.group() == JobKind::RAY_JOB.group();
        let wanted =
            if of_ray { "is the name of another group" } else { "more than one pod set has the name \"r\"" };
        for change in [str::to_owned, str::to_uppercase] {
            let mut object = example(kind);
            let list = object.pointer_mut(pointer).unwrap();
            let mut twin = list[0].clone();
            twin[field] = json!(change(twin[field].as_str().unwrap()));
            list.as_array_mut().unwrap().push(twin);
            play(kind, object, &Outcome::Reported(wanted), "with two of a name");
        }
    }
}
