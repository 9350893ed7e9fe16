//! Jobs, JobSets, pods and serving kinds: queued, admitted, moved to another flavor, ended and deleted, with the controllers of Kubernetes and of
//! JobSets. The kinds of other controllers have their own tests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use futures::future::join_all;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME};

use crate::flavors::{flavors, set_quota, two_flavors};
use crate::marks::{expected, of_pod, while_marking};

/// Pods of each job, but for what is one pod by itself.
const PODS: usize = 2;

/// What goes through the story: a job of the kind, by its name, as the objects that its user makes. Where these are pods, their names end in the
/// second text.
struct Mover {
    /// The name of the namespace.
    place: &'static str,
    kind: JobKind,
    pods: usize,
    objects: fn(&str, &str) -> Vec<Value>,
}

/// A pod template whose pods run until they are deleted.
fn template() -> Value {
    json!({
        "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

fn batch() -> Value {
    json!({"parallelism": PODS, "completions": PODS, "template": template()})
}

/// The spec of what serves.
fn serves(name: &str, replicas: usize) -> Value {
    let mut template = template();
    template["metadata"]["labels"] = json!({"app": name});
    template["spec"]["restartPolicy"] = json!("Always");
    json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template})
}

fn pod(name: &str) -> Value {
    let mut pod = template();
    pod["metadata"]["name"] = json!(name);
    pod
}

const MOVERS: [Mover; 6] = [
    Mover {
        place: "moves-job",
        kind: JobKind::JOB,
        pods: PODS,
        objects: |_, _| vec![json!({"spec": batch()})],
    },
    Mover {
        place: "moves-jobset",
        kind: JobKind::JOB_SET,
        pods: PODS,
        objects: |_, _| {
            let group = json!({"name": "main", "replicas": 1, "template": {"spec": batch()}});
            vec![json!({"spec": {"replicatedJobs": [group]}})]
        },
    },
    Mover {
        place: "moves-pod",
        kind: JobKind::POD,
        pods: 1,
        objects: |name, end| vec![pod(&format!("{name}{end}"))],
    },
    Mover {
        place: "moves-group",
        kind: JobKind::POD,
        pods: PODS,
        objects: |name, end| {
            let member = |at| {
                let mut pod = pod(&format!("{name}-{at}{end}"));
                pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/pod-group-name": name});
                pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] =
                    json!(PODS.to_string());
                pod
            };
            (0..PODS).map(member).collect()
        },
    },
    // Each of its pods is a job.
    Mover {
        place: "moves-deployment",
        kind: JobKind::DEPLOYMENT,
        pods: 1,
        objects: |name, _| vec![json!({"spec": serves(name, 1)})],
    },
    Mover {
        place: "moves-set",
        kind: JobKind::STATEFUL_SET,
        pods: PODS,
        objects: |name, _| vec![json!({"spec": serves(name, PODS)})],
    },
];

/// A job of the story in its place.
struct Bench<'a> {
    mover: Mover,
    place: &'a Place<'a>,
}

impl Bench<'_> {
    fn api(&self) -> Api<DynamicObject> {
        let kind = self.mover.kind;
        let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), kind.kind());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        Api::namespaced_with(self.place.client.clone(), &self.place.name, &resource)
    }

    fn objects(&self, name: &str, end: &str) -> Vec<DynamicObject> {
        let of = |mut object: Value| {
            let kind = self.mover.kind;
            (object["apiVersion"], object["kind"]) = (json!(kind.api_version()), json!(kind.kind()));
            if object["metadata"]["name"].is_null() {
                object["metadata"]["name"] = json!(name);
            }
            object["metadata"]["labels"][QUEUE_NAME] = json!("lq");
            serde_json::from_value(object).unwrap()
        };
        (self.mover.objects)(name, end).into_iter().map(of).collect()
    }

    async fn make(&self, name: &str, end: &str) {
        for object in self.objects(name, end) {
            self.api().create(&PostParams::default(), &object).await.unwrap();
        }
    }

    async fn delete(&self, name: &str) {
        for object in self.objects(name, "") {
            self.api().delete(&object.metadata.name.unwrap(), &DeleteParams::background()).await.unwrap();
        }
    }

    async fn pods(&self, name: &str) -> Vec<Value> {
        let all = self.place.pods_with("").await.unwrap();
        let own = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().starts_with(name);
        all.into_iter().filter(own).collect()
    }

    /// Waits until as many pods run as the job has, and there is none of it but for the nodes of this flavor; no template says otherwise.
    async fn wait_until_it_runs_on(&self, name: &str, flavor: &str) {
        let place = self.place;
        let marked = expected(place, Some(flavor)).await;
        eventually(&format!("{}/{name} to run on {flavor}", place.name), DEADLINE, || async {
            let pods = self.pods(name).await;
            let right = |pod: &&Value| pod["status"]["phase"] == "Running" && of_pod(pod) == marked;
            let all = pods.iter().filter(right).count() == self.mover.pods && pods.len() == self.mover.pods;
            let of = |pod: &Value| format!("{} {}", pod["status"]["phase"], of_pod(pod));
            Ok(progress(all, format!("{:?}", pods.iter().map(of).collect::<Vec<_>>())))
        })
        .await
        .unwrap();
        let integration = self.mover.kind.integration();
        if integration.of_pods {
            return;
        }
        let object = serde_json::to_value(self.api().get(name).await.unwrap()).unwrap();
        // The templates of what only marks its pods stay as their user made them.
        let wanted = if integration.suspends_pods { expected(place, None).await } else { marked };
        for group in sluice_jobs::pod_groups(self.mover.kind, &object) {
            assert_eq!(of_pod(&group.template), wanted, "{} {}", place.name, group.path());
        }
        for part in place.jobs().list(&ListParams::default()).await.unwrap() {
            let owners = part.metadata.owner_references.unwrap_or_default();
            if owners.iter().any(|owner| owner.name == name) {
                assert_eq!(
                    of_pod(part.spec.unwrap().template),
                    wanted,
                    "{}: the template of its part",
                    place.name
                );
            }
        }
    }

    /// Waits until nothing of it may run: what there is of its pods waits behind a gate, or is on its way out.
    async fn wait_until_it_waits(&self, name: &str) {
        let unmarked = expected(self.place, None).await;
        eventually(&format!("{}/{name} to wait", self.place.name), DEADLINE, || async {
            let pods = self.pods(name).await;
            let waits = |pod: &Value| {
                let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
                !pod["metadata"]["deletionTimestamp"].is_null() || gated && of_pod(pod) == unmarked
            };
            Ok(progress(pods.iter().all(waits), format!("{} pods", pods.len())))
        })
        .await
        .unwrap();
    }

    /// Ends all of it well; what serves is deleted.
    async fn end(&self, name: &str) {
        if !self.mover.kind.integration().ends {
            return self.delete(name).await;
        }
        for pod in self.pods(name).await {
            let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            let name = pod["metadata"]["name"].as_str().unwrap();
            self.place.pods().patch_status(name, &PatchParams::default(), &ended).await.unwrap();
        }
    }
}

async fn whole_life(mover: Mover) {
    let place = two_flavors(mover.place, [0, 0]).await;
    let marks = mover.kind == JobKind::JOB_SET;
    let bench = Bench { mover, place: &place };
    if marks {
        while_marking(&place, live(&bench)).await;
    } else {
        live(&bench).await;
    }
}

async fn live(bench: &Bench<'_>) {
    let place = bench.place;
    let most = u32::try_from(bench.mover.pods).unwrap();
    let [old, new] = flavors(bench.mover.place);

    bench.make("first", "").await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    bench.wait_until_it_waits("first").await;
    set_quota(place, [most, 0]).await;
    bench.wait_until_it_runs_on("first", &old).await;

    // One that waits is deleted.
    bench.make("second", "").await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    bench.wait_until_it_waits("second").await;
    bench.delete("second").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor. Only their user makes pods again.
    place.make_urgent(bench.mover.place, most).await.unwrap();
    place.wait_until("urgent", true).await.unwrap();
    bench.wait_until_it_waits("first").await;
    if bench.mover.kind.integration().of_pods {
        bench.make("first", "-again").await;
    }
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    set_quota(place, [most, most]).await;
    bench.wait_until_it_runs_on("first", &new).await;
    bench.end("first").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // One that runs is deleted.
    bench.make("third", "").await;
    bench.wait_until_it_runs_on("third", &new).await;
    bench.delete("third").await;
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    eventually("nothing of it to be left", DEADLINE, || async {
        let left = bench.pods("third").await.len();
        Ok(progress(left == 0, left))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_pods_and_what_serves_come_back_on_another_flavor_with_nothing_of_the_old_one_left() {
    join_all(MOVERS.map(|mover| Box::pin(whole_life(mover)))).await;
}
