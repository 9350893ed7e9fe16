//! Documents made from the schemas: each field of a version is generated sooner or later.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sluice_api::crds::{crds, document as crd_document};

/// The kinds that convert by webhook.
pub const KINDS: [&str; 5] = ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"];

static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| crds().iter().map(crd_document).collect());

fn schema(kind: &str, version: &str) -> &'static Value {
    let definition = DEFINITIONS.iter().find(|d| d["spec"]["names"]["kind"] == kind).unwrap();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    &versions.iter().find(|v| v["name"] == version).unwrap()["schema"]["openAPIV3Schema"]
}

/// A valid object of a kind. The same seed makes the same object.
pub fn document(kind: &str, version: &str, seed: u64) -> Value {
    let mut random = Random(seed);
    let mut document = Map::new();
    let properties = schema(kind, version)["properties"].as_object().unwrap();
    for (name, property) in properties {
        if !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            document.insert(name.clone(), random.value(name, property));
        }
    }
    document.insert("apiVersion".into(), format!("kueue.x-k8s.io/{version}").into());
    document.insert("kind".into(), kind.into());
    document.insert("metadata".into(), json!({"name": "x", "annotations": {"cohort": "kept"}}));
    let mut document = Value::Object(document);
    obey_rules(&mut document, &mut random);
    document
}

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn name(&mut self) -> String {
        format!("n{}", self.below(1000))
    }

    fn value(&mut self, name: &str, schema: &Value) -> Value {
        if name == "template" {
            return json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        }
        if let Some(names) = schema["enum"].as_array() {
            let at = usize::try_from(self.below(names.len() as u64)).unwrap();
            return names[at].clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            // Quantities: what is written as a number comes back as a string.
            return if self.below(2) == 0 { json!(self.below(100).to_string()) } else { json!("1500m") };
        }
        match schema["type"].as_str() {
            Some("boolean") => (self.below(2) == 0).into(),
            Some("integer") => (1 + self.below(50)).into(),
            Some("string") if schema["format"] == "date-time" => "2026-01-02T03:04:05Z".into(),
            Some("string") => self.name().into(),
            Some("array") => {
                // Distinct by construction: lists may be sets or maps.
                let mut items: Vec<Value> = Vec::new();
                for _ in 0..=self.below(3) {
                    let item = self.value("", &schema["items"]);
                    let key = |v: &Value| v.get("name").or(v.get("type")).unwrap_or(v).clone();
                    if items.iter().all(|other| key(other) != key(&item)) {
                        items.push(item);
                    }
                }
                items.into()
            }
            _ => self.object(schema),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut object = Map::new();
        if schema["additionalProperties"].is_object() {
            for _ in 0..=self.below(2) {
                object.insert(self.name(), self.value("", &schema["additionalProperties"]));
            }
        }
        let required =
            |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            // What has a default is always there: the API server fills it in before it converts.
            let always = required(name) || !property["default"].is_null();
            if always || self.below(3) != 0 {
                object.insert(name.clone(), self.value(name, property));
            }
        }
        object.into()
    }
}

fn each_assignment(document: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    document
        .pointer_mut("/status/admission/podSetAssignments")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// What rules demand and a schema does not say.
fn obey_rules(document: &mut Value, random: &mut Random) {
    let old = document["apiVersion"] == "kueue.x-k8s.io/v1beta1";
    if let Some(reference) = document.pointer_mut("/spec/priorityClassRef") {
        let kueue = reference["group"] == "kueue.x-k8s.io";
        reference["kind"] = if kueue { "WorkloadPriorityClass" } else { "PriorityClass" }.into();
    }
    if let Some(Value::Object(source)) = document.pointer_mut("/spec/clusterSource") {
        source.remove("kubeConfig");
        source.insert("clusterProfileRef".into(), json!({"name": "p"}));
    }
    if (document["spec"]["priorityClassSource"] == "" || document["spec"]["priorityClassName"].is_null())
        && let Some(Value::Object(spec)) = document.get_mut("spec")
        && spec.contains_key("priorityClassSource")
    {
        spec.remove("priorityClassName");
        spec.insert("priorityClassSource".into(), "".into());
    }
    // Free strings in v1beta1, where v1beta2 knows two values.
    if let Some(mode) = document.pointer_mut("/spec/admissionScope/admissionMode") {
        *mode = "NoAdmissionFairSharing".into();
    }
    for assignment in each_assignment(document) {
        if let Some(delayed) = assignment.get_mut("delayedTopologyRequest") {
            *delayed = "Ready".into();
        }
    }
    let mut replacement = || {
        let count = random.below(4);
        let hosts: Vec<String> = (0..count).map(|n| format!("pool-{}-{n}", random.below(3))).collect();
        if old {
            let domains: Vec<Value> = hosts.iter().map(|h| json!({"values": [h], "count": 1})).collect();
            json!({"levels": ["kubernetes.io/hostname"], "domains": domains})
        } else {
            let rows = sluice_api::v1beta1::TopologyAssignment {
                levels: vec!["kubernetes.io/hostname".into()],
                domains: hosts
                    .iter()
                    .map(|host| sluice_api::v1beta1::TopologyDomainAssignment {
                        values: vec![host.clone()],
                        count: 2,
                    })
                    .collect(),
            };
            serde_json::to_value(sluice_api::conversion::topology::encode(&rows, true).unwrap()).unwrap()
        }
    };
    for assignment in each_assignment(document) {
        if assignment.contains_key("topologyAssignment") {
            assignment.insert("topologyAssignment".into(), replacement());
        }
    }
}

fn remove(document: &mut Value, parent: &str, field: &str) {
    if let Some(Value::Object(object)) = document.pointer_mut(parent) {
        object.remove(field);
    }
}

/// The documented losses on the way to v1beta2.
pub fn forget_what_v1beta2_drops(document: &mut Value) {
    remove(document, "/status", "pendingWorkloadsStatus");
    remove(document, "/spec", "admissionChecks");
    match document["kind"].as_str().unwrap() {
        "ClusterQueue" => {
            remove(document, "/status/fairSharing", "admissionFairSharingStatus");
            for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
                if document["spec"]["flavorFungibility"][field] == old {
                    document["spec"]["flavorFungibility"][field] = "TryNextFlavor".into();
                }
            }
            if document["spec"]["admissionChecksStrategy"]["admissionChecks"].is_null() {
                remove(document, "/spec", "admissionChecksStrategy");
            }
            for field in ["flavorsReservation", "flavorsUsage"] {
                let status = document["status"].as_object_mut().unwrap();
                status.entry(field).or_insert(json!([]));
            }
        }
        "Cohort" => remove(document, "/status/fairSharing", "admissionFairSharingStatus"),
        "LocalQueue" => remove(document, "/status", "flavors"),
        _ => {}
    }
}

/// The documented losses on the way to v1beta1.
pub fn forget_what_v1beta1_drops(document: &mut Value) {
    remove(document, "/spec", "concurrentAdmissionPolicy");
    remove(document, "/spec", "preemptionGates");
    remove(document, "/status", "preemptionGates");
    let pod_sets = document.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for pod_set in pod_sets.into_iter().flatten() {
        remove(pod_set, "/topologyRequest", "podsetSliceRequiredTopologyConstraints");
    }
}

/// The document has only fields that its version's schema knows, of the right types, and all that are required.
pub fn assert_conforms(document: &Value) {
    let version = document["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
    let kind = document["kind"].as_str().unwrap();
    conforms(kind, document, schema(kind, version));
}

fn conforms(path: &str, value: &Value, schema: &Value) {
    if path.ends_with(".metadata")
        || path.ends_with(".template")
        || schema["x-kubernetes-int-or-string"] == true
    {
        return;
    }
    if let Some(names) = schema["enum"].as_array() {
        assert!(names.contains(value), "{path}: {value} is none of {names:?}");
    }
    match (schema["type"].as_str().unwrap(), value) {
        ("object", Value::Object(object)) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(object.contains_key(name.as_str().unwrap()), "{path}: {name} is missing in {value}");
            }
            for (name, value) in object {
                let child = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                assert!(child.is_object(), "{path}: unknown field {name}");
                conforms(&format!("{path}.{name}"), value, child);
            }
        }
        ("array", Value::Array(items)) => {
            for item in items {
                conforms(&format!("{path}[]"), item, &schema["items"]);
            }
        }
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("integer", Value::Number(_)) => {}
        (wanted, found) => panic!("{path}: {found} is no {wanted}"),
    }
}

/// Any JSON.
pub fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Puts something else at one place below the root.
pub fn replace_somewhere(document: &mut Value, at: prop::sample::Index, graft: &Value) {
    fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (name, child) in object {
                    let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                    found.push(path.clone());
                    paths(child, &path, found);
                }
            }
            Value::Array(items) => {
                for (index, child) in items.iter().enumerate() {
                    let path = format!("{path}/{index}");
                    found.push(path.clone());
                    paths(child, &path, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    paths(document, "", &mut found);
    found.retain(|path| path != "/apiVersion" && path != "/kind");
    let path = &found[at.index(found.len())];
    *document.pointer_mut(path).unwrap() = graft.clone();
}
