//! The texts of failed placements (docs/reference/06-algorithm.md 6.12).

use crate::Name;
use crate::topology::request::{Exclusions, PlacementFailure, PlacementFit};

impl PlacementFailure {
    /// The failure as Kueue words it.
    pub fn message(&self) -> String {
        let topology = &*self.topology;
        let fit = if let PlacementFit::Unmoved(slice) = &self.fit { &slice.fit } else { &self.fit };
        let text = match fit {
            PlacementFit::Pods { fit, wanted } => not_fit(topology, *fit, *wanted, "pod"),
            PlacementFit::Slices { fit, wanted } => not_fit(topology, *fit, *wanted, "slice"),
            PlacementFit::Layers(layers) => layers_do_not_fit(topology, layers),
            PlacementFit::Other(text) => return text.clone(),
            PlacementFit::Unmoved(_) => return String::new(),
        };
        text + &self.excluded.message()
    }
}

fn not_fit(topology: &str, fit: i64, wanted: i64, unit: &str) -> String {
    if fit == 0 {
        format!("topology {topology:?} doesn't allow to fit any of {wanted} {unit}(s)")
    } else {
        format!("topology {topology:?} allows to fit only {fit} out of {wanted} {unit}(s)")
    }
}

fn layers_do_not_fit(topology: &str, layers: &[(Name, i64, i64)]) -> String {
    let mut text = format!("topology {topology:?} doesn't allow to fit");
    for (level, fit, wanted) in layers {
        text.extend(["; ", &fit.to_string(), "/", &wanted.to_string(), " slice(s) fit on level ", level]);
    }
    text
}

impl Exclusions {
    /// The suffix of a failure's message: empty if no node was excluded.
    fn message(&self) -> String {
        let mut reasons = Vec::new();
        let mut add = |count: u32, reason: String| {
            if count > 0 {
                reasons.push(format!("{reason}: {count}"));
            }
        };
        add(self.affinity, "affinity".to_owned());
        add(self.node_selector, "nodeSelector".to_owned());
        add(self.domain, "topologyDomain".to_owned());
        for (resource, count) in &self.resources {
            add(*count, format!("resource {:?}", &**resource));
        }
        for (taint, count) in &self.taints {
            add(*count, format!("taint {taint:?}"));
        }
        if reasons.is_empty() {
            return String::new();
        }
        reasons.sort_unstable();
        format!(". Total nodes: {}; excluded: {}", self.nodes, reasons.join(", "))
    }
}
