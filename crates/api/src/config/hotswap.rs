//! `hotswap`: a section that Kueue does not have; which nodes count as failing, and when failures are ignored.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Duration;
use super::reader::{Reader, field, not_negative};

/// `hotswap` (gate `Hotswap`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hotswap {
    /// How long a node may be not ready before it counts as failing. 30 s.
    pub not_ready_after: Duration,
    /// With more of a flavor's nodes unhealthy than this, in percent, nothing is evicted: the cause is then more likely the network
    /// or the manager than the nodes. 55.
    pub max_unhealthy_percent: i32,
    /// Labels, with their values, of nodes that are marked for removal. `cloud.google.com/active-node-maintenance: "true"`.
    pub departing_labels: BTreeMap<String, String>,
    /// Keys of taints of nodes that are marked for removal. `cloud.google.com/impending-node-termination`.
    pub departing_taints: Vec<String>,
    /// The label of a node that says when its maintenance begins, in Unix seconds. `cloud.google.com/scheduled-maintenance-time`.
    pub maintenance_time_label: String,
    /// The label of a node with the topology of the slice that it is part of, as in `4x4`.
    /// `cloud.google.com/gke-tpu-topology`.
    pub slice_topology_label: String,
    /// The resource that the slice's topology counts. `google.com/tpu`.
    pub slice_resource: String,
}

impl Default for Hotswap {
    fn default() -> Self {
        let label = ("cloud.google.com/active-node-maintenance".to_owned(), "true".to_owned());
        Self {
            not_ready_after: Duration::from_secs(30),
            max_unhealthy_percent: 55,
            departing_labels: BTreeMap::from([label]),
            departing_taints: vec!["cloud.google.com/impending-node-termination".to_owned()],
            maintenance_time_label: "cloud.google.com/scheduled-maintenance-time".to_owned(),
            slice_topology_label: "cloud.google.com/gke-tpu-topology".to_owned(),
            slice_resource: "google.com/tpu".to_owned(),
        }
    }
}

impl Hotswap {
    /// Whether everything is as by default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads the section.
pub(super) fn hotswap(mut reader: Option<Reader<'_>>) -> Hotswap {
    let default = Hotswap::default();
    let reader = &mut reader;
    let percent = |r: &mut Reader<'_>| {
        let percent = r.i32("maxUnhealthyPercent")?;
        if !(0..=100).contains(&percent) {
            r.error("maxUnhealthyPercent", format!("expected a percentage from 0 to 100, found {percent}"));
        }
        Some(percent)
    };
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    Hotswap {
        not_ready_after: field(reader, |r| not_negative(r, "notReadyAfter"))
            .unwrap_or(default.not_ready_after),
        max_unhealthy_percent: field(reader, percent).unwrap_or(default.max_unhealthy_percent),
        departing_labels: field(reader, |r| r.map_of("departingLabels", "a string", text))
            .unwrap_or(default.departing_labels),
        departing_taints: field(reader, |r| r.strings("departingTaints")).unwrap_or(default.departing_taints),
        maintenance_time_label: field(reader, |r| r.string("maintenanceTimeLabel"))
            .unwrap_or(default.maintenance_time_label),
        slice_topology_label: field(reader, |r| r.string("sliceTopologyLabel"))
            .unwrap_or(default.slice_topology_label),
        slice_resource: field(reader, |r| r.string("sliceResource")).unwrap_or(default.slice_resource),
    }
}
