//! The topology request of a pod template, and how the pods of a pod set are numbered: the `topologyRequest` of the Workload's pod set
//! (docs/reference/04-labels-annotations.md 4.2, docs/reference/06-algorithm.md 6.11).

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::job::JobPodSet;
use sluice_api::v1beta2::{PodSetTopologyRequest, PodsetSliceRequiredTopologyConstraint};
use sluice_api::{labels, text};

use crate::object::int;

/// The request in the annotations of a pod template, if there is one. A malformed one does not count: the webhook refuses it.
pub(crate) fn request(annotations: &BTreeMap<String, String>) -> Option<Box<PodSetTopologyRequest>> {
    let get = |key: &str| annotations.get(key).filter(|value| !value.is_empty()).cloned();
    let mut request = PodSetTopologyRequest::default();
    if let Some(level) = get(labels::POD_SET_REQUIRED_TOPOLOGY) {
        request.required = Some(level);
    } else if let Some(level) = get(labels::POD_SET_PREFERRED_TOPOLOGY) {
        request.preferred = Some(level);
    } else {
        request.unconstrained =
            get(labels::POD_SET_UNCONSTRAINED_TOPOLOGY).and_then(|value| text::boolean(&value));
    }
    let size = get(labels::POD_SET_SLICE_SIZE).and_then(|text| text.parse().ok());
    if let Some((level, size)) = get(labels::POD_SET_SLICE_REQUIRED_TOPOLOGY).zip(size) {
        request.pod_set_slice_required_topology = Some(level);
        request.pod_set_slice_size = Some(size);
    }
    if let Some(text) = get(labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS) {
        request.podset_slice_required_topology_constraints = layers(&text).unwrap_or_default();
    }
    if request.required.is_some() || request.preferred.is_some() {
        request.pod_set_group_name = get(labels::POD_SET_GROUP_NAME);
    }
    request.is_explicit().then(|| Box::new(request))
}

/// Slices within slices.
fn layers(text: &str) -> Option<Vec<PodsetSliceRequiredTopologyConstraint>> {
    let layers: Vec<Value> = serde_json::from_str(text).ok()?;
    let read = |layer: &Value| {
        let (topology, size) = (layer["topology"].as_str()?.to_owned(), int(&layer["size"])?);
        Some(PodsetSliceRequiredTopologyConstraint { topology, size })
    };
    layers.iter().map(read).collect()
}

/// Says of a pod set that its pods have an index in this label.
pub(crate) fn number(pod_set: &mut JobPodSet, index_label: Option<&str>) {
    let request = pod_set.topology_request.get_or_insert_default();
    request.pod_index_label = index_label.map(str::to_owned);
}

/// Records in a pod set that its pods are in this number of groups, whose index is in this label.
pub(crate) fn number_groups(pod_set: &mut JobPodSet, index_label: Option<&str>, groups: Option<i32>) {
    let request = pod_set.topology_request.get_or_insert_default();
    (request.sub_group_index_label, request.sub_group_count) = (index_label.map(str::to_owned), groups);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(annotations: &[(&str, &str)]) -> PodSetTopologyRequest {
        let map =
            annotations.iter().map(|(key, value)| (format!("{}{key}", labels::PREFIX), (*value).to_owned()));
        request(&map.collect()).map(|request| *request).unwrap_or_default()
    }

    #[test]
    fn each_annotation_is_its_field() {
        let group = ("podset-group-name", "g");
        let required = asked(&[("podset-required-topology", "block"), group]);
        assert_eq!(required.required.as_deref(), Some("block"));
        assert_eq!(required.pod_set_group_name.as_deref(), Some("g"));
        assert_eq!(asked(&[("podset-preferred-topology", "rack")]).preferred.as_deref(), Some("rack"));
        for (text, value) in [("true", Some(true)), ("False", Some(false)), ("1", Some(true)), ("x", None)] {
            assert_eq!(asked(&[("podset-unconstrained-topology", text), group]).unconstrained, value);
        }
        let slices = asked(&[("podset-slice-required-topology", "rack"), ("podset-slice-size", "4")]);
        assert_eq!(slices.pod_set_slice_required_topology.as_deref(), Some("rack"));
        assert_eq!(slices.pod_set_slice_size, Some(4));
        assert_eq!(asked(&[("podset-slice-size", "4")]), PodSetTopologyRequest::default());
        let layers = asked(&[(
            "podset-slice-required-topology-constraints",
            r#"[{"topology": "block", "size": 8}, {"topology": "rack", "size": 4}]"#,
        )]);
        let layers = layers.podset_slice_required_topology_constraints;
        assert_eq!(
            layers.iter().map(|l| (l.topology.as_str(), l.size)).collect::<Vec<_>>(),
            [("block", 8), ("rack", 4)]
        );
    }

    #[test]
    fn a_group_or_nothing_asks_for_nothing() {
        for nothing in [
            &[][..],
            &[("podset-group-name", "g")],
            &[("podset-required-topology", "")],
            &[("podset-slice-required-topology-constraints", "{}")],
        ] {
            assert_eq!(asked(nothing), PodSetTopologyRequest::default());
        }
    }
}
