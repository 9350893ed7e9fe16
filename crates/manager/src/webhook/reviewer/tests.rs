//! The answers of the reviewers.

mod claims;
mod detached;
mod forged;
mod pods;
mod unread;

use super::*;
use serde_json::{Value, json};
use sluice_api::slim;
use sluice_api::v1beta2::LocalQueue;
use sluice_engine::input::{Input, Object};

fn reviewers() -> (Reviewers, Arc<FactStore>) {
    let facts = Arc::new(FactStore::default());
    let mut namespace = slim::Namespace::default();
    namespace.metadata.name = Some("ns".to_owned());
    namespace.metadata.labels = Some([("kubernetes.io/metadata.name".to_owned(), "ns".to_owned())].into());
    facts.note(&Input::Applied(Object::Namespace(Box::new(namespace))));
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, workload.codeflare.dev/appwrapper]}\n";
    let configuration = Configuration::parse(text).unwrap().0;
    (Reviewers::new(&configuration, Arc::clone(&facts)), facts)
}

fn job(labels: &Value, owner: Option<&str>) -> Value {
    let owners = owner.map(|name| {
        json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name, "uid": "u",
                "controller": true}])
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "ns", "labels": labels, "ownerReferences": owners},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    })
}

/// A controller makes an object.
fn post(reviewers: &Reviewers, path: &str, object: &Value) -> Value {
    let user = json!({"username": "system:serviceaccount:kube-system:job-controller"});
    let review = json!({"request": {
        "uid": "u1", "operation": "CREATE", "namespace": "ns", "object": object, "oldObject": null, "userInfo": user,
    }});
    let answer = reviewers.review(path, review.to_string().as_bytes()).unwrap().unwrap();
    serde_json::from_slice(&answer).unwrap()
}

#[test]
fn a_job_with_a_queue_is_suspended_and_one_without_is_left_alone() {
    let (reviewers, _) = reviewers();
    let path = "/mutate-batch-v1-job";
    let queued = post(&reviewers, path, &job(&json!({"kueue.x-k8s.io/queue-name": "q"}), None));
    assert!(queued["response"]["patch"].is_string(), "{queued}");
    let plain = post(&reviewers, path, &job(&json!({}), None));
    assert!(plain["response"].get("patch").is_none(), "{plain}");
}

#[test]
fn a_change_of_any_depth_is_reviewed() {
    let (reviewers, _) = reviewers();
    let changed = |labels: &Value, levels: usize| {
        let mut old = job(labels, None);
        old["spec"]["suspend"] = json!(true);
        let mut new = old.clone();
        new["spec"]["x"] = json!("DEEP");
        let review = json!({"request": {"uid": "u1", "operation": "UPDATE", "namespace": "ns", "object": new,
            "oldObject": old, "userInfo": {"username": "me"}}});
        let [begin, end] = [r#"{"a":"#, "}"].map(|part| part.repeat(levels));
        let review = review.to_string().replace("\"DEEP\"", &format!("{begin}1{end}"));
        let answer = reviewers.review("/validate-batch-v1-job", review.as_bytes()).unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["response"]["status"]["message"].as_str().map(str::to_owned)
    };
    let queued = json!({"kueue.x-k8s.io/queue-name": "q"});
    assert_eq!(changed(&queued, 90), None);
    for levels in [200, 10_000] {
        assert!(changed(&queued, levels).unwrap().contains("more than 100 levels deep"));
        assert_eq!(changed(&json!({}), levels), None, "it is not queued");
    }
}

#[test]
fn a_default_queue_takes_jobs_in_but_not_the_children_of_a_queued_job_set() {
    let (reviewers, facts) = reviewers();
    let mut queue = LocalQueue::default();
    queue.metadata.namespace = Some("ns".to_owned());
    queue.metadata.name = Some("default".to_owned());
    facts.note(&Input::Applied(Object::LocalQueue(Box::new(queue))));
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let spec = json!({"replicatedJobs": [{"name": "main", "replicas": 2, "template": template}]});
    let set = |name: &str, labels: Value| {
        let uid = if name == "made-again" { "other" } else { "u" };
        let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "labels": labels});
        let object = json!({"metadata": metadata, "spec": spec});
        Input::Applied(Object::Job(Box::new(sluice_jobs::observe(JobKind::JOB_SET, &object))))
    };
    facts.note(&set("queued", json!({"kueue.x-k8s.io/queue-name": "q"})));
    facts.note(&set("plain", json!({})));
    facts.note(&set("made-again", json!({"kueue.x-k8s.io/queue-name": "q"})));
    let named = |name: &str, owner: Option<&str>| {
        let mut job = job(&json!({}), owner);
        job["metadata"]["name"] = json!(name);
        let answer = post(&reviewers, "/mutate-batch-v1-job", &job);
        answer["response"]["patch"].is_string()
    };
    let patched = |owner: Option<&str>| named(&format!("{}-main-1", owner.unwrap_or("a")), owner);
    assert!(patched(None));
    assert!(!patched(Some("queued")));
    assert!(patched(Some("plain")));
    // What only claims to have an owner is a job like any other,
    assert!(patched(Some("made-again")) && patched(Some("made-up")));
    // and so is what that owner does not make.
    for name in ["evil", "queued", "queued-main", "queued-main-2", "queued-other-0", "queued-main-x"] {
        assert!(named(name, Some("queued")), "{name}");
    }
}

/// Its controller is behind.
#[test]
fn a_job_of_a_set_that_is_being_deleted_is_suspended() {
    let (reviewers, facts) = reviewers();
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let spec = json!({"replicatedJobs": [{"name": "main", "replicas": 2, "template": template}]});
    for (deleted, suspended) in [(None, false), (Some("2026-01-01T00:00:00Z"), true)] {
        let metadata = json!({"name": "set", "namespace": "ns", "uid": "u", "deletionTimestamp": deleted,
            "labels": {"kueue.x-k8s.io/queue-name": "q"}});
        let set = sluice_jobs::observe(JobKind::JOB_SET, &json!({"metadata": metadata, "spec": spec}));
        facts.note(&Input::Applied(Object::Job(Box::new(set))));
        let mut job = job(&json!({}), Some("set"));
        job["metadata"]["name"] = json!("set-main-1");
        let answer = post(&reviewers, "/mutate-batch-v1-job", &job);
        assert_eq!(answer["response"]["patch"].is_string(), suspended, "{answer}");
        job["spec"]["suspend"] = json!(true);
        let answer = post(&reviewers, "/mutate-batch-v1-job", &job);
        assert!(answer["response"].get("patch").is_none(), "{answer}");
    }
}

#[test]
fn a_cluster_that_the_status_of_its_job_does_not_name_is_suspended() {
    let facts = Arc::new(FactStore::default());
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                integrations: {frameworks: [ray.io/raycluster, ray.io/rayjob]}\n";
    let reviewers = Reviewers::new(&Configuration::parse(text).unwrap().0, Arc::clone(&facts));
    let labels = json!({"kueue.x-k8s.io/queue-name": "q"});
    let owner = json!({"metadata": {"name": "train", "namespace": "ns", "uid": "u", "labels": labels},
        "spec": {}, "status": {"rayClusterName": "train-a1b2c"}});
    let owner = sluice_jobs::observe(JobKind::RAY_JOB, &owner);
    facts.note(&Input::Applied(Object::Job(Box::new(owner))));
    let patched = |name: &str| {
        let cluster = json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": [
                {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "u", "controller": true},
            ]},
            "spec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}},
        });
        post(&reviewers, "/mutate-ray-io-v1-raycluster", &cluster)["response"]["patch"].is_string()
    };
    assert!(!patched("train-a1b2c"));
    assert!(patched("train-d3e4f"));
}

#[test]
fn what_is_in_an_appwrapper_is_not_taken_in_nor_what_is_made_of_that() {
    let (reviewers, facts) = reviewers();
    let mut queue = LocalQueue::default();
    queue.metadata.namespace = Some("ns".to_owned());
    queue.metadata.name = Some("default".to_owned());
    facts.note(&Input::Applied(Object::LocalQueue(Box::new(queue))));
    let owner = json!([{"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "wrapper",
        "uid": "w", "controller": true}]);
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let set = json!({"replicatedJobs": [{"name": "main", "replicas": 1, "template": template}]});
    let in_it = |api_version: &str, kind: &str, name: &str, spec: &Value, path: &str| {
        json!({"podSets": [{"replicas": 1, "path": path}], "template": {"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name}, "spec": spec}})
    };
    let path = "template.spec.replicatedJobs[0].template.spec.template";
    let components = json!({"components": [
        in_it("jobset.x-k8s.io/v1alpha2", "JobSet", "in-it", &set, path),
        in_it("batch/v1", "Job", "a", &template["spec"], "template.spec.template"),
    ]});
    for (kind, name, uid, owners, queue, spec) in [
        (JobKind::APP_WRAPPER, "wrapper", "w", json!(null), "q", &components),
        (JobKind::JOB_SET, "in-it", "u", owner.clone(), "", &set),
        (JobKind::JOB_SET, "not-in-it", "u", owner.clone(), "", &set),
    ] {
        let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "ownerReferences": owners,
            "labels": {"kueue.x-k8s.io/queue-name": queue}});
        let view = sluice_jobs::observe(kind, &json!({"metadata": metadata, "spec": spec}));
        facts.note(&Input::Applied(Object::Job(Box::new(view))));
    }
    let patched =
        |job: &Value| post(&reviewers, "/mutate-batch-v1-job", job)["response"]["patch"].is_string();
    let of_set = |set: &str| {
        let mut of_set = job(&json!({}), Some(set));
        of_set["metadata"]["name"] = json!(format!("{set}-main-0"));
        of_set
    };
    assert!(!patched(&of_set("in-it")), "a Job of its JobSet");
    assert!(patched(&of_set("not-in-it")), "a Job of a JobSet that only claims to be its");
    let mut own = job(&json!({"kueue.x-k8s.io/queue-name": "q"}), Some("wrapper"));
    own["metadata"]["ownerReferences"] = owner;
    assert!(!patched(&own), "its Job");
    own["metadata"]["name"] = json!("evil");
    assert!(patched(&own), "a Job that it does not wrap");
    own["metadata"]["name"] = json!("a");
    own["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    assert!(patched(&own), "what only claims to be its Job");
}

#[test]
fn a_made_up_owner_does_not_keep_a_job_from_being_suspended() {
    let (reviewers, facts) = reviewers();
    let elsewhere = json!({"metadata": {"name": "set", "namespace": "other", "uid": "u",
        "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": {}});
    let elsewhere = sluice_jobs::observe(JobKind::JOB_SET, &elsewhere);
    facts.note(&Input::Applied(Object::Job(Box::new(elsewhere))));
    for api_version in ["jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v9", "batch/v1"] {
        let mut job = job(&json!({"kueue.x-k8s.io/queue-name": "q"}), Some("set"));
        job["metadata"]["ownerReferences"][0]["apiVersion"] = json!(api_version);
        if api_version == "batch/v1" {
            job["metadata"]["ownerReferences"][0]["kind"] = json!("Job");
        }
        let answer = post(&reviewers, "/mutate-batch-v1-job", &job);
        assert!(answer["response"]["patch"].is_string(), "{api_version}: {answer}");
    }
}

/// A queued job of each of these kinds is in the namespace, with this UID; what it makes waits for it, and nothing else does.
#[test]
fn an_owner_that_does_not_make_such_objects_does_not_keep_them_from_waiting() {
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                integrations: {frameworks: [pod, deployment, statefulset, batch/job, jobset.x-k8s.io/jobset, \
                ray.io/rayjob, ray.io/raycluster, workload.codeflare.dev/appwrapper]}\n";
    let configuration = Configuration::parse(text).unwrap().0;
    let facts = Arc::new(FactStore::of(&configuration.job_kinds(), configuration.external_kinds()));
    let reviewers = Reviewers::new(&configuration, Arc::clone(&facts));
    let mut namespace = slim::Namespace::default();
    namespace.metadata.name = Some("ns".to_owned());
    facts.note(&Input::Applied(Object::Namespace(Box::new(namespace))));
    let labels = json!({"kueue.x-k8s.io/queue-name": "q"});
    let pod_template = json!({"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let object = |kind: JobKind, name: &str, owner: Option<JobKind>| {
        let owners = owner.map(|kind| {
            json!([{"apiVersion": kind.api_version(), "kind": kind.kind(), "name": "above", "uid": "u",
                "controller": true}])
        });
        let spec = if kind == JobKind::POD {
            pod_template["spec"].clone()
        } else {
            json!({"replicas": 1, "template": pod_template})
        };
        json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "spec": spec,
            "metadata": {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": owners}})
    };
    let in_it = |kind: JobKind| {
        json!({"template": object(kind, "in-it", None),
        "podSets": [{"replicas": 1, "path": if kind == JobKind::POD { "template" } else { "template.spec.template" }}]})
    };
    let wrapped = json!({"components": [in_it(JobKind::DEPLOYMENT), in_it(JobKind::POD)]});
    let owners = [
        JobKind::DEPLOYMENT,
        JobKind::STATEFUL_SET,
        JobKind::JOB,
        JobKind::JOB_SET,
        JobKind::RAY_JOB,
        JobKind::RAY_CLUSTER,
        JobKind::APP_WRAPPER,
    ];
    for kind in owners {
        let metadata = json!({"name": "above", "namespace": "ns", "uid": "u", "labels": labels});
        let spec = if kind == JobKind::APP_WRAPPER { wrapped.clone() } else { json!({}) };
        let view = sluice_jobs::observe(kind, &json!({"metadata": metadata, "spec": spec}));
        facts.note(&Input::Applied(Object::Job(Box::new(view))));
    }
    pods::admit(&facts, JobKind::JOB, "above", "u");
    let path = |kind: JobKind| job_path("mutate", kind);
    let left_alone = |kind: JobKind, name: &str, owner: JobKind| {
        let mut object = object(kind, name, Some(owner));
        object["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = json!("u");
        let answer = post(&reviewers, &path(kind), &object);
        answer["response"].get("patch").is_none()
    };
    for kind in [JobKind::DEPLOYMENT, JobKind::STATEFUL_SET, JobKind::POD] {
        for owner in owners {
            let made = kind == JobKind::POD && (owner == JobKind::JOB || owner == JobKind::RAY_CLUSTER);
            assert_eq!(left_alone(kind, "a", owner), made, "{kind:?} of {owner:?}");
        }
        let is_wrapped = kind != JobKind::STATEFUL_SET;
        assert_eq!(left_alone(kind, "in-it", JobKind::APP_WRAPPER), is_wrapped, "{kind:?}");
    }
    // An update that says who made it and takes the marks off gives them back.
    let kind = JobKind::DEPLOYMENT;
    let mut marked = object(kind, "in-it", None);
    marked["spec"]["template"]["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/pod-suspending-parent": kind.framework()}});
    let review = json!({"request": {"uid": "u1", "operation": "UPDATE", "namespace": "ns", "oldObject": marked,
        "object": object(kind, "in-it", Some(JobKind::APP_WRAPPER))}});
    let answer = reviewers.review(&path(kind), review.to_string().as_bytes()).unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert!(answer["response"]["patch"].is_string(), "{answer}");
}

#[test]
fn a_pod_that_asks_for_node_affinity_gets_it() {
    let (reviewers, _) = reviewers();
    let pod = |wish: &str| {
        let metadata = json!({"name": "a", "annotations": {"sluice.dev/node-affinity": wish}});
        json!({"metadata": metadata, "spec": {}})
    };
    let wish = json!({"restarts": 0, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}]}});
    let answer = post(&reviewers, "/mutate--v1-pod", &pod(&wish.to_string()));
    assert!(answer["response"]["patch"].is_string(), "{answer}");
    let answer = post(&reviewers, "/mutate--v1-pod", &pod("nonsense"));
    assert_eq!(answer["response"]["allowed"], true);
    assert!(answer["response"].get("patch").is_none(), "{answer}");
}

#[test]
fn what_a_pod_of_a_deployment_costs_does_not_depend_on_how_many_there_are() {
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                integrations: {frameworks: [batch/job, deployment, statefulset, pod]}\n";
    let configuration = Configuration::parse(text).unwrap().0;
    let facts = Arc::new(FactStore::of(&configuration.job_kinds(), configuration.external_kinds()));
    let reviewers = Reviewers::new(&configuration, Arc::clone(&facts));
    let pod = |number: usize| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}]);
        let metadata = json!({
            "name": format!("web-{number:05}"), "namespace": "ns", "ownerReferences": owner,
            "labels": {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/managed": "true"},
            "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"},
        });
        json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    };
    let cost = |number: usize| {
        let pod = pod(number);
        let mut answers = [Value::Null, Value::Null];
        let cost = allocation_counter::measure(|| {
            answers = ["/mutate--v1-pod", "/validate--v1-pod"].map(|path| post(&reviewers, path, &pod));
        });
        assert!(answers[0]["response"]["patch"].is_string(), "{answers:?}");
        assert_eq!(answers[1]["response"]["allowed"], true);
        cost.count_total
    };
    let first = cost(0);
    for number in 0..5_000 {
        let seen = sluice_jobs::pods::Member::observe(&pod(number), &configuration.gates);
        facts.note(&Input::Applied(Object::QueuedPod(Box::new(seen))));
        let metadata = json!({"name": format!("job-{number:05}"), "namespace": "ns", "uid": "u"});
        let view = sluice_jobs::observe(JobKind::JOB, &json!({"metadata": metadata, "spec": {}}));
        facts.note(&Input::Applied(Object::Job(Box::new(view))));
    }
    assert_eq!(cost(1), first);
}

#[test]
fn a_bad_queue_name_is_refused() {
    let (reviewers, _) = reviewers();
    let answer =
        post(&reviewers, "/validate-batch-v1-job", &job(&json!({"kueue.x-k8s.io/queue-name": "A_b"}), None));
    assert_eq!(answer["response"]["allowed"], false, "{answer}");
}

#[test]
fn paths_are_upstreams_and_others_are_unknown() {
    let (reviewers, _) = reviewers();
    let paths: Vec<_> = reviewers.job_hooks.keys().map(String::as_str).collect();
    let kinds = [
        "-v1-pod",
        "apps-v1-deployment",
        "apps-v1-statefulset",
        "batch-v1-job",
        "jobset-x-k8s-io-v1alpha2-jobset",
        "kubeflow-org-v1-jaxjob",
        "kubeflow-org-v1-paddlejob",
        "kubeflow-org-v1-pytorchjob",
        "kubeflow-org-v1-tfjob",
        "kubeflow-org-v1-xgboostjob",
        "kubeflow-org-v2beta1-mpijob",
        "leaderworkerset-x-k8s-io-v1-leaderworkerset",
        "ray-io-v1-raycluster",
        "ray-io-v1-rayjob",
        "ray-io-v1-rayservice",
        "sparkoperator-k8s-io-v1beta2-sparkapplication",
        "trainer-kubeflow-org-v1alpha1-trainjob",
        "workload-codeflare-dev-v1beta2-appwrapper",
    ];
    let both = ["mutate", "validate"].map(|what| kinds.map(|kind| format!("/{what}-{kind}")));
    assert_eq!(paths, both.concat());
    assert!(reviewers.review("/nope", b"{}").is_none());
    assert!(!reviewers.has("/nope"));
    assert!(paths.into_iter().chain([CONVERT]).all(|path| reviewers.has(path)));
}

#[test]
fn a_body_that_is_no_review_is_an_error() {
    let (reviewers, _) = reviewers();
    assert!(reviewers.review("/mutate-batch-v1-job", b"[]").unwrap().is_err());
    assert!(reviewers.review("/convert", b"nonsense").unwrap().is_err());
}

#[test]
fn webhooks_of_the_queue_kinds_are_answered() {
    let (reviewers, _) = reviewers();
    for hook in WEBHOOKS {
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": {},
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u1", "operation": "CREATE", "object": object},
        });
        let answer = reviewers.review(hook.path, review.to_string().as_bytes()).unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["uid"], "u1", "{}: {answer}", hook.path);
    }
}

#[test]
fn conversions_are_answered() {
    let (reviewers, _) = reviewers();
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [
            {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "a"},
             "spec": {"cohort": "c"}},
        ]},
    });
    let answer = reviewers.review("/convert", review.to_string().as_bytes()).unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["convertedObjects"][0]["spec"]["cohortName"], "c");
}

#[test]
fn jobs_of_a_parent_that_others_manage_are_left_to_it() {
    const V1: &str = "hooks.example.com/v1";
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                integrations: {frameworks: [batch/job, pod], externalFrameworks: [Errand.v1.hooks.example.com]}\n";
    let configuration = Configuration::parse(text).unwrap().0;
    let external = configuration.external_kinds();
    let errand = *external.first().unwrap();
    let facts = Arc::new(FactStore::of(&configuration.job_kinds(), external));
    let reviewers = Reviewers::new(&configuration, Arc::clone(&facts));
    let see = |namespace: &str, name: &str, uid: &str, queue: Option<&str>| {
        let labels = queue.map(|queue| json!({"kueue.x-k8s.io/queue-name": queue}));
        let metadata = json!({"name": name, "namespace": namespace, "uid": uid, "labels": labels});
        let view = sluice_jobs::observe(errand, &json!({"metadata": metadata, "spec": "anything"}));
        facts.note(&Input::Applied(Object::Job(Box::new(view))));
    };
    see("ns", "queued", "u", Some("q"));
    see("ns", "plain", "p", None);
    see("other", "elsewhere", "e", Some("q"));
    let mut namespace = slim::Namespace::default();
    namespace.metadata.name = Some("ns".to_owned());
    facts.note(&Input::Applied(Object::Namespace(Box::new(namespace))));
    let left_alone = |api_version: &str, kind: &str, name: &str, uid: &str| {
        let mut job = job(&json!({"kueue.x-k8s.io/queue-name": "q"}), None);
        job["metadata"]["ownerReferences"] = json!([
            {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
        let mut pod = job.clone();
        pod["spec"] = job["spec"]["template"]["spec"].clone();
        let patched =
            |path: &str, object: &Value| post(&reviewers, path, object)["response"]["patch"].is_string();
        [!patched("/mutate-batch-v1-job", &job), !patched("/mutate--v1-pod", &pod)]
    };
    assert_eq!(left_alone(V1, "Errand", "queued", "u"), [true, false], "pods have no reason to be there");
    pods::admit(&facts, errand, "queued", "u");
    assert_eq!(left_alone(V1, "Errand", "queued", "u"), [true; 2]);
    for (api_version, kind, name, uid) in [
        (V1, "Errand", "plain", "p"),
        (V1, "Errand", "queued", "p"),
        (V1, "Errand", "queued", "e"),
        (V1, "Errand", "elsewhere", "e"),
        (V1, "Errand", "made-up", "u"),
        (V1, "Other", "queued", "u"),
        ("hooks.example.com", "Errand", "queued", "u"),
        ("other.example.com/v1", "Errand", "queued", "u"),
        ("v1", "Errand", "queued", "u"),
    ] {
        assert_eq!(left_alone(api_version, kind, name, uid), [false; 2], "{api_version} {kind} {name} {uid}");
    }
    // A version that is not served names the same object, or none.
    assert_eq!(left_alone("hooks.example.com/v9", "Errand", "queued", "u"), [true; 2]);
    assert_eq!(left_alone("hooks.example.com/v9", "Errand", "queued", "x"), [false; 2]);
}
