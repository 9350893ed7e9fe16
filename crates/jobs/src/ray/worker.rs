//! The pods of workers, as KubeRay makes them: each waits in an init container until the head answers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cluster::{amount, container, image};

/// The init container. Where KubeRay is configured to add none, users add one of this name.
const WAITS: &str = "wait-gcs-ready";
/// What it requests.
const REQUESTS: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "256Mi")];

/// The template of workers, with the init container where their pods request more because of that: what else there is is the same with Kueue. It
/// counts in the resources that the workers name: a queue without quota for memory still takes those that name none.
pub(super) fn waiting(template: &Value) -> Cow<'_, Value> {
    let spec = &template["spec"];
    let has_its_own = list(spec, "initContainers").any(|one| one["name"] == WAITS);
    // What cannot be read is reported as it is.
    let is_sound =
        spec["containers"].is_array() && matches!(spec["initContainers"], Value::Array(_) | Value::Null);
    let named: BTreeMap<_, _> =
        REQUESTS.into_iter().filter(|(resource, _)| is_sound && requests(spec, resource) > 0).collect();
    if has_its_own || named.iter().all(|(resource, least)| has_room(spec, resource, least)) {
        return Cow::Borrowed(template);
    }
    let amounts = json!(named);
    let waits =
        container(WAITS, image(template).as_deref(), &json!({"requests": amounts, "limits": amounts}));
    let mut with = template.clone();
    match &mut with["spec"]["initContainers"] {
        Value::Array(containers) => containers.push(waits),
        none => *none = json!([waits]),
    }
    Cow::Owned(with)
}

/// Whether a pod that needs this much of a resource after its other init containers requests no more than it does anyway.
fn has_room(spec: &Value, resource: &str, least: &str) -> bool {
    let (mut beside, mut before) = (0_i128, 0_i128);
    for container in list(spec, "initContainers") {
        let here = beside.saturating_add(requested(container, resource));
        before = before.max(here);
        if container["restartPolicy"] == "Always" {
            beside = here;
        }
    }
    let all = requests(spec, resource).saturating_add(beside);
    let least = amount(&json!(least)).map_or(0, |least| least.nano());
    // What a pod requests as a whole counts for all of its containers.
    beside.saturating_add(least) <= all.max(before).max(requested(spec, resource))
}

/// What a container requests of a resource, or a pod as a whole.
fn requested(of: &Value, resource: &str) -> i128 {
    let given = |list: &str| amount(&of["resources"][list][resource]);
    given("requests").or_else(|| given("limits")).map_or(0, |amount| amount.nano())
}

/// What the containers of a pod request of a resource together, or the pod as a whole.
fn requests(spec: &Value, resource: &str) -> i128 {
    let all = list(spec, "containers").map(|container| requested(container, resource));
    all.fold(0, i128::saturating_add).max(requested(spec, resource))
}

fn list<'a>(spec: &'a Value, containers: &str) -> impl Iterator<Item = &'a Value> {
    spec[containers].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a pod asks for of processor and memory.
    fn asks(cpu: &str, memory: &str) -> Value {
        json!({"requests": {"cpu": cpu, "memory": memory}})
    }

    fn waits(spec: Value) -> bool {
        let mut template = json!({});
        template["spec"] = spec;
        let counted = waiting(&template);
        let containers = counted["spec"]["initContainers"].as_array();
        let last = containers.and_then(|containers| containers.last()).cloned().unwrap_or_default();
        assert_eq!(matches!(counted, Cow::Owned(_)), last["name"] == WAITS && last["image"] == "ray");
        matches!(counted, Cow::Owned(_))
    }

    fn with(resources: &Value) -> Value {
        json!({"containers": [{"name": "ray", "image": "ray", "resources": resources}]})
    }

    fn after(init: Value, resources: &Value) -> Value {
        let mut spec = with(resources);
        spec["initContainers"] = init;
        spec
    }

    #[test]
    fn what_waits_counts_where_a_pod_requests_more_because_of_it() {
        assert!(!waits(with(&Value::Null)), "it asks for nothing");
        assert!(!waits(with(&json!({"requests": {"cpu": "4"}}))), "for no memory");
        let template = json!({"spec": with(&json!({"requests": {"cpu": "100m"}}))});
        let resources = waiting(&template)["spec"]["initContainers"][0]["resources"]["requests"].clone();
        assert_eq!(resources, json!({"cpu": "200m"}));
        assert!(waits(with(&asks("199m", "1Gi"))) && waits(with(&asks("1", "255Mi"))));
        assert!(!waits(with(&asks("200m", "256Mi"))) && !waits(with(&asks("0.2", "268435456"))));
        assert!(!waits(with(&json!({"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}}))), "by its limit");
        let mut two = with(&asks("100m", "128Mi"));
        two["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "log", "resources": asks("100m", "128Mi")}));
        assert!(!waits(two), "both together");
        let mut whole = with(&Value::Null);
        whole["resources"] = asks("1", "1Gi");
        assert!(!waits(whole), "the pod as a whole");
    }

    #[test]
    fn it_waits_after_the_init_containers_of_the_user_and_beside_those_that_continue() {
        let first = json!([{"name": "load", "resources": asks("2", "2Gi")}]);
        assert!(!waits(after(first.clone(), &Value::Null)), "what it needs is free again");
        let mut beside = first;
        beside[0]["restartPolicy"] = json!("Always");
        assert!(
            waits(after(beside.clone(), &asks("100m", "1Gi"))) && !waits(after(beside, &asks("200m", "1Gi")))
        );
        let own = json!([{"name": WAITS, "image": "ray", "resources": asks("1m", "1Mi")}]);
        let template = json!({"spec": after(own, &Value::Null)});
        assert!(matches!(waiting(&template), Cow::Borrowed(_)), "KubeRay adds none");
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_is() {
        for template in [json!(null), json!({"spec": 5}), json!({"spec": {"initContainers": 5}}), json!([])] {
            assert_eq!(*waiting(&template), template);
        }
    }
}
