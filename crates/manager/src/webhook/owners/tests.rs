use super::*;

use serde_json::json;
use sluice_api::job::DeclaredNames;
use sluice_engine::input::{Input, Kind, Object, ObjectRef};

use crate::webhook::facts::FactStore;

const KIND: JobKind = JobKind::SPARK_APPLICATION;
const KINDS: [JobKind; 2] = [JobKind::POD, KIND];

/// The application `pi` of this UID.
fn application(store: &FactStore, uid: &str, queue: Option<&str>) {
    let labels = queue.map(|queue| json!({"kueue.x-k8s.io/queue-name": queue}));
    let metadata = json!({"name": "pi", "namespace": "ns", "uid": uid, "labels": labels});
    let view = sluice_jobs::observe(KIND, &json!({"metadata": metadata, "spec": {}}));
    store.note(&Input::Applied(Object::Job(Box::new(view))));
}

/// The Workload `w` of an application.
fn workload(store: &FactStore, namespace: &str, of: &str, conditions: &[&str]) {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|type_| {
            json!({"type": type_, "status": "True", "reason": "Yes", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        })
        .collect();
    let owner = json!({"apiVersion": KIND.api_version(), "kind": KIND.kind(), "name": "pi", "uid": of,
        "controller": true});
    let workload = json!({
        "metadata": {"name": "w", "namespace": namespace, "ownerReferences": [owner]},
        "status": {"conditions": conditions},
    });
    let workload: slim::Workload = serde_json::from_value(workload).unwrap();
    store.note(&Input::Applied(Object::Workload(Box::new(workload))));
}

/// An owner reference as it is written.
fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

fn pod(application: &str, name: &str, owners: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "ownerReferences": owners,
        "labels": {"sparkoperator.k8s.io/app-name": application, "spark-role": "driver"}}})
}

/// A driver that runs, as the watch shows it.
fn driver(store: &FactStore, uid: &str, owners: &Value) {
    let mut driver = pod("pi", "pi-driver", owners);
    driver["metadata"]["uid"] = json!(uid);
    store.note_maker("ns", "pi-driver", Some(Maker::of(&driver)));
}

fn of_application(uid: &str) -> Value {
    owner(KIND.api_version(), KIND.kind(), "pi", uid)
}

fn store() -> FactStore {
    FactStore::of(&KINDS, BTreeSet::new())
}

fn known_with(store: &FactStore, namespace: &str, pod: &Value, all: bool) -> bool {
    let rules = Rules { kinds: &KINDS, external: &BTreeSet::new(), all };
    store.now().knows_pod(rules, namespace, pod)
}

fn known(store: &FactStore, pod: &Value) -> bool {
    known_with(store, "ns", pod, false)
}

/// The Spark operator names itself as the driver's owner after other webhooks, and executors belong to their driver.
#[test]
fn driver_and_executors_of_an_admitted_application_are_known() {
    let store = store();
    application(&store, "u", Some("q"));
    workload(&store, "ns", "u", &["QuotaReserved", "Admitted"]);
    let bare = pod("pi", "pi-driver", &Value::Null);
    assert!(known(&store, &bare) && !known_with(&store, "other", &bare, false));
    let rules = Rules { kinds: &[JobKind::POD], external: &BTreeSet::new(), all: true };
    assert!(!store.now().knows_pod(rules, "ns", &bare), "its kind is not managed");
    assert!(
        known(&store, &pod("pi", "pi-driver", &of_application("u"))),
        "the operator's webhook came first"
    );
    let executor = pod("pi", "pi-exec-1", &owner("v1", "Pod", "pi-driver", "d"));
    assert!(!known(&store, &executor), "its driver was not seen");
    driver(&store, "d", &of_application("u"));
    assert!(known(&store, &executor));
    store.note_maker("ns", "pi-driver", None);
    assert!(!known(&store, &executor), "its driver is gone");
    driver(&store, "d", &of_application("u"));
    store.keep_makers(&BTreeSet::from([("ns".to_owned(), "pi-driver".to_owned())]));
    assert!(known(&store, &executor));
    store.keep_makers(&BTreeSet::new());
    assert!(!known(&store, &executor));
}

#[test]
fn what_only_looks_like_a_driver_or_an_executor_is_a_pod_like_any_other() {
    let store = store();
    application(&store, "u", Some("q"));
    workload(&store, "ns", "u", &["Admitted"]);
    driver(&store, "d", &of_application("u"));
    let executor = |owners: &Value| pod("pi", "pi-exec-1", owners);
    for forged in [
        pod("pi", "other", &Value::Null),
        pod("e", "pi-driver", &Value::Null),
        pod("pi", "other", &of_application("u")),
        pod("pi", "pi-driver", &of_application("another")),
        pod("pi", "pi-driver", &owner(KIND.api_version(), KIND.kind(), "other", "u")),
        pod("pi", "pi-driver", &owner("batch/v1", "Job", "pi", "u")),
        pod("pi", "pi-driver", &owner("v1", "Pod", "pi-driver", "another")),
        executor(&owner("v1", "Pod", "pi-driver", "another")),
        executor(&owner("v1", "Pod", "other", "d")),
        executor(&owner("v2", "Pod", "pi-driver", "d")),
        executor(&owner("v1", "ConfigMap", "pi-driver", "d")),
    ] {
        assert!(!known(&store, &forged), "{forged}");
    }
    // A pod by the driver's name that nothing of the application controls makes none of its executors.
    let executor = executor(&owner("v1", "Pod", "pi-driver", "f"));
    for owners in [Value::Null, of_application("another"), owner("batch/v1", "Job", "pi", "u")] {
        driver(&store, "f", &owners);
        assert!(!known(&store, &executor), "{owners}");
    }
    driver(&store, "f", &of_application("u"));
    assert!(known(&store, &executor));
}

#[test]
fn pods_of_an_application_that_is_not_managed_and_admitted_are_pods_like_any_other() {
    let store = store();
    let bare = pod("pi", "pi-driver", &Value::Null);
    let executor = pod("pi", "pi-exec-1", &owner("v1", "Pod", "pi-driver", "d"));
    driver(&store, "d", &of_application("u"));
    let both = |expected: bool, why: &str| {
        assert_eq!([&bare, &executor].map(|pod| known(&store, pod)), [expected; 2], "{why}");
    };
    both(false, "there is no such application");
    application(&store, "u", Some("q"));
    both(false, "it has no Workload");
    workload(&store, "ns", "u", &["QuotaReserved"]);
    both(false, "it waits");
    workload(&store, "other", "u", &["Admitted"]);
    both(false, "a Workload of another namespace only claims to be its");
    workload(&store, "ns", "another", &["Admitted"]);
    both(false, "it is the Workload of another one");
    workload(&store, "ns", "u", &["Admitted"]);
    both(true, "it is admitted");
    workload(&store, "ns", "u", &["Admitted", "Finished"]);
    both(false, "it is over");
    workload(&store, "ns", "u", &["Admitted"]);
    application(&store, "u", None);
    both(false, "it is not managed");
    assert!(known_with(&store, "ns", &bare, true), "unless all jobs are");
    application(&store, "u", Some("q"));
    both(true, "it is again");
    store.note(&Input::Deleted { object: ObjectRef::namespaced(Kind::Workload, "ns", "w"), uid: None });
    both(false, "its Workload is gone");
    workload(&store, "ns", "u", &["Admitted"]);
    store.note(&Input::Listed { kind: Kind::Workload, present: Vec::new(), as_of: None });
    both(false, "a list has it no more");
    assert!(store.now().admitted == Admitted::default(), "nothing is kept");
    workload(&store, "ns", "u", &["Admitted"]);
    application(&store, "v", Some("q"));
    both(false, "another one has its name");
}

#[test]
fn an_application_in_another_job_is_admitted_with_that() {
    const WRAPPER: JobKind = JobKind::APP_WRAPPER;
    let kinds = [JobKind::POD, KIND, JobKind::APP_WRAPPER];
    let store = FactStore::of(&kinds, BTreeSet::new());
    let see = |kind: JobKind, name: &str, uid: &str, owners: Value, queue: &str| {
        let labels = json!({"kueue.x-k8s.io/queue-name": queue});
        let metadata =
            json!({"name": name, "namespace": "ns", "uid": uid, "labels": labels, "ownerReferences": owners});
        let mut view = sluice_jobs::observe(kind, &json!({"metadata": metadata, "spec": {}}));
        if kind == WRAPPER {
            let pods = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
            let of_pods =
                sluice_jobs::observe(JobKind::JOB, &json!({"metadata": {"name": "in-it"}, "spec": pods}));
            view.pod_sets = of_pods.pod_sets;
            view.pod_sets[0].wrapped = Some(Arc::new(Wrapped {
                index: 0,
                api_version: KIND.api_version().to_owned(),
                kind: KIND.kind().to_owned(),
                name: "pi".to_owned(),
                generates_name: false,
                sizes: None,
            }));
        }
        store.note(&Input::Applied(Object::Job(Box::new(view))));
    };
    see(WRAPPER, "wrapper", "w", Value::Null, "q");
    see(KIND, "pi", "u", owner(WRAPPER.api_version(), WRAPPER.kind(), "wrapper", "w"), "");
    let rules = Rules { kinds: &kinds, external: &BTreeSet::new(), all: false };
    let bare = pod("pi", "pi-driver", &Value::Null);
    assert!(!store.now().knows_pod(rules, "ns", &bare));
    workload(&store, "ns", "w", &["Admitted"]);
    assert!(store.now().knows_pod(rules, "ns", &bare));
}

/// A kind that only a configuration describes. Other tests do not see it.
fn errand() -> JobKind {
    JobKind::declared(&DeclaredNames {
        suspend: &["spec", "suspend"],
        group: "owners.example.com",
        version: "v1",
        kind: "Errand",
        plural: "errands",
        ends: true,
        suspends_pods: false,
        ungated: &[],
        pod_index: None,
        pods: &[],
        pods_by_adapter: None,
    })
}

#[test]
fn what_a_declared_kind_makes_is_managed_itself_only_where_all_jobs_are() {
    let errand = errand();
    let kinds = [JobKind::JOB, JobKind::JOB_SET, errand];
    let store = FactStore::of(&kinds, BTreeSet::new());
    for kind in [JobKind::JOB_SET, errand] {
        let labels = json!({"kueue.x-k8s.io/queue-name": "q"});
        let metadata = json!({"name": "above", "namespace": "ns", "uid": "u", "labels": labels});
        let mut view = sluice_jobs::observe(JobKind::JOB_SET, &json!({"metadata": metadata, "spec": {}}));
        view.job.kind = kind;
        store.note(&Input::Applied(Object::Job(Box::new(view))));
    }
    let above = |kind: JobKind, all: bool| {
        let rules = Rules { kinds: &kinds, external: &BTreeSet::new(), all };
        let below = Part { kind: JobKind::JOB, name: "below", may_clean_up: false };
        store.now().managed_above(rules, "ns", below, (kind, "above", "u")).len()
    };
    assert_eq!([false, true].map(|all| above(JobKind::JOB_SET, all)), [0, 0]);
    assert_eq!([false, true].map(|all| above(errand, all)), [1, 0]);
}
