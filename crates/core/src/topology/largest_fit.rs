//! How many pods fit into one domain now: how fragmented the nodes of a flavor are.

use crate::Name;
use crate::intern::{FlavorId, Names, ResourceId};
use crate::topology::booking::NodeUsage;
use crate::topology::columns::PODS_COLUMN;
use crate::topology::filter::{Filter, Sieve};
use crate::topology::needs::Needs;
use crate::topology::places::Path;
use crate::topology::trees::Tree;
use crate::topology::world::Topologies;
use crate::workload::PodSetSpec;

/// The highest number of amounts per pod that are tried for one resource.
const MOST_AMOUNTS: usize = 12;

/// The number of pods of one size that fit into the domain of a level with most room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestFit {
    /// The label of the level.
    pub level: Name,
    /// An extended resource.
    pub resource: Name,
    /// How much of it each pod takes, in whole units.
    pub per_pod: i64,
    /// How many such pods fit, if they use nothing else, select nothing, and tolerate no taints but that of the resource and those that the flavor tolerates.
    pub pods: i64,
}

/// One size of pods, while domains are added up.
#[derive(Debug)]
struct Size {
    resource: ResourceId,
    /// Where its resource is among those of all sizes.
    of: usize,
    column: usize,
    per_pod: i64,
    /// By level: how many fit into the domain that is being added up.
    current: Vec<i64>,
    /// By level: how many fit into the largest earlier domain.
    largest: Vec<i64>,
}

impl Size {
    /// Ends the domains from this level down.
    fn end(&mut self, level: usize) {
        for (current, largest) in self.current.iter_mut().zip(&mut self.largest).skip(level) {
            *largest = (*largest).max(*current);
            *current = 0;
        }
    }

    fn add(&mut self, row: &[i64]) {
        let free = row.get(self.column).copied().unwrap_or(0).max(0);
        let pods = (free / self.per_pod).min(row[PODS_COLUMN].max(0));
        for current in &mut self.current {
            *current = current.saturating_add(pods);
        }
    }
}

impl Topologies {
    /// By size and level: the number of pods that fit into one domain of a flavor, and how many lowest domains were visited. The sizes are the powers
    /// of two of each extended resource up to the amount of the largest node, and that amount. The pods tolerate what the flavor does, and the taint of the
    /// resource.
    pub(crate) fn largest_fits(
        &self,
        usage: &NodeUsage,
        flavor: FlavorId,
        names: &Names,
    ) -> (Vec<LargestFit>, usize) {
        let Some(tree) = self.trees.get(&flavor) else { return (Vec::new(), 0) };
        let mut sizes = self.sizes(usage, tree, names);
        if sizes.is_empty() {
            return (Vec::new(), 0);
        }
        let mut needs: Vec<Needs> = Vec::new();
        for size in &sizes {
            if size.of == needs.len() {
                needs.push(Needs::new(&usage.ledger, names, &[(size.resource, 1)]));
            }
        }
        let plain = PodSetSpec::plain(Name::from(""));
        let sieve = |needs| {
            Sieve::new(Filter {
                hosts: &self.hosts,
                taints: &self.taints,
                pod_set: &plain,
                preferred: &[],
                needs,
                tolerations: &tree.tolerations,
                by_host: tree.has_hosts(),
            })
        };
        let mut sieves: Vec<Sieve<'_>> = needs.iter().map(sieve).collect();
        let (layout, view, stride) = (tree.layout(), usage.ledger.view(false), usage.ledger.stride());
        let mut before: Option<&Path> = None;
        let mut looked_at = 0;
        for leaf in (0..layout.places.len()).filter(|leaf| !layout.is_closed(*leaf)) {
            let path = &layout.paths[leaf];
            let differs = |before: &Path| before.iter().zip(path.iter()).position(|(a, b)| a != b);
            let from = before.map_or(0, |before| differs(before).unwrap_or(tree.levels.len()));
            let row = &view[layout.places[leaf].at() * stride..][..stride];
            for size in &mut sizes {
                size.end(from);
                if sieves[size.of].keeps_out(layout, leaf).is_none() {
                    size.add(row);
                }
            }
            before = Some(path);
            looked_at += 1;
        }
        let mut fits = Vec::new();
        for mut size in sizes {
            size.end(0);
            for (level, pods) in tree.levels.iter().zip(size.largest) {
                let resource = names.resource_name(size.resource).clone();
                fits.push(LargestFit { level: level.clone(), resource, per_pod: size.per_pod, pods });
            }
        }
        (fits, looked_at)
    }

    fn sizes(&self, usage: &NodeUsage, tree: &Tree, names: &Names) -> Vec<Size> {
        let mut largest: Vec<(ResourceId, i64)> = Vec::new();
        for host in tree.hosts().map(|(host, ..)| self.hosts.get(host)).filter(|host| host.is_open()) {
            for &(resource, amount) in &host.offered {
                match largest.iter_mut().find(|(known, _)| *known == resource) {
                    Some((_, most)) => *most = amount.max(*most),
                    None => largest.push((resource, amount)),
                }
            }
        }
        largest.retain(|&(resource, most)| {
            most > 0 && sluice_quantity::is_extended(names.resource_name(resource))
        });
        largest.sort_by(|a, b| names.resource_name(a.0).cmp(names.resource_name(b.0)));
        let mut sizes = Vec::new();
        for (of, (resource, most)) in largest.into_iter().enumerate() {
            // Nothing is free of what has no column.
            let column = usage.ledger.column(resource).unwrap_or(usize::MAX);
            let powers = (0..MOST_AMOUNTS - 1).map(|power| 1_i64 << power).take_while(|&power| power < most);
            for per_pod in powers.chain([most]) {
                let none = vec![0; tree.levels.len()];
                sizes.push(Size { resource, of, column, per_pod, current: none.clone(), largest: none });
            }
        }
        sizes
    }
}
