//! The nodes of a case, and the topology requests of its pod sets.

use anyhow::{Context as _, bail};
use sluice_core::{Name, NodeSpec, RequestedLevel, Scheduler, SliceLayer, TopologyRequest, TopologySpec};
use sluice_quantity::{Amount, Quantity, amount_of};

use super::format::{ClassTopology, Topology};

/// Feeds a scheduler with the Topology and its nodes.
pub fn build(scheduler: &mut Scheduler, topology: &Topology) -> anyhow::Result<()> {
    let levels = topology.levels.iter().map(|level| Name::from(level.label.as_str())).collect();
    scheduler.set_topology(&TopologySpec { name: Name::from(topology.name.as_str()), levels });
    let allocatable: Vec<(Name, Amount)> = topology
        .node_allocatable
        .iter()
        .map(|(resource, text)| {
            let quantity = Quantity::parse(&text.0).with_context(|| format!("{resource}: {:?}", text.0))?;
            Ok((Name::from(resource.as_str()), amount_of(resource, &quantity)))
        })
        .collect::<anyhow::Result<_>>()?;
    for values in domains(topology) {
        let own = topology.levels.iter().zip(&values);
        let own = own.map(|(level, value)| (Name::from(level.label.as_str()), Name::from(value.as_str())));
        let given = topology.node_labels.iter();
        let given = given.map(|(key, value)| (Name::from(key.as_str()), Name::from(value.as_str())));
        scheduler.set_node(&NodeSpec {
            name: Name::from(values.last().context("a topology has levels")?.as_str()),
            labels: own.chain(given).collect(),
            taints: Vec::new(),
            allocatable: allocatable.clone(),
            usable: true,
        });
    }
    Ok(())
}

/// The names of the domains on the way to each node.
fn domains(topology: &Topology) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for level in &topology.levels {
        let below = |values: &Vec<String>| {
            let parent = values.last().map(|parent| format!("{parent}-")).unwrap_or_default();
            let values = values.clone();
            (0..level.count).map(move |at| {
                let own = format!("{parent}{}{at:04}", level.prefix);
                values.iter().cloned().chain([own]).collect()
            })
        };
        all = all.iter().flat_map(below).collect();
    }
    all
}

/// The topology request of a class.
pub fn request(class: &ClassTopology) -> anyhow::Result<TopologyRequest> {
    let level = || class.level.as_deref().map(Name::from).context("the topology request names no level");
    let plain = |level| TopologyRequest { level, slices: Vec::new() };
    Ok(match class.mode.as_str() {
        "required" => plain(RequestedLevel::Required(level()?)),
        "preferred" => plain(RequestedLevel::Preferred(level()?)),
        "unconstrained" => plain(RequestedLevel::Unconstrained),
        "slice" => {
            let size = class.slice_size.context("the topology request has no sliceSize")?;
            let slices = vec![SliceLayer { level: level()?, size }];
            TopologyRequest { level: RequestedLevel::Unconstrained, slices }
        }
        other => bail!("topology mode {other:?}"),
    })
}
