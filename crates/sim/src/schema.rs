//! What the API server and kubectl refuse before any webhook: unknown fields, wrong types, values out of bounds.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::api::batch::v1::{Job, JobTemplateSpec};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node, Pod, PodTemplateSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::{GROUP, crds, defaults};
use sluice_engine::Kind;
use sluice_jobs::Schema;
use sluice_quantity::Quantity;

use crate::json::{self, text};
use crate::object::FieldError;

/// Most errors of one object that are reported.
const MOST: usize = 10;
/// Most field names that are listed for an unknown field.
const MOST_OFFERED: usize = 12;

/// Schemas by kind and version of Kueue's group.
type Schemas = BTreeMap<(String, String), Value>;

/// The schema errors of a document, with their fields.
pub(crate) fn check(kind: Kind, object: &Value) -> Vec<FieldError> {
    let mut wrong = Vec::new();
    typed::<ObjectMeta>(&object["metadata"], "metadata", &mut wrong);
    if !wrong.is_empty() {
        return wrong;
    }
    match kind {
        kind if kind.group() == GROUP => {
            let version = text(&object["apiVersion"]).rsplit('/').next().unwrap_or_default();
            // The conversion reports a version that does not exist.
            if let Some(schema) = schemas().get(&(kind.as_str().to_owned(), version.to_owned())) {
                fields(schema, &filled(kind, object), "", &mut wrong);
            }
        }
        Kind::Job(kind) => {
            for (pointer, schema) in sluice_jobs::schemas(kind, object) {
                let part = object.pointer(&pointer).unwrap_or(&Value::Null);
                let path = sluice_jobs::path_of(&pointer);
                match schema {
                    Schema::Job => typed::<Job>(part, &path, &mut wrong),
                    Schema::JobTemplate => typed::<JobTemplateSpec>(part, &path, &mut wrong),
                    Schema::PodTemplate => typed::<PodTemplateSpec>(part, &path, &mut wrong),
                    Schema::Pod => typed::<Pod>(part, &path, &mut wrong),
                }
                match schema {
                    Schema::Job | Schema::JobTemplate => {
                        counts(&part["spec"], &join(&path, "spec"), &mut wrong);
                        pods(&part["spec"]["template"], &join(&path, "spec.template"), &mut wrong);
                    }
                    Schema::PodTemplate | Schema::Pod => pods(part, &path, &mut wrong),
                }
            }
        }
        Kind::Node => typed::<Node>(object, "", &mut wrong),
        Kind::Namespace => typed::<Namespace>(object, "", &mut wrong),
        Kind::LimitRange => typed::<LimitRange>(object, "", &mut wrong),
        Kind::RuntimeClass => typed::<RuntimeClass>(object, "", &mut wrong),
        Kind::PriorityClass => typed::<PriorityClass>(object, "", &mut wrong),
        _ => {}
    }
    wrong.truncate(MOST);
    wrong
}

/// As the schema sees it: the webhook's defaults come before.
fn filled(kind: Kind, object: &Value) -> Value {
    let mut object = object.clone();
    if matches!(kind, Kind::ClusterQueue | Kind::Cohort) {
        let defaults = defaults::covered_resources(&object);
        let defaults: Vec<_> = defaults.iter().filter_map(|o| serde_json::to_value(o).ok()).collect();
        // The schema reports a path that does not exist.
        let _ = json::apply(&mut object, &defaults);
    }
    object
}

fn schemas() -> &'static Schemas {
    static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let mut all = Schemas::new();
        for crd in crds::crds() {
            for version in crds::document(&crd)["spec"]["versions"].as_array().into_iter().flatten() {
                let key = (crd.spec.names.kind.clone(), text(&version["name"]).to_owned());
                all.insert(key, version["schema"]["openAPIV3Schema"].clone());
            }
        }
        all
    })
}

/// The pods of a template, by the schema of a Workload's pods.
fn pods(pods: &Value, path: &str, wrong: &mut Vec<FieldError>) {
    let workload = schemas().get(&("Workload".to_owned(), "v1beta2".to_owned()));
    let template = workload.and_then(|schema| {
        schema.pointer("/properties/spec/properties/podSets/items/properties/template/properties/spec")
    });
    // Errors that typed documents report already are not reported twice.
    if let Some(schema) = template.filter(|_| wrong.is_empty()) {
        fields(schema, &pods["spec"], &join(path, "spec"), wrong);
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in pods["spec"][list].as_array().into_iter().flatten().enumerate() {
            for amounts in ["requests", "limits"] {
                for (resource, amount) in container["resources"][amounts].as_object().into_iter().flatten() {
                    let written = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
                    if Quantity::parse(&written).is_ok_and(|quantity| quantity.milli_value() < 0) {
                        let at = format!("spec.{list}[{index}].resources.{amounts}.{resource}");
                        let at = join(path, &at);
                        wrong.push(FieldError::new(at, format!("expected at least 0, found {written}")));
                    }
                }
            }
        }
    }
}

/// The numbers of a Job's spec.
fn counts(job: &Value, path: &str, wrong: &mut Vec<FieldError>) {
    for count in ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"] {
        if let Some(count_below) = job[count].as_i64().filter(|n| *n < 0) {
            wrong.push(FieldError::new(
                join(path, count),
                format!("expected at least 0, found {count_below}"),
            ));
        }
    }
}

/// Reads a document as a type of Kubernetes: wrong types, and fields that the type does not have.
fn typed<T: DeserializeOwned + Serialize>(value: &Value, at: &str, wrong: &mut Vec<FieldError>) {
    match serde_path_to_error::deserialize::<_, T>(value) {
        Err(error) => {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            wrong.push(FieldError::new(join(at, &path), error.inner().to_string()));
        }
        Ok(read) => {
            if let Ok(read) = serde_json::to_value(read) {
                unread(value, &read, at, wrong);
            }
        }
    }
}

/// Fields of a document that are not in what was read of it.
fn unread(value: &Value, read: &Value, path: &str, wrong: &mut Vec<FieldError>) {
    match (value, read) {
        (Value::Object(fields), Value::Object(known)) => {
            for (key, value) in fields {
                let empty =
                    value.is_null() || *value == serde_json::json!([]) || *value == serde_json::json!({});
                match known.get(key) {
                    Some(known) => unread(value, known, &join(path, key), wrong),
                    None if empty => {}
                    None => wrong.push(FieldError::new(join(path, key), "unknown field")),
                }
            }
        }
        (Value::Array(items), Value::Array(known)) => {
            for (index, (item, known)) in items.iter().zip(known).enumerate() {
                unread(item, known, &format!("{path}[{index}]"), wrong);
            }
        }
        _ => {}
    }
}

fn join(path: &str, key: &str) -> String {
    match (path, key) {
        (path, "") => path.to_owned(),
        ("", key) => key.to_owned(),
        (path, key) => format!("{path}.{key}"),
    }
}

/// Checks a value against a structural schema.
fn fields(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<FieldError>) {
    // Null is as good as absent; what controllers write is theirs; metadata is the same for all kinds.
    if value.is_null() || path == "metadata" || path == "status" {
        return;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return amount(schema, value, path, wrong);
    }
    let expected = text(&schema["type"]);
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    if !fits {
        let article = if matches!(expected, "object" | "array" | "integer") { "an" } else { "a" };
        return wrong.push(FieldError::new(path, format!("expected {article} {expected}, found {value}")));
    }
    bounds(schema, value, path, wrong);
    match value {
        Value::Object(map) => object(schema, map, path, wrong),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                fields(&schema["items"], item, &format!("{path}[{index}]"), wrong);
            }
        }
        _ => {}
    }
}

fn object(schema: &Value, map: &serde_json::Map<String, Value>, path: &str, wrong: &mut Vec<FieldError>) {
    for required in schema["required"].as_array().into_iter().flatten().map(text) {
        if map.get(required).is_none_or(Value::is_null) {
            wrong.push(FieldError::new(join(path, required), "expected a value: the field is required"));
        }
    }
    let known = schema["properties"].as_object();
    for (key, value) in map {
        let inner = join(path, key);
        if let Some(schema) = known.and_then(|known| known.get(key)) {
            fields(schema, value, &inner, wrong);
        } else if schema["additionalProperties"].is_object() {
            fields(&schema["additionalProperties"], value, &inner, wrong);
        } else if let Some(known) = known.filter(|_| schema["x-kubernetes-preserve-unknown-fields"] != true) {
            let names: Vec<_> = known.keys().take(MOST_OFFERED).map(String::as_str).collect();
            let more = if known.len() > MOST_OFFERED { ", …" } else { "" };
            let message = format!("unknown field, expected one of {}{more}", names.join(", "));
            wrong.push(FieldError::new(inner, message));
        }
    }
}

/// An integer or a string: a quantity, where a pattern says so.
fn amount(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<FieldError>) {
    let written = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            return wrong
                .push(FieldError::new(path, format!("expected a number or a string, found {other}")));
        }
    };
    if schema["pattern"].is_string() && Quantity::parse(&written).is_err() {
        wrong.push(FieldError::new(path, format!("expected a quantity like 4, 500m or 2Gi, found {value}")));
    }
}

fn bounds(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<FieldError>) {
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        wrong.push(FieldError::new(path, format!("expected one of {}, found {value}", allowed.join(", "))));
    }
    let (size, least, most) = match value {
        Value::String(text) => (text.chars().count().try_into().ok(), "minLength", "maxLength"),
        Value::Array(items) => (items.len().try_into().ok(), "minItems", "maxItems"),
        Value::Object(map) => (map.len().try_into().ok(), "minProperties", "maxProperties"),
        Value::Number(number) => (number.as_i64(), "minimum", "maximum"),
        _ => (None, "", ""),
    };
    let Some(size) = size else { return };
    let unit = match value {
        Value::String(_) => " characters",
        Value::Array(_) => " items",
        Value::Object(_) => " fields",
        _ => "",
    };
    if let Some(least) = schema[least].as_i64().filter(|least| size < *least) {
        wrong.push(FieldError::new(path, format!("expected at least {least}{unit}, found {size}")));
    }
    if let Some(most) = schema[most].as_i64().filter(|most| size > *most) {
        wrong.push(FieldError::new(path, format!("expected at most {most}{unit}, found {size}")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sluice_api::job::JobKind;

    fn mistakes(kind: Kind, object: &Value) -> Vec<String> {
        check(kind, object).into_iter().map(|w| format!("{}: {}", w.path, w.message)).collect()
    }

    #[test]
    fn a_queue_gets_its_typing_errors_types_and_bounds_with_their_path() {
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"},
            "spec": {
                "queueingStrategy": "Fifo", "preemtion": {}, "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": "cpu", "flavors": [
                    {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "lots"}, {"name": "memory"}]},
                ]}],
            },
        });
        let all = mistakes(Kind::ClusterQueue, &queue);
        for wanted in [
            "spec.preemtion: unknown field, expected one of ",
            "spec.queueingStrategy: expected one of \"StrictFIFO\", \"BestEffortFIFO\", found \"Fifo\"",
            "spec.resourceGroups[0].coveredResources: expected an array, found \"cpu\"",
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: expected a quantity like 4, 500m or 2Gi, found \"lots\"",
            "spec.resourceGroups[0].flavors[0].resources[1].nominalQuota: expected a value: the field is required",
        ] {
            assert!(all.iter().any(|line| line.starts_with(wanted)), "{wanted} is not in {all:#?}");
        }
    }

    #[test]
    fn jobs_and_jobsets_get_theirs() {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "imag": "i"}]});
        let job = |spec: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec});
        let kind = Kind::Job(JobKind::JOB);
        let all = mistakes(kind, &job(json!({"parallelism": "many", "template": {"spec": pod}})));
        assert!(
            all[0].starts_with("spec.parallelism: invalid type: string \"many\", expected i32"),
            "{all:?}"
        );
        let all = mistakes(kind, &job(json!({"paralelism": 1, "template": {"spec": pod}})));
        assert_eq!(
            all,
            ["spec.paralelism: unknown field", "spec.template.spec.containers[0].imag: unknown field"]
        );
        let all = mistakes(kind, &job(json!({"template": {"spec": {"restartPolicy": "Never"}}})));
        assert_eq!(all, ["spec.template.spec.containers: expected a value: the field is required"]);
        let greedy = json!({"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": -1}}}]});
        let all = mistakes(kind, &job(json!({"completions": -2, "template": {"spec": greedy}})));
        assert_eq!(
            all,
            [
                "spec.completions: expected at least 0, found -2",
                "spec.template.spec.containers[0].resources.requests.cpu: expected at least 0, found -1",
            ]
        );
        let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": {
            "replicatedJobs": [{"name": "w", "template": {"spec": {"completions": true, "template": {"spec": pod}}}}],
        }});
        let all = mistakes(Kind::Job(JobKind::JOB_SET), &set);
        assert!(all[0].starts_with("spec.replicatedJobs[0].template.spec.completions: "), "{all:?}");
    }
}
