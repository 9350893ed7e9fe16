//! The adapters' patches on a real API server: accepted and refused ones, and that nothing remains of them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::cell::Cell;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::{Patch, Step, ask_controller, observe, start, stop, suspend};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{nodes, shared};
use sluice_tests::place::DEADLINE;

/// Jobs of one kind in one namespace.
struct TestJobs {
    client: Client,
    namespace: &'static str,
    kind: JobKind,
}

async fn test_jobs(namespace: &'static str, kind: JobKind) -> TestJobs {
    let plane = shared().await.unwrap();
    plane.make_namespace(namespace).await.unwrap();
    TestJobs { client: plane.client().await.unwrap(), namespace, kind }
}

impl TestJobs {
    fn path(&self, name: &str) -> String {
        let (api, plural) = (self.kind.api_version(), self.kind.plural());
        format!("/apis/{api}/namespaces/{}/{plural}{name}", self.namespace)
    }

    /// Sends a request; a refusal gives its code.
    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Result<Value, u16> {
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", content);
        let request = request.body(serde_json::to_vec(body).unwrap()).unwrap();
        match self.client.request::<Value>(request).await {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{error}"),
        }
    }

    async fn create(&self, mut object: Value) -> Value {
        object["apiVersion"] = json!(self.kind.api_version());
        object["kind"] = json!(self.kind.kind());
        self.send("POST", &self.path(""), "application/json", &object).await.unwrap()
    }

    async fn patch(&self, name: &str, step: &Step) -> Result<Value, u16> {
        let subresource = step.subresource.map(|name| format!("/{name}")).unwrap_or_default();
        let path = self.path(&format!("/{name}{subresource}{}", step.patch.query()));
        self.send("PATCH", &path, step.patch.content_type(), &step.patch.body()).await
    }

    async fn get(&self, name: &str) -> Value {
        self.send("GET", &self.path(&format!("/{name}")), "application/json", &Value::Null).await.unwrap()
    }

    /// Makes a patch of what there is and sends it, again if something else was faster, or if the Job still has active
    /// pods, while which the API server refuses changes of its template.
    async fn act(&self, name: &str, make: impl Fn(&JobView) -> Step) -> Value {
        eventually(&format!("{name}: a patch is taken"), DEADLINE, || async {
            let object = self.get(name).await;
            let active = object["status"]["active"].as_i64().unwrap_or(0);
            match self.patch(name, &make(&observe(self.kind, &object))).await {
                Ok(object) => Ok(Progress::Done(object)),
                Err(409) => Ok(Progress::NotYet("conflict".to_owned())),
                Err(422) if active > 0 => Ok(Progress::NotYet(format!("{active} active pods"))),
                Err(code) => Ok(Progress::Never(format!("{code} on {object}"))),
            }
        })
        .await
        .unwrap()
    }

    /// Waits until the view of a job is as it should be.
    async fn wait(&self, name: &str, what: &str, holds: impl Fn(&JobView) -> bool) -> JobView {
        eventually(&format!("{name}: {what}"), DEADLINE, || async {
            let object = self.get(name).await;
            Ok(progress(holds(&observe(self.kind, &object)), object["status"].to_string()))
        })
        .await
        .unwrap();
        observe(self.kind, &self.get(name).await)
    }
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// What admission adds: the pool's label, a label, a toleration.
fn additions(view: &JobView, pool: &str) -> Vec<PodSetInfo> {
    let scheduling = PodScheduling {
        labels: map(&[("kueue.x-k8s.io/podset", "x")]),
        node_selector: map(&[("test-pool", pool)]),
        tolerations: vec![Toleration {
            key: Some("spot".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }],
        ..PodScheduling::default()
    };
    let info = |set: &sluice_api::job::JobPodSet| PodSetInfo {
        name: set.name.clone(),
        count: set.min_count.unwrap_or(set.count),
        scheduling: scheduling.clone(),
    };
    view.pod_sets.iter().map(info).collect()
}

/// What the Workload keeps of the templates.
fn originals(view: &JobView) -> Vec<PodSetInfo> {
    let info = |set: &sluice_api::job::JobPodSet| {
        let metadata = set.template.as_ref().unwrap().metadata.clone().unwrap_or_default();
        let labels = metadata.labels.unwrap_or_default();
        PodSetInfo {
            name: set.name.clone(),
            count: set.count,
            scheduling: PodScheduling { labels, ..set.scheduling.clone() },
        }
    };
    view.pod_sets.iter().map(info).collect()
}

fn job(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"suspend": true, "parallelism": 2, "completions": 2, "template": {
            "metadata": {"labels": {"app": "x"}, "annotations": annotations},
            "spec": {"restartPolicy": "Never", "nodeSelector": {"disk": "ssd"},
                "containers": [{"name": "c", "image": "example.com/none"}]}}}
    })
}

fn jobset(name: &str) -> Value {
    let group = |name: &str, template: Value| {
        json!({"name": name, "replicas": 1,
            "template": {"spec": {"parallelism": 1, "completions": 1, "template": template}}})
    };
    let containers = json!([{"name": "c", "image": "example.com/none", "resources": {"limits": {"cpu": 1}}}]);
    json!({
        "metadata": {"name": name},
        "spec": {"suspend": true, "replicatedJobs": [
            group("bare", json!({"spec": {"containers": containers}})),
            group("full", json!({"metadata": {"annotations": {"a/b": "c"}},
                "spec": {"nodeSelector": {"disk": "ssd"}, "containers": containers}}))]}
    })
}

fn step(patch: Patch) -> Step {
    Step { subresource: None, patch }
}

#[tokio::test]
async fn a_patch_of_what_was_not_seen_is_a_conflict() {
    for (kind, namespace, object) in [
        (JobKind::JOB, "adapters-stale-job", job("stale", &json!({}))),
        (JobKind::JOB_SET, "adapters-stale-set", jobset("stale")),
    ] {
        let test_jobs = test_jobs(namespace, kind).await;
        let seen = observe(kind, &test_jobs.create(object).await);
        let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        test_jobs.patch("stale", &step(label)).await.unwrap();
        let begin = step(start(&seen, &originals(&seen)).unwrap());
        assert_eq!(test_jobs.patch("stale", &begin).await, Err(409), "{kind:?}: start");
        assert_eq!(test_jobs.patch("stale", &stop(&seen, &[])[0]).await, Err(409), "{kind:?}: stop");
        assert_eq!(test_jobs.patch("stale", &suspend(&seen)).await, Err(409), "{kind:?}: suspend");
        let now = test_jobs.act("stale", |view| begin.clone().pinned(&view.resource_version)).await;
        assert_eq!(now["spec"]["suspend"], false, "{kind:?}: pinned again");
    }
}

#[tokio::test]
async fn a_job_that_ran_with_fewer_pods_is_restored_whenever_its_stop_was_cut() {
    let test_jobs = test_jobs("adapters-stop", JobKind::JOB).await;
    let pool = nodes::pool("adapters-stop", 1).label("disk", "ssd").label("test-pool", "adapters-stop");
    pool.make(&test_jobs.client).await.unwrap();
    for done in 0..=3 {
        let name = format!("cut-{done}");
        let annotations = json!({"kueue.x-k8s.io/job-min-parallelism": "1", "sluice.dev/run-seconds": "600"});
        let created = test_jobs.create(job(&name, &annotations)).await;
        let original = observe(JobKind::JOB, &created);
        let additions = additions(&original, "adapters-stop");
        test_jobs.act(&name, |view| step(start(view, &additions).unwrap())).await;
        let running = test_jobs.wait(&name, "one pod is ready", |view| view.active && view.pods_ready).await;
        assert!(!running.suspended);
        assert_eq!(running.pod_sets[0].count, 1);

        // The manager dies after `done` steps. Each is taken from what the API server has, as the next manager does it.
        let whole = originals(&original);
        let next = |view: &JobView| stop(view, &whole)[0].clone().pinned(&view.resource_version);
        for n in 0..done {
            // The last step is the second where Kubernetes clears the start time itself, and has done so.
            let is_last = Cell::new(false);
            let now = test_jobs
                .act(&name, |view| {
                    is_last.set(view.stopping && stop(view, &whole).len() == 1);
                    next(view)
                })
                .await;
            assert_eq!(observe(JobKind::JOB, &now).suspended, is_last.get(), "after step {n}");
            if is_last.get() {
                break;
            }
        }
        while !observe(JobKind::JOB, &test_jobs.get(&name).await).suspended {
            test_jobs.act(&name, next).await;
        }
        let view = test_jobs.wait(&name, "no pods", |view| view.suspended && !view.active).await;
        assert_eq!(view.pod_sets, original.pod_sets);
        let stored = test_jobs.get(&name).await;
        assert_eq!(stored["spec"], created["spec"]);
        assert_eq!(stored["metadata"]["annotations"], created["metadata"]["annotations"]);
    }
}

#[tokio::test]
async fn the_job_controller_answers_whether_it_has_seen_a_stop() {
    let test_jobs = test_jobs("adapters-ask", JobKind::JOB).await;
    // One that it has looked at, and one that it has not, as far as its status says.
    for name in ["seen", "new"] {
        test_jobs.create(job(name, &json!({}))).await;
        test_jobs.wait(name, "suspended", |view| view.suspended_condition.is_some()).await;
        let foreign = json!({"type": "example.com/Other", "status": "True", "reason": "R", "message": "",
            "lastProbeTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let before = test_jobs
            .act(name, |view| {
                let at = "2026-01-01T00:00:00Z".parse().unwrap();
                let Patch::Strategic(mut body) = ask_controller(view, at).patch else {
                    panic!("another patch")
                };
                let asked = body["status"]["conditions"][0].clone();
                body["status"]["conditions"] = if name == "new" {
                    json!([{"$patch": "replace"}, foreign])
                } else {
                    json!([asked, foreign])
                };
                Step { subresource: Some("status"), patch: Patch::Strategic(body) }
            })
            .await;
        let types = |object: &Value| -> Vec<String> {
            let conditions = object["status"]["conditions"].as_array().unwrap();
            conditions.iter().map(|c| c["type"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(types(&before).contains(&"Suspended".to_owned()), name == "seen");
        test_jobs.act(name, |view| ask_controller(view, Timestamp::now())).await;
        let reported = |view: &JobView| view.suspended_condition.is_some_and(|(suspended, _)| suspended);
        test_jobs.wait(name, "answered", reported).await;
        assert!(types(&test_jobs.get(name).await).contains(&"example.com/Other".to_owned()), "{name}");
    }
}

#[tokio::test]
async fn the_jobset_controller_answers_whether_it_has_seen_a_stop() {
    let test_jobs = test_jobs("adapters-ask-jobset", JobKind::JOB_SET).await;
    test_jobs.create(jobset("asked")).await;
    let says = |view: &JobView| view.suspended_condition.is_some_and(|(suspended, _)| suspended);
    test_jobs.wait("asked", "suspended", says).await;
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    let object = test_jobs.act("asked", |view| ask_controller(view, at)).await;
    assert_eq!(observe(JobKind::JOB_SET, &object).suspended_condition, Some((false, at)));
    assert!(object["status"]["replicatedJobsStatus"].is_array(), "the rest of the status stays: {object}");
    let view = test_jobs.wait("asked", "answered", says).await;
    assert!(view.suspended_condition.unwrap().1 > at);
}

#[tokio::test]
async fn a_jobset_is_restored_by_one_patch() {
    let test_jobs = test_jobs("adapters-jobset", JobKind::JOB_SET).await;
    let created = test_jobs.create(jobset("restored")).await;
    let original = observe(JobKind::JOB_SET, &created);
    let additions = additions(&original, "nowhere");
    let started = test_jobs.act("restored", |view| step(start(view, &additions).unwrap())).await;
    let selector = "/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector/test-pool";
    assert_eq!(started.pointer(selector), Some(&json!("nowhere")));
    let running = test_jobs.wait("restored", "active", |view| view.active).await;
    assert!(!running.suspended && !running.pods_ready);
    let whole = originals(&original);
    assert_eq!(stop(&running, &whole).len(), 1);
    let stopped = test_jobs.act("restored", |view| stop(view, &whole).remove(0)).await;
    let view = test_jobs.wait("restored", "no pods", |view| view.suspended && !view.active).await;
    assert_eq!(view.pod_sets.len(), original.pod_sets.len());
    for (now, before) in view.pod_sets.iter().zip(&original.pod_sets) {
        assert_eq!(now.scheduling, before.scheduling);
        assert_eq!((now.count, now.containers_hash), (before.count, before.containers_hash));
    }
    let second = "/spec/replicatedJobs/1";
    assert_eq!(stopped.pointer(second), created.pointer(second));
}

#[tokio::test]
async fn the_end_of_a_job_is_seen() {
    let test_jobs = test_jobs("adapters-end", JobKind::JOB).await;
    let pool = nodes::pool("adapters-end", 1).label("disk", "ssd").label("test-pool", "adapters-end");
    pool.make(&test_jobs.client).await.unwrap();
    let created = test_jobs.create(job("ends", &json!({"sluice.dev/run-seconds": "1"}))).await;
    let additions = additions(&observe(JobKind::JOB, &created), "adapters-end");
    test_jobs.act("ends", |view| step(start(view, &additions).unwrap())).await;
    let view = test_jobs.wait("ends", "finished", |view| view.finished.is_some()).await;
    assert!(view.finished.unwrap().success);
    assert!(!view.active);
    assert_eq!(view.reclaimable, [("main".to_owned(), 2)]);
}
