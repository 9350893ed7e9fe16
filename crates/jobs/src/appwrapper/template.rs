//! The pod templates in an AppWrapper's components. The API server never sees them as such: its defaults for containers are applied here, so that a
//! Workload that Kueue made for the same AppWrapper is recognized.

use serde_json::{Map, Value, json};

/// The fields of a container that a Workload keeps: those that matter to a queue.
const KEPT: [&str; 10] = [
    "name",
    "image",
    "command",
    "args",
    "resources",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    RESTARTS,
];

/// Ours: with it an init container continues beside the others, and uses quota as they do.
const RESTARTS: &str = "restartPolicy";

/// The template as it goes into the Workload.
pub(super) fn reduced(template: &Value) -> Value {
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        if let Some(map) = template["metadata"][key].as_object() {
            let texts = map.iter().filter(|(_, value)| value.is_string());
            let texts: Map<_, _> = texts.map(|(key, value)| (key.clone(), value.clone())).collect();
            metadata.insert(key.to_owned(), Value::Object(texts));
        }
    }
    let mut spec = template["spec"].clone();
    for key in ["initContainers", "containers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            reduce(container);
        }
    }
    json!({"metadata": metadata, "spec": spec})
}

/// The template as AppWrapper's library has it: without what is ours, and without what the controller of the wrapped object adds.
pub(super) fn of_kueue(bare: &Value) -> Value {
    let mut theirs = reduced(bare);
    for key in ["initContainers", "containers"] {
        let containers = theirs["spec"].get_mut(key).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove(RESTARTS);
        }
    }
    theirs
}

fn reduce(container: &mut Map<String, Value>) {
    container.retain(|key, _| KEPT.contains(&key.as_str()));
    if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
        resources.retain(|key, _| matches!(key.as_str(), "requests" | "limits"));
    }
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let pull = if is_latest(image) { "Always" } else { "IfNotPresent" };
    for (key, value) in [
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("imagePullPolicy", pull),
    ] {
        let given = container.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !given && container.get(key).is_none_or(|value| value.is_null() || value == "") {
            container.insert(key.to_owned(), value.into());
        }
    }
}

/// Whether an image is that of the tag `latest`, which is meant where neither tag nor digest is named.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none() && !image.is_empty(),
    }
}

/// The template with what admission adds, as the controller of AppWrappers makes it.
pub(super) fn with(template: &Value, info: &Value) -> Value {
    let mut template = template.clone();
    let of = |section: &str| if section == "nodeSelector" { "spec" } else { "metadata" };
    for field in ["labels", "annotations", "nodeSelector"] {
        let Some(adds) = info[field].as_object().filter(|adds| !adds.is_empty()) else { continue };
        if let Some(map) = place(&mut template, of(field), field) {
            map.extend(adds.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    for field in ["tolerations", "schedulingGates"] {
        let Some(adds) = info[field].as_array().filter(|adds| !adds.is_empty()) else { continue };
        if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
            let list = spec.entry(field).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.extend(adds.iter().cloned());
            }
        }
    }
    template
}

/// The map in a section of a template; made if it is missing.
fn place<'a>(template: &'a mut Value, section: &str, field: &str) -> Option<&'a mut Map<String, Value>> {
    let section = template.as_object_mut()?.entry(section).or_insert_with(|| json!({}));
    section.as_object_mut()?.entry(field).or_insert_with(|| json!({})).as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_tag_and_digest_is_the_latest() {
        for latest in ["a", "a:latest", "reg:5000/a", "reg:5000/b/a:latest"] {
            assert!(is_latest(latest), "{latest}");
        }
        for other in ["", "a:1", "a@sha256:0", "reg:5000/a:1", "a:1@sha256:0"] {
            assert!(!is_latest(other), "{other}");
        }
    }
}
