//! Where pods of one shape fit now: by level, the domains with the most room.

use crate::Name;
use crate::intern::{FlavorId, Names};
use crate::topology::booking::NodeUsage;
use crate::topology::needs::Needs;
use crate::topology::places::Path;
use crate::topology::world::Topologies;

/// The domains of one level of a topology, by how many pods of one shape fit into each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelFits {
    /// The label of the level.
    pub level: Name,
    /// How many domains it has.
    pub domains: usize,
    /// How many pods fit into all of them together.
    pub pods: i64,
    /// The domains into which most pods fit, the roomiest first: the labels from the highest level down, and how many.
    pub roomiest: Vec<(Vec<Name>, i64)>,
}

impl LevelFits {
    /// How many pods fit into one domain at most.
    pub fn largest(&self) -> i64 {
        self.roomiest.first().map_or(0, |(_, pods)| *pods)
    }

    /// A domain is complete; this number of pods fits into it.
    fn end(&mut self, path: &[Name], pods: i64, most: usize) {
        self.domains += 1;
        self.pods = self.pods.saturating_add(pods);
        let at = self.roomiest.partition_point(|(_, other)| *other >= pods);
        if at < most {
            self.roomiest.insert(at, (path.to_vec(), pods));
            self.roomiest.truncate(most);
        }
    }
}

impl Topologies {
    /// By level, from the highest: the `most` domains of a flavor into which most pods with this usage fit. What is free counts, whatever the pods
    /// select or tolerate. Each lowest domain is visited once.
    pub(crate) fn domain_fits(
        &self,
        usage: &NodeUsage,
        flavor: FlavorId,
        names: &Names,
        per_pod: &[(Name, i64)],
        most: usize,
    ) -> Vec<LevelFits> {
        let Some(tree) = self.trees.get(&flavor) else { return Vec::new() };
        // A resource that no node ever offered has no id here, and no pod fits.
        let known: Option<Vec<_>> = per_pod
            .iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(name, amount)| Some((names.find_resource(name)?, *amount)))
            .collect();
        let needs = known.map(|known| Needs::new(&usage.ledger, names, &known));
        let level =
            |name: &Name| LevelFits { level: name.clone(), domains: 0, pods: 0, roomiest: Vec::new() };
        let mut levels: Vec<LevelFits> = tree.levels.iter().map(level).collect();
        let mut current = vec![0_i64; levels.len()];
        let (view, stride) = (usage.ledger.view(false), usage.ledger.stride());
        let mut before: Option<&Path> = None;
        let mut end = |before: &Path, from: usize, current: &mut [i64]| {
            for (at, level) in levels.iter_mut().enumerate().skip(from) {
                level.end(&before[..=at], std::mem::take(&mut current[at]), most);
            }
        };
        for (path, place) in tree.leaves() {
            if let Some(before) = before {
                let from = before.iter().zip(path.iter()).position(|(a, b)| a != b).unwrap_or(current.len());
                end(before, from, &mut current);
            }
            let row = &view[place.at() * stride..][..stride];
            let pods = needs.as_ref().map_or(0, |needs| needs.count(row).unwrap_or(0));
            for current in &mut current {
                *current = current.saturating_add(pods);
            }
            before = Some(path);
        }
        if let Some(before) = before {
            end(before, 0, &mut current);
        }
        levels
    }
}
