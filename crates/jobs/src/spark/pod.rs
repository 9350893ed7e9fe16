//! The pods of a SparkApplication, as the Spark operator makes them: the user's template with the content of its other fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sluice_quantity::Quantity;

use crate::object::int;
use crate::pod_group::path_of;

/// The driver or the executors.
#[derive(Clone, Copy)]
pub(super) struct Role {
    /// The name of the pod set, and of the field of the spec.
    pub name: &'static str,
    /// That field as a JSON pointer.
    pub pointer: &'static str,
    /// Spark's container: the first of these names that a template has, else its first container.
    containers: &'static [&'static str],
}

/// Both, in the order of their pod sets.
pub(super) const ROLES: [Role; 2] = [
    Role { name: "driver", pointer: "/spec/driver", containers: &["spark-kubernetes-driver"] },
    Role {
        name: "executor",
        pointer: "/spec/executor",
        containers: &["spark-kubernetes-executor", "executor"],
    },
];

/// Executors that Spark makes if nothing says how many.
const DEFAULT_EXECUTORS: i32 = 2;
/// The prefix of volumes that Spark mounts.
const LOCAL_VOLUMES: &str = "spark-local-dir-";

impl Role {
    /// Its own part of the spec.
    pub fn own(self, object: &Value) -> &Value {
        &object["spec"][self.name]
    }

    /// Its pods.
    pub fn count(self, object: &Value) -> i32 {
        if self.name == ROLES[0].name { 1 } else { executors(object) }
    }
}

/// How many executors there will be. The operator's own webhook fills the number in, unless Spark's configuration has it.
pub(super) fn executors(object: &Value) -> i32 {
    let given = int(&object["spec"]["executor"]["instances"]);
    let configured = || configured_executors(object)?.trim().parse().ok();
    given.or_else(configured).unwrap_or(DEFAULT_EXECUTORS).max(0)
}

/// Their number in Spark's configuration, which counts where the field has none.
pub(super) fn configured_executors(object: &Value) -> Option<&str> {
    object["spec"]["sparkConf"]["spark.executor.instances"].as_str()
}

/// The name of the driver's pod.
pub(super) fn driver_name(object: &Value) -> String {
    let spec = &object["spec"];
    let given = [&spec["driver"]["podName"], &spec["sparkConf"]["spark.kubernetes.driver.pod.name"]];
    let given = given.into_iter().filter_map(Value::as_str).find(|name| !name.is_empty());
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    given.map_or_else(|| format!("{name}-driver"), str::to_owned)
}

/// The pod template of a role, or why there is none.
pub(super) fn template(object: &Value, role: Role) -> Result<Value, String> {
    let (own, path) = (role.own(object), path_of(role.pointer));
    let mut template = Map::new();
    match &own["template"] {
        Value::Null => {}
        Value::Object(fields) => template.clone_from(fields),
        _ => return Err(format!("{path}.template: must be an object")),
    }
    let in_template = format!("{path}.template");
    {
        let metadata = object_in(&mut template, "metadata", &in_template)?;
        for field in ["labels", "annotations"] {
            add_keys(metadata, field, &own[field], &path)?;
        }
    }
    let spec = object_in(&mut template, "spec", &in_template)?;
    let in_spec = format!("{in_template}.spec");
    scheduling(spec, &object["spec"], own, &path)?;
    let containers = list_in(spec, "containers", &in_spec)?;
    if containers.is_empty() {
        containers.push(json!({"name": role.containers[0]}));
    }
    let named = |name: &&str| containers.iter().position(|container| container["name"] == **name);
    let spark = role.containers.iter().find_map(named).unwrap_or(0);
    let Some(container) = containers[spark].as_object_mut() else {
        return Err(format!("{in_spec}.containers[{spark}]: must be an object"));
    };
    resources(container, own, &path)?;
    let volumes = mounted(container, &object["spec"]["volumes"], &own["volumeMounts"], &in_spec)?;
    add_unknown(containers, &own["sidecars"]);
    if own["initContainers"].is_array() {
        add_unknown(list_in(spec, "initContainers", &in_spec)?, &own["initContainers"]);
    }
    if !volumes.is_empty() {
        list_in(spec, "volumes", &in_spec)?.extend(volumes);
    }
    Ok(Value::Object(template))
}

/// Where the pods may go, and before which others.
fn scheduling(pod: &mut Map<String, Value>, spec: &Value, own: &Value, path: &str) -> Result<(), String> {
    add_keys(pod, "nodeSelector", &spec["nodeSelector"], "spec")?;
    add_keys(pod, "nodeSelector", &own["nodeSelector"], path)?;
    if let Some(tolerations) = own["tolerations"].as_array().filter(|list| !list.is_empty()) {
        let all = list_in(pod, "tolerations", &format!("{path}.template.spec"))?;
        for toleration in tolerations {
            if !all.contains(toleration) {
                all.push(toleration.clone());
            }
        }
    }
    if !own["affinity"].is_null() {
        pod.insert("affinity".to_owned(), own["affinity"].clone());
    }
    if let Some(class) = own["priorityClassName"].as_str().filter(|name| !name.is_empty()) {
        pod.insert("priorityClassName".to_owned(), json!(class));
        pod.remove("priority");
        pod.remove("preemptionPolicy");
    }
    Ok(())
}

/// The requests of Spark's container, if the object has them.
fn resources(container: &mut Map<String, Value>, own: &Value, path: &str) -> Result<(), String> {
    let name_of_gpu = own["gpu"]["name"].as_str().filter(|name| !name.is_empty());
    let gpus = own["gpu"]["quantity"].as_i64().filter(|number| *number > 0);
    let gpu = name_of_gpu.zip(gpus).map(|(name, number)| ("limits", name, number.to_string()));
    let fields = [
        ("requests", "cpu", "coreRequest", false),
        ("limits", "cpu", "coreLimit", false),
        ("requests", "memory", "memory", true),
        ("limits", "memory", "memoryLimit", true),
    ];
    let mut amounts = Vec::from_iter(gpu);
    for (side, resource, field, is_memory) in fields {
        let text = match &own[field] {
            Value::Null => continue,
            Value::String(text) => text,
            other => return Err(format!("{path}.{field}: {other}: must be a string")),
        };
        let amount = if is_memory { memory(text) } else { text.clone() };
        match Quantity::parse(&amount) {
            Ok(amount) if amount.is_negative() => {
                return Err(format!("{path}.{field}: {text:?}: must not be negative"));
            }
            Ok(_) => {}
            Err(_) => return Err(format!("{path}.{field}: {text:?} is not a quantity")),
        }
        amounts.push((side, resource, amount));
    }
    for (side, resource, amount) in amounts {
        let all = object_in(container, "resources", &format!("{path}.template"))?;
        object_in(all, side, &format!("{path}.template"))?.insert(resource.to_owned(), json!(amount));
    }
    Ok(())
}

/// An amount of memory in Java's form (`512m`, a number for MiB) in Kubernetes' form. Others stay unchanged.
fn memory(text: &str) -> String {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &lower[digits.len()..] {
        "b" => "",
        "k" | "kb" => "Ki",
        "" | "m" | "mb" => "Mi",
        "g" | "gb" => "Gi",
        "t" | "tb" => "Ti",
        "p" | "pb" => "Pi",
        _ => return text.to_owned(),
    };
    format!("{digits}{unit}")
}

/// Mounts volumes into a container; the volumes that the pod needs for it.
fn mounted(
    container: &mut Map<String, Value>,
    volumes: &Value,
    mounts: &Value,
    path: &str,
) -> Result<Vec<Value>, String> {
    let volumes = volumes.as_array().into_iter().flatten();
    // The last of a name counts.
    let volumes: BTreeMap<&str, &Value> =
        volumes.filter_map(|volume| Some((volume["name"].as_str()?, volume))).collect();
    let (mut needed, mut names) = (Vec::new(), BTreeSet::new());
    for mount in mounts.as_array().into_iter().flatten() {
        let Some(name) = mount["name"].as_str().filter(|name| !name.starts_with(LOCAL_VOLUMES)) else {
            continue;
        };
        let Some(volume) = volumes.get(name) else { continue };
        if names.insert(name) {
            needed.push((*volume).clone());
        }
        list_in(container, "volumeMounts", path)?.push(mount.clone());
    }
    Ok(needed)
}

/// Adds the containers without a namesake of the same image.
fn add_unknown(containers: &mut Vec<Value>, more: &Value) {
    let key = |container: &Value| ["name", "image"].map(|key| container[key].to_string());
    let mut known: BTreeSet<_> = containers.iter().map(key).collect();
    for one in more.as_array().into_iter().flatten() {
        if known.insert(key(one)) {
            containers.push(one.clone());
        }
    }
}

/// The object in a field; made where there is none.
fn object_in<'a>(
    parent: &'a mut Map<String, Value>,
    field: &str,
    path: &str,
) -> Result<&'a mut Map<String, Value>, String> {
    let value = parent.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or_else(|| format!("{path}.{field}: must be an object"))
}

/// The list in a field; made where there is none.
fn list_in<'a>(
    parent: &'a mut Map<String, Value>,
    field: &str,
    path: &str,
) -> Result<&'a mut Vec<Value>, String> {
    let value = parent.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or_else(|| format!("{path}.{field}: must be a list"))
}

/// Adds the keys of a map to the one in a field.
fn add_keys(parent: &mut Map<String, Value>, field: &str, more: &Value, path: &str) -> Result<(), String> {
    let more = match more {
        Value::Null => return Ok(()),
        Value::Object(more) => more,
        _ => return Err(format!("{path}.{field}: must be an object")),
    };
    if !more.is_empty() {
        let all = object_in(parent, field, &format!("{path}.template"))?;
        all.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    Ok(())
}

/// The merge patch of a map to all of `to`, whatever part of it exists.
pub(super) fn all_keys(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Value {
    if to.is_empty() {
        return Value::Null;
    }
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let there = to.iter().map(|(key, value)| (key.clone(), json!(value)));
    Value::Object(gone.chain(there).collect())
}

/// The merge patch of a map from one to the other. Unchanged keys may come from elsewhere.
pub(super) fn changed_keys(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Value {
    let Value::Object(mut keys) = all_keys(from, to) else { return Value::Null };
    keys.retain(|key, _| from.get(key) != to.get(key));
    Value::Object(keys)
}

/// The merge patch of a list.
pub(super) fn list<T: serde::Serialize>(to: &[T]) -> Value {
    if to.is_empty() { Value::Null } else { json!(to) }
}

/// The merge patch of a template to these fields of its spec. A template without containers is none.
pub(super) fn with_gates(role: &str, exists: bool, mut spec: Value) -> Value {
    if let Some(role) = ROLES.iter().find(|one| one.name == role).filter(|_| !exists) {
        spec["containers"] = json!([{"name": role.containers[0]}]);
    }
    json!({"spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_java_writes_it() {
        let said = [
            ("512m", "512Mi"),
            ("512M", "512Mi"),
            (" 4096B", "4096"),
            ("2gb", "2Gi"),
            ("1024", "1024Mi"),
            ("3K", "3Ki"),
            ("1T", "1Ti"),
            ("1p", "1Pi"),
        ];
        for (java, kubernetes) in said {
            assert_eq!(memory(java), kubernetes, "{java}");
        }
        for other in ["1Gi", "x", "1.5e3q"] {
            assert_eq!(memory(other), other);
        }
    }
}
