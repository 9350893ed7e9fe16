//! The requests of a wrapped object according to its own kind's adapter: its controller makes these pods, whatever an AppWrapper declares.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::job::{JobKind, WrappedPods};

use super::pods::{self, Pods};
use super::{Found, path, template, templates};
use crate::{object, registry};

/// The pods of a template, as the kind has them.
pub(super) struct OwnPods<'a> {
    /// Where the template is: a JSON pointer from the wrapped object on.
    pub pointer: String,
    /// The template, with what the kind's controller adds.
    pub template: Cow<'a, Value>,
    /// Its pods.
    pub pods: WrappedPods,
    /// Whether the controller makes them by itself, from a template of its own.
    pub is_default: bool,
}

/// Which pods of a wrapped object exceed those that its component declares: the path within the component, and what is wrong.
pub(super) fn beyond(object: &Value, declared: &[Pods], own: &[OwnPods<'_>]) -> Option<(String, String)> {
    let is_inferred = pods::are_known(object);
    let find = |(at, pods): (usize, &Pods)| Some((path::find(object, &pods.path).ok()?.1, (at, pods.count)));
    // The first of those at a place.
    let declared: BTreeMap<String, (usize, i32)> =
        declared.iter().enumerate().rev().filter_map(find).collect();
    own.iter().filter(|own| own.pods.count > 0).find_map(|own| {
        let wanted = own.pods.count;
        match declared.get(&own.pointer) {
            Some(&(at, count)) if count < wanted && !is_inferred => Some((
                format!("podSets[{at}].replicas"),
                format!("{count}, and the template has {wanted} pods"),
            )),
            None if !own.is_default => {
                let path = crate::pod_group::path_of(&own.pointer);
                Some((format!("template.{path}"), "its pods are not among those of podSets".to_owned()))
            }
            _ => None,
        }
    })
}

/// The same for a component, if it can be read.
pub(super) fn beyond_declared(component: &Value) -> Option<(String, String)> {
    let object = &component["template"];
    let declared = pods::of(component, None).ok()?;
    beyond(object, &declared, &of(object).ok()??)
}

/// The pods of a wrapped object. None where its kind has no adapter that knows them.
pub(super) fn of(object: &Value) -> Result<Option<Vec<OwnPods<'_>>>, String> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let kind = JobKind::from_owner(text("apiVersion"), text("kind"));
    let Some(kind) = kind.filter(|kind| !kind.integration().of_pods && kind.templates().is_empty()) else {
        return Ok(None);
    };
    if kind.integration().wraps_objects {
        return nested(object).map(Some);
    }
    let adapter = registry::of(kind);
    let view = adapter.observe(object);
    match &view.invalid {
        _ if view.skipped => return Ok(None),
        Some(why) if view.pod_sets.is_empty() => return Err(format!("template.{why}")),
        _ => {}
    }
    let groups = adapter.pod_groups(object);
    if groups.len() != view.pod_sets.len() {
        return Ok(None);
    }
    // The pod sets of a kind whose pods are in groups are those of one group.
    let times = view.groups.map_or(1, |groups| i32::try_from(groups).unwrap_or(i32::MAX));
    let own = groups.into_iter().zip(view.pod_sets).map(|(group, set)| OwnPods {
        pods: WrappedPods {
            count: group.count().max(set.count).saturating_mul(times),
            requests_hash: set.requests_hash,
            name: set.name,
        },
        pointer: group.pointer,
        template: group.template,
        is_default: set.unwritten.is_some(),
    });
    Ok(Some(own.collect()))
}

/// The pods of an AppWrapper in an AppWrapper.
fn nested(object: &Value) -> Result<Vec<OwnPods<'_>>, String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let of = |(number, found): (usize, Found<'_>)| {
        let path = crate::pod_group::path_of(&found.pointer);
        let name = format!("{name}-{number}");
        let set = object::pod_set(&name, found.pods.count, &template::reduced(&found.template), &path, &[])?;
        Ok((found.pointer, set))
    };
    let sets = templates(object)?.into_iter().enumerate().map(of);
    let own = sets.map(|set: Result<_, String>| {
        let (pointer, set) = set?;
        let template = Cow::Borrowed(object.pointer(&pointer).unwrap_or(&Value::Null));
        let pods = WrappedPods { name: set.name, count: set.count, requests_hash: set.requests_hash };
        Ok(OwnPods { pointer, template, pods, is_default: false })
    });
    own.collect()
}
