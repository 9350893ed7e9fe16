//! The declarations of `examples/integrations` on an API server with the CRDs of their kinds: the example is queued, started and stopped, and the CRD
//! stores all written fields. No controller runs, so statuses are not tested.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, patch};

use crate::bed::bed;
use crate::flavors::{flavors, of_flavor, of_nodes, two_flavors};
use crate::gated::document;

/// A kind by its folder in the examples.
struct Shipped {
    folder: &'static str,
    /// Where the pods' node selector is.
    pods: &'static str,
    /// Where labels of the pods are.
    labels: &'static str,
    /// Its pod sets, with their numbers of pods.
    pod_sets: &'static [(&'static str, u32)],
}

const KINDS: [Shipped; 2] = [
    Shipped {
        folder: "argo-workflow",
        pods: "/spec",
        labels: "/spec/podMetadata/labels",
        pod_sets: &[("main", 2)],
    },
    Shipped {
        folder: "virtualmachine",
        pods: "/spec/template/spec",
        labels: "/spec/template/metadata/labels",
        pod_sets: &[("main", 1)],
    },
];

/// The declarations.
pub fn declarations() -> Vec<Value> {
    KINDS
        .iter()
        .map(|kind| document(&format!("examples/integrations/{}/declaration.yaml", kind.folder)))
        .collect()
}

/// The CRDs of the kinds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    ["workflow", "virtualmachine"]
        .iter()
        .map(|name| document(&format!("tests/control-plane/{name}-crd.yaml")))
        .collect()
}

/// A job of a kind in a place.
struct Example<'a> {
    place: &'a Place<'a>,
    kind: &'a Shipped,
    declaration: Value,
    name: String,
    /// What its user lets it run with, if that is not the declared value.
    runs: Option<Value>,
}

impl Example<'_> {
    fn api(&self) -> Api<DynamicObject> {
        let text = |field: &str| self.declaration[field].as_str().unwrap().to_owned();
        let kind = GroupVersionKind::gvk(&text("group"), &text("version"), &text("kind"));
        let plural = format!("{}s", text("kind").to_lowercase());
        Api::namespaced_with(
            self.place.client.clone(),
            &self.place.name,
            &ApiResource::from_gvk_with_plural(&kind, &plural),
        )
    }

    async fn object(&self) -> Value {
        serde_json::to_value(self.api().get(&self.name).await.unwrap()).unwrap()
    }

    /// Where it is suspended, and the values that suspend it and let it run.
    fn suspend(&self) -> (String, Value, Value) {
        let suspend = &self.declaration["suspend"];
        let path = suspend["path"].as_str().unwrap_or("spec.suspend").replace('.', "/");
        let value = |field: &str, default: bool| suspend.get(field).cloned().unwrap_or(json!(default));
        let running = self.runs.clone().unwrap_or_else(|| value("running", false));
        (format!("/{path}"), value("suspended", true), running)
    }

    /// Waits until it runs on a flavor; until it is suspended with nothing of any, if none is given.
    async fn wait_until_on(&self, flavor: Option<&str>) {
        let (path, suspended, running) = self.suspend();
        let wanted = if flavor.is_some() { &running } else { &suspended };
        let nodes = of_flavor(flavor);
        eventually(&format!("{} to be on {flavor:?}", self.kind.folder), DEADLINE, || async {
            let object = self.object().await;
            let mut is = of_nodes(object.pointer(self.kind.pods).unwrap());
            if let Some(selector) = is["nodeSelector"].as_object_mut() {
                // The example's own.
                selector.remove("kubernetes.io/os");
                if selector.is_empty() {
                    is["nodeSelector"] = Value::Null;
                }
            }
            Ok(progress(object.pointer(&path) == Some(wanted) && is == nodes, object["spec"].to_string()))
        })
        .await
        .unwrap();
    }

    async fn set(&self, value: &Value) {
        let (path, ..) = self.suspend();
        let mut body = value.clone();
        for part in path.rsplit('/').filter(|part| !part.is_empty()) {
            body = json!({part: body});
        }
        self.api().patch(&self.name, &PatchParams::default(), &Patch::Merge(body)).await.unwrap();
    }

    async fn set_active(&self, active: bool) {
        let workload = self.place.workload(&self.name).await.unwrap();
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        patch(&self.place.workloads(), &name, json!({"spec": {"active": active}})).await.unwrap();
    }
}

/// Room for all that an example asks for, on the first flavor.
async fn make_room(place: &Place<'_>) {
    let [first, _] = flavors(&place.name);
    let resources: Vec<_> = ["cpu", "memory", "nvidia.com/gpu"]
        .iter()
        .map(|name| json!({"name": name, "nominalQuota": if *name == "memory" { "64Gi" } else { "64" }}))
        .collect();
    let group = json!({
        "coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
        "flavors": [{"name": first, "resources": resources}],
    });
    patch(&place.cluster_queues(), &place.name, json!({"spec": {"resourceGroups": [group]}})).await.unwrap();
}

async fn lives(place: &Place<'_>, kind: &Shipped, runs: Option<Value>) {
    let declaration: Value = document(&format!("examples/integrations/{}/declaration.yaml", kind.folder));
    let mut object: DynamicObject = document(&format!("examples/integrations/{}/object.yaml", kind.folder));
    let labels = object.metadata.labels.get_or_insert_default();
    labels.insert(QUEUE_NAME.to_owned(), "lq".to_owned());
    object.metadata.namespace = None;
    let example = Example { place, kind, declaration, name: object.metadata.name.clone().unwrap(), runs };
    if example.runs.is_some() {
        let (path, _, running) = example.suspend();
        *object.data.pointer_mut(&path).unwrap() = running;
    }
    example.api().create(&PostParams::default(), &object).await.unwrap();
    let made = example.object().await;
    let (path, suspended, running) = example.suspend();
    assert_eq!(made.pointer(&path), Some(&suspended));
    let workload = place.workload(&example.name).await.unwrap();
    let sets = workload["spec"]["podSets"].as_array().unwrap().iter();
    let sets: Vec<_> = sets.map(|set| (set["name"].clone(), set["count"].clone())).collect();
    let wanted: Vec<_> = kind.pod_sets.iter().map(|(name, pods)| (json!(name), json!(pods))).collect();
    assert_eq!(sets, wanted, "{}", kind.folder);

    // One that its user releases without quota is held again.
    example.set_active(false).await;
    make_room(place).await;
    example.set(&running).await;
    example.wait_until_on(None).await;
    assert_eq!(example.object().await["spec"], made["spec"], "{}", kind.folder);

    // A start puts all that it says where the CRD keeps it, and a stop takes it out again.
    example.set_active(true).await;
    let [first, _] = flavors(&place.name);
    example.wait_until_on(Some(&first)).await;
    let started = example.object().await;
    let set = started.pointer(kind.labels).map(|labels| &labels["kueue.x-k8s.io/podset"]);
    assert_eq!(set, Some(&json!(kind.pod_sets[0].0)), "{}: {}", kind.folder, started["spec"]);
    example.set_active(false).await;
    example.wait_until_on(None).await;
    let mut stopped = example.object().await;
    if made.pointer(kind.labels).is_none() {
        remove_empty(&mut stopped["spec"]);
    }
    assert_eq!(stopped["spec"], made["spec"], "{}", kind.folder);
    example.api().delete(&example.name, &DeleteParams::background()).await.unwrap();
    place.wait_until_empty().await.unwrap();
}

/// Takes out maps and lists that were made on the way to something and are empty now.
fn remove_empty(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.values_mut().for_each(remove_empty);
    fields.retain(|_, value| *value != json!({}) && *value != json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_each_declared_kind_is_queued_started_and_stopped_as_its_crd_allows() {
    bed().await;
    let [workflow, machine] = &KINDS;
    for (name, kind, runs) in [
        ("shipped-argo", workflow, None),
        ("shipped-vm", machine, None),
        ("shipped-vm-again", machine, Some(json!("RerunOnFailure"))),
    ] {
        let place = two_flavors(name, [0, 0]).await;
        lives(&place, kind, runs).await;
    }
}
