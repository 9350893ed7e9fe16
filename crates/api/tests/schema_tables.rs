//! The generated definitions equal the tables of Kueue's API, in both versions and every column.
//!
//! The tables (`tests/data/*.tsv`) do not contain the fields of pod templates. Intentional differences are in [`ADDITIONS`].

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_api::crds::{crds, document};

/// Fields that are ours. Everything else that is not in the tables is a mistake.
const ADDITIONS: &[&str] = &[
    // Google's manifest for hot-swapping TPU slices sets it; Kueue's API does not know it (design: "our addition").
    "ClusterQueue\tspec.preemption.reclaimOutOfCohort\tobject\t\t",
    "ClusterQueue\tspec.preemption.reclaimOutOfCohort.enable\tboolean\t\t",
    "ClusterQueue\tspec.preemption.reclaimOutOfCohort.reclaimMoreThanNominalQuota\tboolean\t\t",
];

fn table(name: &str) -> BTreeSet<String> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let rows: BTreeSet<String> = text.lines().skip(1).map(str::to_owned).collect();
    assert!(!rows.is_empty(), "{name} is empty");
    rows
}

fn documents() -> Vec<Value> {
    crds().iter().map(document).collect()
}

fn versions(definition: &Value) -> &Vec<Value> {
    definition["spec"]["versions"].as_array().unwrap()
}

fn assert_same(expected: &BTreeSet<String>, actual: &BTreeSet<String>) {
    let missing: Vec<&String> = expected.difference(actual).collect();
    let unexpected: Vec<&String> = actual.difference(expected).collect();
    assert!(
        missing.is_empty() && unexpected.is_empty(),
        "missing:\n{missing:#?}\nunexpected:\n{unexpected:#?}"
    );
}

#[test]
fn kinds_are_those_of_the_table() {
    let mut rows = BTreeSet::new();
    for definition in documents() {
        let spec = &definition["spec"];
        for version in versions(&definition) {
            let join = |list: &Value| {
                list.as_array().map_or(String::new(), |items| {
                    items.iter().map(|i| i.as_str().unwrap()).collect::<Vec<_>>().join(",")
                })
            };
            let boolean = |b: &Value| if *b == Value::Bool(true) { "True" } else { "False" };
            let subresources = version["subresources"]
                .as_object()
                .map_or(String::new(), |s| s.keys().cloned().collect::<Vec<_>>().join(","));
            let deprecated = if version["deprecated"] == true {
                assert_eq!(version["deprecationWarning"], "This version is deprecated. Use v1beta2 instead.");
                "deprecated"
            } else {
                assert!(version["deprecationWarning"].is_null());
                ""
            };
            rows.insert(format!(
                "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{subresources}\t{deprecated}\t{}",
                spec["names"]["kind"].as_str().unwrap(),
                spec["names"]["plural"].as_str().unwrap(),
                join(&spec["names"]["shortNames"]),
                spec["scope"].as_str().unwrap(),
                version["name"].as_str().unwrap(),
                boolean(&version["served"]),
                boolean(&version["storage"]),
                join(&spec["names"]["categories"]),
            ));
        }
    }
    assert_same(&table("kinds.tsv"), &rows);
}

#[test]
fn columns_are_those_of_the_table() {
    let mut rows = BTreeSet::new();
    for definition in documents() {
        for version in versions(&definition) {
            for column in version["additionalPrinterColumns"].as_array().unwrap_or(&Vec::new()) {
                rows.insert(format!(
                    "{}\t{}\t{}\t{}\t{}\t{}\t{}",
                    definition["spec"]["names"]["kind"].as_str().unwrap(),
                    version["name"].as_str().unwrap(),
                    column["name"].as_str().unwrap(),
                    column["type"].as_str().unwrap(),
                    column["jsonPath"].as_str().unwrap(),
                    column["priority"].as_i64().unwrap_or(0),
                    column["format"].as_str().unwrap_or(""),
                ));
            }
        }
    }
    assert_same(&table("columns.tsv"), &rows);
}

#[test]
fn fields_of_v1beta1_are_those_of_the_table() {
    fields("v1beta1");
}

#[test]
fn fields_of_v1beta2_are_those_of_the_table() {
    fields("v1beta2");
}

fn fields(version: &str) {
    let mut expected = table(&format!("fields-{version}.tsv"));
    expected.extend(ADDITIONS.iter().map(|&row| row.to_owned()));
    let mut rows = BTreeSet::new();
    for definition in documents() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        let found = versions(&definition).iter().find(|v| v["name"] == version).unwrap();
        let root = &found["schema"]["openAPIV3Schema"];
        let top: BTreeMap<&String, &Value> = root["properties"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()))
            .collect();
        for (name, schema) in top {
            walk(kind, name, schema, required(root, name), &mut rows);
        }
    }
    assert_same(&expected, &rows);
}

fn required(parent: &Value, name: &str) -> bool {
    parent["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name))
}

fn walk(kind: &str, path: &str, schema: &Value, required_here: bool, rows: &mut BTreeSet<String>) {
    rows.insert(format!(
        "{kind}\t{path}\t{}\t{}\t{}",
        type_of(schema),
        if required_here { "required" } else { "" },
        constraints(schema)
    ));
    if path == "spec.podSets[].template" {
        return;
    }
    let (object, prefix) = if schema["type"] == "array" {
        (&schema["items"], format!("{path}[]"))
    } else {
        (schema, path.to_owned())
    };
    if let Some(properties) = object["properties"].as_object() {
        for (name, property) in properties {
            walk(kind, &format!("{prefix}.{name}"), property, required(object, name), rows);
        }
    }
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "int-or-string".to_owned();
    }
    let name = schema["type"].as_str().unwrap_or("untyped");
    match name {
        "array" => format!("array<{}>", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map<{}>", type_of(&schema["additionalProperties"]))
        }
        _ => match schema["format"].as_str() {
            Some(format) => format!("{name}({format})"),
            None => name.to_owned(),
        },
    }
}

fn constraints(schema: &Value) -> String {
    const KEYS: [&str; 14] = [
        "default",
        "enum",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
    ];
    let mut parts = Vec::new();
    for key in KEYS {
        if let Some(value) = schema.get(key) {
            parts.push(format!("{key}={}", flow(value)));
        }
    }
    if schema["type"] == "array" {
        for key in ["minimum", "minLength", "maxLength", "pattern"] {
            if let Some(value) = schema["items"].get(key)
                && schema["items"]["type"] != "object"
            {
                parts.push(format!("items.{key}={}", flow(value)));
            }
        }
    }
    parts.join("; ")
}

/// A value as the tables write it: YAML in flow style, where only strings that would read as something else are quoted.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() || text == "True" || text == "False" => {
            format!("'{text}'")
        }
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => format!(
            "{{{}}}",
            map.iter().map(|(key, value)| format!("{key}: {}", flow(value))).collect::<Vec<_>>().join(", ")
        ),
        other => other.to_string(),
    }
}

/// `kubectl apply` keeps what it applied in an annotation, and annotations are bounded.
#[test]
fn definitions_fit_into_the_annotation_of_kubectl_apply() {
    for definition in documents() {
        let size = definition.to_string().len();
        assert!(size < 262_144, "{}: {size}", definition["metadata"]["name"]);
    }
}

#[test]
fn schemas_are_structural() {
    fn visit(path: &str, schema: &Value) {
        let map = schema.as_object().unwrap_or_else(|| panic!("{path}: not an object: {schema}"));
        for forbidden in ["nullable", "oneOf", "allOf", "not", "$ref", "uniqueItems"] {
            assert!(!map.contains_key(forbidden), "{path}: {forbidden}");
        }
        if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            assert!(!map.contains_key("type"), "{path}: typed");
            return;
        }
        assert!(!map.contains_key("anyOf"), "{path}: anyOf");
        assert!(map["type"].is_string(), "{path}: type is {}", map["type"]);
        for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            visit(&format!("{path}.{name}"), property);
        }
        for child in ["items", "additionalProperties"] {
            if let Some(child) = map.get(child) {
                visit(&format!("{path}[]"), child);
            }
        }
    }
    for definition in documents() {
        for version in versions(&definition) {
            let path = format!("{} {}", definition["metadata"]["name"], version["name"]);
            visit(&path, &version["schema"]["openAPIV3Schema"]);
        }
    }
}

#[test]
fn pod_templates_keep_labels_and_annotations_and_default_the_protocol() {
    let definitions = documents();
    let workload = definitions.iter().find(|d| d["spec"]["names"]["kind"] == "Workload").unwrap();
    for version in versions(workload) {
        let template = version
            .pointer("/schema/openAPIV3Schema/properties/spec/properties/podSets/items/properties/template")
            .unwrap();
        let metadata: Vec<&String> =
            template["properties"]["metadata"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(metadata, ["annotations", "labels"]);
        let spec = &template["properties"]["spec"]["properties"];
        for containers in ["containers", "initContainers", "ephemeralContainers"] {
            let container = &spec[containers]["items"]["properties"];
            assert_eq!(container["ports"]["items"]["properties"]["protocol"]["default"], "TCP");
            let limit = &container["resources"]["properties"]["limits"]["additionalProperties"];
            assert!(limit["pattern"].is_string(), "limits are quantities");
            let port = &container["livenessProbe"]["properties"]["httpGet"]["properties"]["port"];
            assert_eq!(port["x-kubernetes-int-or-string"], true);
            assert!(port["pattern"].is_null(), "ports may be names");
        }
        assert!(!spec.to_string().contains("\"description\":\""));
    }
}

#[test]
fn conversion_is_by_webhook_where_the_shapes_differ() {
    let webhook: BTreeSet<String> = documents()
        .iter()
        .filter(|d| d["spec"]["conversion"]["strategy"] == "Webhook")
        .map(|d| d["spec"]["names"]["kind"].as_str().unwrap().to_owned())
        .collect();
    let expected = ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"];
    assert_same(&expected.map(str::to_owned).into(), &webhook);
    for definition in documents() {
        let conversion = &definition["spec"]["conversion"];
        if !conversion.is_null() {
            let webhook = &conversion["webhook"];
            assert_eq!(webhook["conversionReviewVersions"][0], "v1");
            assert_eq!(webhook["clientConfig"]["service"]["path"], "/convert");
            assert!(webhook["clientConfig"]["caBundle"].is_null());
        }
    }
}

#[test]
fn workloads_can_be_selected_by_their_cluster_queue() {
    for definition in documents() {
        for version in versions(&definition) {
            let fields = &version["selectableFields"];
            if definition["spec"]["names"]["kind"] == "Workload" && version["name"] == "v1beta2" {
                assert_eq!(fields[0]["jsonPath"], ".status.admission.clusterQueue");
            } else {
                assert!(fields.is_null());
            }
        }
    }
}

/// Every description below a value, with the column texts of `kubectl get`.
fn descriptions<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| descriptions(item, found)),
        Value::Object(map) => {
            found.extend(map.get("description").and_then(Value::as_str));
            map.values().for_each(|item| descriptions(item, found));
        }
        _ => {}
    }
}

#[test]
fn kubectl_explain_shows_nothing_internal() {
    for definition in documents() {
        let mut found = Vec::new();
        descriptions(&definition, &mut found);
        assert!(!found.is_empty());
        for text in found {
            let internal = ["(reference", "docs/reference", "crates/", "crate::", "[`"]
                .iter()
                .any(|sign| text.contains(sign));
            assert!(!internal, "{}: {text}", definition["metadata"]["name"]);
        }
    }
}

/// The rule that taints have known effects is one of flavors; what a status of the older version repeats of them has none.
#[test]
fn taints_in_the_status_of_an_older_local_queue_have_no_rule() {
    let schema = |kind: &str, version: &str| {
        let all = documents();
        let definition = all.iter().find(|definition| definition["spec"]["names"]["kind"] == kind).unwrap();
        let of = versions(definition).iter().find(|one| one["name"] == version).unwrap();
        of["schema"]["openAPIV3Schema"]["properties"].clone()
    };
    let flavor = &schema("ResourceFlavor", "v1beta1")["spec"]["properties"]["nodeTaints"];
    assert!(flavor["x-kubernetes-validations"].is_array(), "{flavor}");
    let flavors = &schema("LocalQueue", "v1beta1")["status"]["properties"]["flavors"];
    let taints = &flavors["items"]["properties"]["nodeTaints"];
    assert_eq!(taints["type"], "array", "{taints}");
    assert!(!taints.to_string().contains("x-kubernetes-validations"), "{taints}");
}
