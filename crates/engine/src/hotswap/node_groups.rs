//! The groups of nodes that labels make, for jobs that take whole groups (`exclusive-topology`; one TPU slice).

use sluice_api::config::Hotswap;
use sluice_core::{NodeGroup, NodeGroups};

use super::group_index::{are_sized, slice_size};
use super::snapshot::{SeenNode, Snapshot};

/// The groups that a label makes.
pub(crate) fn groups_by<'a>(label: &str, snapshot: &Snapshot<'a>, config: &Hotswap) -> NodeGroups<'a> {
    let value = |seen: &SeenNode<'a>| Some(seen.node.metadata.labels.as_ref()?.get(label)?.as_str());
    let members = snapshot.nodes.iter().enumerate();
    let mut members: Vec<_> = members.filter_map(|(node, seen)| Some((value(seen)?, node, seen))).collect();
    members.sort_by_key(|(value, ..)| *value);
    let groups: Vec<_> = members.chunk_by(|(a, ..), (b, ..)| a == b).collect();
    let wanted = |members: &[(&str, usize, &SeenNode<'_>)]| {
        let size = members.first().and_then(|(.., seen)| slice_size(seen.node, seen.allocatable, config));
        size.unwrap_or(1)
    };
    let is_slice = |members: &&[_]| wanted(members) > 1 && members.len() >= wanted(members);
    let sized = are_sized(label, groups.len(), || groups.iter().any(is_slice));
    let mut of = vec![None; snapshot.nodes.len()];
    let all = groups.iter().enumerate().map(|(at, members)| {
        for (_, node, _) in *members {
            of[*node] = Some(at);
        }
        let healthy = members.iter().all(|(.., seen)| seen.health.has_capacity());
        NodeGroup {
            value: members[0].0,
            nodes: members.iter().map(|(_, node, _)| *node).collect(),
            whole: healthy && (!sized || members.len() >= wanted(members)),
        }
    });
    NodeGroups { label: label.to_owned(), all: all.collect(), of }
}
