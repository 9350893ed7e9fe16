//! The pods of an object, from the locations in its kind's descriptor.

use std::borrow::Cow;

use serde_json::Value;
use sluice_api::job::{CountAt, ExclusiveTopology, JobKind, JobPodSet, PartsAt, PodPlace, PodsAt};

use crate::object::{self, int};
use crate::pod_group::PodGroup;
use crate::topology;

/// The pods of an object, in the order of its pod sets, each with what describes them.
pub(crate) fn groups(kind: JobKind, object: &Value) -> Vec<(PodGroup<'_>, &'static PodsAt)> {
    let mut groups = Vec::new();
    for pods in kind.integration().pods {
        let group = |name, said, pointer| (group(kind, pods, object, (name, said, pointer)), pods);
        match pods.place {
            PodPlace::Object(name) => groups.push(group(name, object, pods.template.to_owned())),
            PodPlace::Types { map, types } => {
                let map = value(object, map).as_object();
                let there = types.iter().filter_map(|name| Some((*name, map?.get(*name)?)));
                groups.extend(there.map(|(name, said)| group(name, said, pods.template_at(name))));
            }
            PodPlace::Items { list, name } => {
                let items = value(object, list).as_array().into_iter().flatten().enumerate();
                let of = |(at, item): (usize, _)| {
                    let item: &Value = item;
                    group(item[name].as_str().unwrap_or_default(), item, pods.template_at(at))
                };
                groups.extend(items.map(of));
            }
        }
    }
    groups
}

/// The same as pod sets. `generated_labels` stay out of the Workload.
pub(crate) fn pod_sets(
    kind: JobKind,
    object: &Value,
    generated_labels: &[&str],
) -> Result<Vec<JobPodSet>, String> {
    groups(kind, object).iter().map(|(group, pods)| pod_set(group, pods, generated_labels)).collect()
}

/// A group as a pod set, with the numbers that its pods have.
pub(crate) fn pod_set(
    group: &PodGroup<'_>,
    pods: &PodsAt,
    generated_labels: &[&str],
) -> Result<JobPodSet, String> {
    let mut pod_set = group.pod_set(generated_labels)?;
    topology::number(&mut pod_set, pods.index);
    if let Some(parts) = pods.parts {
        pod_set.parts = group.replicas.max(1);
        let exclusive = |key: &str| ExclusiveTopology { key: key.to_owned(), replicas: group.replicas };
        pod_set.exclusive_topology = group.exclusive.map(exclusive);
        // Each pod has an index in its part, and each part an index among the parts.
        topology::number_groups(&mut pod_set, Some(parts.index), Some(group.replicas));
    }
    Ok(pod_set)
}

/// The value at a JSON pointer; null where there is none.
pub(crate) fn value<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}

fn group<'a>(
    kind: JobKind,
    pods: &PodsAt,
    object: &'a Value,
    (name, said, pointer): (&'a str, &'a Value, String),
) -> PodGroup<'a> {
    let number = |pointer: &str| int(value(said, pointer)).unwrap_or(1).max(0);
    let [parallel, completions] = match pods.count {
        CountAt::One => [1; 2],
        CountAt::Field(field) => [number(field); 2],
        CountAt::OfJob(spec) => {
            let spec = value(said, spec);
            let parallel = object::pods_of_job_spec(spec);
            [parallel, int(&spec["completions"]).unwrap_or(parallel)]
        }
        CountAt::ByAdapter => [0; 2],
    };
    PodGroup {
        name: Cow::Borrowed(name),
        pointer,
        template: Cow::Borrowed(value(said, pods.template)),
        replicas: pods.parts.map_or(1, |parts| number(parts.count)),
        parallel,
        completions,
        exclusive: pods.parts.and_then(|parts| exclusive(kind, &parts, said, object)),
    }
}

/// One group of nodes per part: the annotation of its template, else that of the object.
fn exclusive<'a>(kind: JobKind, parts: &PartsAt, said: &'a Value, object: &'a Value) -> Option<&'a str> {
    let key = kind.integration().exclusive_topology?;
    let of = |template: &'a Value| template["metadata"]["annotations"][key].as_str();
    of(value(said, parts.template)).or_else(|| of(object))
}
