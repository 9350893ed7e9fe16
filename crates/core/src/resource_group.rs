//! Resource groups with their names resolved: which flavors a ClusterQueue has for which resources, and the quota of each.

use std::collections::{BTreeMap, BTreeSet};

use crate::intern::{FlavorId, FrId, Names, ResourceId};
use crate::quota::QuotaLimits;
use crate::spec::ResourceGroup;

/// A resource group with names resolved.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) covered: Vec<ResourceId>,
    pub(crate) flavors: Vec<FlavorId>,
    /// The pair of each flavor (outer) and covered resource (inner).
    pub(crate) pairs: Vec<Vec<FrId>>,
}

/// Compiles resource groups. A resource that an earlier group covers is left out of later ones.
pub(crate) fn compile_groups(
    names: &mut Names,
    groups: &[ResourceGroup],
) -> (Vec<Group>, BTreeMap<FrId, QuotaLimits>) {
    let mut limits = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut compiled = Vec::with_capacity(groups.len());
    for group in groups {
        let covered: Vec<ResourceId> =
            group.covered.iter().map(|name| names.resource(name)).filter(|&id| seen.insert(id)).collect();
        let flavors: Vec<FlavorId> = group.flavors.iter().map(|flavor| names.flavor(&flavor.name)).collect();
        let mut pairs = Vec::with_capacity(flavors.len());
        for (&flavor, quotas) in flavors.iter().zip(&group.flavors) {
            let row: Vec<FrId> = covered.iter().map(|&resource| names.pair(flavor, resource)).collect();
            for (&pair, &resource) in row.iter().zip(&covered) {
                let name = names.resource_name(resource);
                let quota = quotas.resources.iter().find(|quota| quota.name == *name);
                limits.entry(pair).or_insert(quota.map_or(QuotaLimits::NONE, |quota| QuotaLimits {
                    nominal: quota.nominal,
                    borrow: quota.borrowing_limit,
                    lend: quota.lending_limit,
                }));
            }
            pairs.push(row);
        }
        compiled.push(Group { covered, flavors, pairs });
    }
    (compiled, limits)
}

/// The group that covers a resource, and the resource's place in it.
pub(crate) fn group_of(groups: &[Group], resource: ResourceId) -> Option<(usize, usize)> {
    groups.iter().enumerate().find_map(|(at, group)| {
        group.covered.iter().position(|&covered| covered == resource).map(|column| (at, column))
    })
}
