//! TrainJobs of every runtime that the trainer ships, and of one with the policy `flux`, of which it ships none: the pods of its controllers and of the
//! JobSet controller match our Workloads.
//!
//! No node has the label of the flavor, so pods are never started. The test reports the results of pods that would run, or leaves them out: it marks
//! the pods of initializers as ended, since the training Jobs wait for that, and no initializer makes the cache of `torch-distributed-with-cache`.
//! The test's JobSets have no volume claims (`volumeClaimPolicies`): torchtune's runtimes mount an empty volume.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Map, Value, json};
use sluice_api::job::{JobKind, TemplateKind};
use sluice_testkit::assets::Tool;
use sluice_testkit::needs;
use sluice_testkit::trainer;
use sluice_testkit::wait::{Progress, eventually};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create};

use crate::bed::bed;
use crate::trainjob::{self, pods, trainjobs};

/// The namespace, the flavor and the queue.
const PLACE: &str = "runtimes";
/// The node label of the flavor, and the key of the toleration that it adds.
const OF_FLAVOR: &str = "test-runtimes";
/// What the queue covers. By the last one each pod set has a flavor, whatever it asks for.
const RESOURCES: [&str; 4] = ["cpu", "memory", "nvidia.com/gpu", "pods"];

fn toleration() -> Value {
    json!({"key": OF_FLAVOR, "operator": "Exists", "effect": "NoSchedule"})
}

async fn place() -> Place<'static> {
    trainjob::start().await;
    let place = Place::bare(bed().await.plane, PLACE).await.unwrap();
    let spec = json!({"nodeLabels": {OF_FLAVOR: "nowhere"}, "tolerations": [toleration()]});
    let flavors = place.global("ResourceFlavor", "resourceflavors");
    create(&flavors, json!({"metadata": {"name": PLACE}, "spec": spec})).await.unwrap();
    let quota = RESOURCES.map(|name| json!({"name": name, "nominalQuota": "1000Gi"}));
    let groups = json!([{"coveredResources": RESOURCES, "flavors": [{"name": PLACE, "resources": quota}]}]);
    place.cluster_queue(PLACE, 0, &json!({"resourceGroups": groups})).await.unwrap();
    place.local_queue("lq", PLACE).await.unwrap();
    // It comes with the manifests of the cache.
    let accounts: Api<ServiceAccount> = Api::namespaced(place.client.clone(), PLACE);
    let name = json!({"metadata": {"name": "kubeflow-trainer-cache-initializer"}});
    accounts.create(&PostParams::default(), &serde_json::from_value(name).unwrap()).await.unwrap();
    place
}

/// Puts an empty volume in the place of each claim of a runtime.
fn without_claims(runtime: &mut Value) {
    let spec = &mut runtime["spec"]["template"]["spec"];
    let Some(claims) = spec.as_object_mut().unwrap().remove("volumeClaimPolicies") else { return };
    let claims = claims.as_array().unwrap().iter().flat_map(|policy| policy["templates"].as_array().unwrap());
    let volumes: Vec<_> =
        claims.map(|claim| json!({"name": claim["metadata"]["name"], "emptyDir": {}})).collect();
    for job in spec["replicatedJobs"].as_array_mut().unwrap() {
        job["template"]["spec"]["template"]["spec"]["volumes"] = json!(volumes);
    }
}

/// A runtime with the policy `flux`.
fn flux() -> Value {
    let pod =
        json!({"containers": [{"name": "node", "image": "none", "resources": {"requests": {"cpu": "1"}}}]});
    let trains = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let node = json!({"name": "node", "template": {"metadata": trains, "spec": {"template": {"spec": pod}}}});
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "flux", "labels": {"trainer.kubeflow.org/framework": "flux"}},
        "spec": {"mlPolicy": {"numNodes": 1, "flux": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
    })
}

/// Installs the runtimes.
async fn install(place: &Place<'_>) -> Vec<Value> {
    let kind = TemplateKind::CLUSTER_TRAINING_RUNTIME;
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(kind.group(), kind.version(), kind.kind()),
        kind.plural(),
    );
    let api: Api<DynamicObject> = Api::all_with(place.client.clone(), &resource);
    let mut runtimes = trainer::runtimes().unwrap();
    runtimes.push(flux());
    for runtime in &mut runtimes {
        without_claims(runtime);
        let name = runtime["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("sluice-tests").force();
        api.patch(name, &params, &Patch::Apply(&*runtime)).await.unwrap();
    }
    runtimes
}

/// What TrainJobs of a runtime say: nothing of their own, but for the number of nodes, without which the trainer fails with Flux; all that shapes
/// pods; and, with torchtune, its command.
fn specs(runtime: &Value) -> Vec<(&'static str, Value)> {
    let replicated = runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array().unwrap();
    let named =
        |name: &str| json!({"runtimeRef": {"name": runtime["metadata"]["name"]}, "trainer": {"image": name}});
    let mut full = named("none");
    let node = json!({"name": "node", "template": {"spec": {"template": {"spec": {
        "nodeSelector": {"zone": "a"}, "tolerations": [{"key": "own", "operator": "Exists"}],
    }}}}});
    full["runtimePatches"] = json!([{
        "manager": "tests.example.com/user",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}},
    }]);
    full["trainer"]["numNodes"] = json!(3);
    full["trainer"]["env"] =
        json!([{"name": "A", "value": "b"}, {"name": "FLUX_VIEW_IMAGE", "value": "example.com/flux"}]);
    full["trainer"]["resourcesPerNode"] =
        json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}});
    for (job, field) in [("dataset-initializer", "dataset"), ("model-initializer", "model")] {
        if replicated.iter().any(|one| one["name"] == job) {
            full["initializer"][field] = json!({"storageUri": "hf://a/b"});
        }
    }
    let of_framework = |name: &str| runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] == name;
    let mut bare = json!({"runtimeRef": {"name": runtime["metadata"]["name"]}});
    if of_framework("flux") {
        bare["trainer"] = json!({"numNodes": 2});
    }
    let mut specs = vec![("bare", bare), ("full", full)];
    if of_framework("torchtune") {
        let mut tune = named("none");
        tune["trainer"]["command"] = json!(["tune", "run"]);
        specs.push(("tune", tune));
    }
    specs
}

/// Makes a TrainJob once the trainer's webhook, which reads from a cache, knows its runtime.
async fn make(place: &Place<'_>, name: &str, spec: &Value) {
    let kind = JobKind::TRAIN_JOB;
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(),
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}}, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    eventually(&format!("the TrainJob {name}"), DEADLINE, || async {
        match trainjobs(place).create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.message.contains("must be created before") => {
                Ok(Progress::NotYet(status.message))
            }
            made => Ok(Progress::Done(made.map(drop)?)),
        }
    })
    .await
    .unwrap();
}

/// The containers of a pod, those first that come before the others.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(move |list| spec[list].as_array().into_iter().flatten())
}

/// The images of the containers of a pod, in order.
fn images(spec: &Value) -> Vec<[&str; 2]> {
    containers(spec).map(|one| ["name", "image"].map(|field| one[field].as_str().unwrap())).collect()
}

/// What the containers of a pod ask for. A limit stands for what is not requested.
fn requests(spec: &Value) -> BTreeMap<String, BTreeMap<String, String>> {
    let text = |amount: &Value| amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    let of = |container: &Value| {
        let amounts = ["limits", "requests"]
            .into_iter()
            .flat_map(|of| container["resources"][of].as_object().into_iter().flatten());
        amounts.map(|(name, amount)| (name.clone(), text(amount))).collect()
    };
    containers(spec).map(|one| (one["name"].as_str().unwrap().to_owned(), of(one))).collect()
}

/// A number of units, or of bytes.
fn amount(text: &str) -> u64 {
    match text.strip_suffix("Gi") {
        Some(gibibytes) => gibibytes.parse::<u64>().unwrap() << 30,
        None => text.parse().unwrap(),
    }
}

/// A toleration: its key, operator, value and effect.
fn tolerates(toleration: &Value) -> [String; 4] {
    ["key", "operator", "value", "effect"]
        .map(|field| toleration[field].as_str().unwrap_or_default().to_owned())
}

/// What it says of nodes: the selector, and the tolerations but for those that the API server adds, by itself and for extended resources.
fn of_nodes(spec: &Value) -> (Map<String, Value>, BTreeSet<[String; 4]>) {
    let tolerations = spec["tolerations"].as_array().into_iter().flatten().map(tolerates);
    let own = tolerations
        .filter(|[key, ..]| !key.starts_with("node.kubernetes.io/") && !RESOURCES.contains(&key.as_str()));
    (spec["nodeSelector"].as_object().cloned().unwrap_or_default(), own.collect())
}

/// Waits until the controllers have made as many pods of a TrainJob as its Workload has.
async fn made(place: &Place<'_>, name: &str, wanted: usize) -> Vec<Value> {
    eventually(&format!("{wanted} pods of {name}"), DEADLINE, || async {
        let pods = pods(place, name).await;
        for pod in pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Pending" && set_of(pod).ends_with("-initializer"))
        {
            let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            let pod = pod["metadata"]["name"].as_str().unwrap();
            place.pods().patch_status(pod, &PatchParams::default(), &ended).await?;
        }
        let reported = pods.iter().map(|pod| set_of(pod).to_owned()).collect::<Vec<_>>();
        Ok(if pods.len() >= wanted {
            Progress::Done(pods)
        } else {
            Progress::NotYet(format!("{reported:?}"))
        })
    })
    .await
    .unwrap()
}

/// The replicated Job that a pod is of.
fn set_of(pod: &Value) -> &str {
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"].as_str().unwrap()
}

/// Compares the pods of a TrainJob with the pod sets of its Workload, and with what of the quota is taken for them.
async fn compare(place: &Place<'_>, name: &str) {
    place.wait_for_condition(name, "Admitted", "True").await.unwrap();
    let workload = place.workload(name).await.unwrap();
    let sets = workload["spec"]["podSets"].as_array().unwrap();
    let assigned = workload["status"]["admission"]["podSetAssignments"].as_array().unwrap();
    let counts: BTreeMap<_, _> =
        sets.iter().map(|set| (set["name"].as_str().unwrap(), set["count"].as_u64().unwrap())).collect();
    let wanted = usize::try_from(counts.values().sum::<u64>()).unwrap();
    let pods = made(place, name, wanted).await;
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for pod in &pods {
        *found.entry(set_of(pod)).or_default() += 1;
    }
    assert_eq!(found, counts, "{name}: names and numbers");
    for (set, assigned) in sets.iter().zip(assigned) {
        let reported = format!("{name}: {}", set["name"]);
        let own = &set["template"]["spec"];
        let (mut selector, mut tolerations) = of_nodes(own);
        selector.insert(OF_FLAVOR.to_owned(), json!("nowhere"));
        tolerations.insert(tolerates(&toleration()));
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| set["name"] == set_of(pod)) {
            assert_eq!(images(&pod["spec"]), images(own), "{reported}: images");
            assert_eq!(requests(&pod["spec"]), requests(own), "{reported}: requests");
            assert_eq!(of_nodes(&pod["spec"]), (selector.clone(), tolerations.clone()), "{reported}: nodes");
            *used.entry("pods".to_owned()).or_default() += 1;
            for (resource, asked) in requests(&pod["spec"]).into_values().flatten() {
                *used.entry(resource).or_default() += amount(&asked);
            }
        }
        assert_eq!((&assigned["name"], &assigned["count"]), (&set["name"], &set["count"]), "{reported}");
        let taken = assigned["resourceUsage"].as_object().unwrap().iter();
        let taken: BTreeMap<_, _> =
            taken.map(|(name, of)| (name.clone(), amount(of.as_str().unwrap()))).collect();
        assert_eq!(taken, used, "{reported}: quota");
    }
}

#[tokio::test]
async fn the_pods_of_every_runtime_are_those_of_the_workload() {
    needs!(Tool::TrainerControllers);
    let place = &place().await;
    let mut names = Vec::new();
    for runtime in install(place).await {
        let of = runtime["metadata"]["name"].as_str().unwrap().replace('.', "-");
        for (says, spec) in specs(&runtime) {
            let name = format!("{of}-{says}");
            make(place, &name, &spec).await;
            names.push(name);
        }
    }
    assert_eq!(names.len(), 23);
    for name in &names {
        compare(place, name).await;
        trainjobs(place).delete(name, &DeleteParams::background()).await.unwrap();
    }
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}
