//! The kinds that commands are about, as people name them (reference 08, 8.1).

use sluice_engine::Kind;

/// The kind that a word names.
pub fn named(word: &str) -> Option<Kind> {
    Some(match word.to_ascii_lowercase().as_str() {
        "clusterqueue" | "clusterqueues" | "cq" => Kind::ClusterQueue,
        "localqueue" | "localqueues" | "lq" => Kind::LocalQueue,
        "resourceflavor" | "resourceflavors" | "rf" => Kind::ResourceFlavor,
        "workload" | "workloads" | "wl" => Kind::Workload,
        _ => return None,
    })
}
