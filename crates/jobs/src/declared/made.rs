//! Pod templates that expressions make.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The longest name of a container, without the number that makes it the only one of its name.
const LONGEST: usize = 57;
/// The image of a container that stands for what a pod requests beside its containers.
const NO_IMAGE: &str = "none";

/// The template with container names that a pod may have, each once, and an image for each: a PodTemplate is made of it where nodes are provisioned
/// for the job, and the API server refuses others. Containers keep their names before init containers do. What cannot be read stays as it is.
pub(super) fn sound(mut template: Value) -> Value {
    let mut taken = BTreeSet::new();
    for list in ["/spec/containers", "/spec/initContainers"] {
        let containers = template.pointer_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            name(container, &mut taken);
            if matches!(container.get("image"), None | Some(Value::Null)) {
                container.insert("image".to_owned(), NO_IMAGE.into());
            }
        }
    }
    template
}

fn name(container: &mut Map<String, Value>, taken: &mut BTreeSet<String>) {
    let Some(Value::String(wanted)) = container.get("name") else { return };
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = wanted.chars().map(allowed).collect();
    let label = label.trim_matches('-');
    let label = label.get(..LONGEST).unwrap_or(label).trim_end_matches('-');
    let label = if label.is_empty() { "container" } else { label };
    let mut name = label.to_owned();
    let mut number = 2;
    while !taken.insert(name.clone()) {
        name = format!("{label}-{number}");
        number += 1;
    }
    container.insert("name".to_owned(), name.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_have_names_and_images_that_a_pod_may_have() {
        let long = "a".repeat(80);
        let template = json!({"spec": {
            "initContainers": [{"name": "main", "image": "i"}, {"name": "Build_A"}, {"name": "build-a"}, {"name": long}, {"name": "--"}],
            "containers": [{"name": "main", "image": "i"}],
        }});
        let made = sound(template);
        let names = |list: &str| -> Vec<String> {
            let all = made["spec"][list].as_array().unwrap().iter();
            all.map(|container| container["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("containers"), ["main"]);
        assert_eq!(
            names("initContainers"),
            ["main-2", "build-a", "build-a-2", &long[..LONGEST], "container"]
        );
        assert_eq!(made["spec"]["initContainers"][1]["image"], NO_IMAGE);
        assert_eq!(sound(made.clone()), made);
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_is() {
        for odd in [json!(5), json!({"spec": {"containers": 5}}), json!({"spec": {"containers": [5]}})] {
            assert_eq!(sound(odd.clone()), odd);
        }
    }
}
