//! The webhook of pods of a started JobSet: the node affinity that its annotation asks for.

use k8s_openapi::api::core::v1::NodeAffinity;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_api::labels;

use crate::affinity::{Wish, joined};
use crate::patch::Patch;

/// The JSON patch that a new pod gets. What cannot be read asks for nothing: no pod is refused for it.
pub fn mutate_pod(pod: &Value) -> Patch {
    let metadata = &pod["metadata"];
    let wish = metadata["annotations"][labels::NODE_AFFINITY].as_str();
    let Some(wish) = wish.and_then(|text| serde_json::from_str::<Wish>(text).ok()) else {
        return Patch::Json(Vec::new());
    };
    let own = &pod["spec"]["affinity"];
    let nodes = match &own["nodeAffinity"] {
        Value::Null => None,
        value => match NodeAffinity::deserialize(value) {
            Ok(nodes) => Some(nodes),
            Err(_) => return Patch::Json(Vec::new()),
        },
    };
    // How often its job had restarted when it was made, by the label of any kind.
    let mut counts = JobKind::ALL.into_iter().filter_map(|kind| kind.integration().restart_label);
    let restarts = counts.find_map(|label| metadata["labels"][label].as_str()?.parse().ok());
    let nodes = joined(nodes.as_ref(), &wish.granted(restarts.unwrap_or(0)));
    let operation = if own.is_object() {
        json!({"op": "add", "path": "/spec/affinity/nodeAffinity", "value": nodes})
    } else {
        json!({"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": nodes}})
    };
    Patch::Json(vec![operation])
}
