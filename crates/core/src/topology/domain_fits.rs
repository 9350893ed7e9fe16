//! Where pods of one shape fit now: by level, the domains with the most room.

use crate::Name;
use crate::config::Gates;
use crate::intern::{FlavorId, Names};
use crate::topology::ask::Ask;
use crate::topology::booking::NodeUsage;
use crate::topology::counts::{AllCounts, Counts};
use crate::topology::filter::{Filter, Sieve};
use crate::topology::kept::{Counting, ShapeRef};
use crate::topology::needs::Needs;
use crate::topology::request::PodSetToPlace;
use crate::topology::trees::Tree;
use crate::topology::world::Topologies;

/// The domains of one level of a topology, by how many pods of one shape fit into each, besides their leader if they have one: on nodes that the pods
/// may use, and in whole slices down to the level of slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelFits {
    /// The label of the level.
    pub level: Name,
    /// How many domains it has.
    pub domains: usize,
    /// How many pods fit into all of them together, with one leader.
    pub pods: i64,
    /// The domains into which most pods fit, the roomiest first: the labels from the highest level down, and how many.
    pub roomiest: Vec<(Vec<Name>, i64)>,
}

impl LevelFits {
    /// How many pods fit into one domain at most.
    pub fn largest(&self) -> i64 {
        self.roomiest.first().map_or(0, |(_, pods)| *pods)
    }

    /// One more domain, into which this number of pods fits.
    fn add(&mut self, path: &[Name], pods: i64, most: usize) {
        self.domains += 1;
        let at = self.roomiest.partition_point(|(_, other)| *other >= pods);
        if at < most {
            self.roomiest.insert(at, (path.to_vec(), pods));
            self.roomiest.truncate(most);
        }
    }
}

impl Topologies {
    /// By level, from the highest: the `most` domains of a flavor into which most pods of a pod set fit besides its leader, if it has one, as a
    /// placement counts them: what is free on nodes that they select and whose taints they tolerate. Each lowest domain is visited once.
    pub(crate) fn domain_fits(
        &self,
        usage: &NodeUsage,
        flavor: FlavorId,
        (pod_set, leader): (&PodSetToPlace<'_>, Option<&PodSetToPlace<'_>>),
        (names, gates): (&Names, &Gates),
        most: usize,
    ) -> Vec<LevelFits> {
        let Some(tree) = self.trees.get(&flavor) else { return Vec::new() };
        let leaders = i64::from(leader.is_some());
        let ask = |request| Ask::new(&tree.levels, request, pod_set.count, leaders, gates);
        // Of a request that contradicts the topology the pods count one by one.
        let Ok(ask) = ask(pod_set.request).or_else(|_| ask(None)) else { return Vec::new() };
        let layout = tree.layout();
        let counts = self.counts(usage, tree, (pod_set, leader), &ask, names);
        let level = |(level, name): (usize, &Name)| {
            let mut fits = LevelFits { level: name.clone(), domains: 0, pods: 0, roomiest: Vec::new() };
            // What the leader costs where it costs least. `None`: it fits nowhere.
            let mut lost = None::<i64>;
            for (at, counts) in counts.level(level).iter().enumerate() {
                if layout.has_open(level, at) {
                    let (pods, led) = fitting(counts, level, &ask);
                    fits.add(&layout.paths[layout.leaves(level, at).start][..=level], led.unwrap_or(0), most);
                    fits.pods = fits.pods.saturating_add(pods);
                    lost = led.map(|led| pods - led).into_iter().chain(lost).min();
                }
            }
            fits.pods = lost.map_or(0, |lost| fits.pods - lost);
            fits
        };
        tree.levels.iter().enumerate().map(level).collect()
    }

    /// How many pods of a pod set fit into each domain, without what is kept for placements.
    fn counts(
        &self,
        usage: &NodeUsage,
        tree: &Tree,
        (pod_set, leader): (&PodSetToPlace<'_>, Option<&PodSetToPlace<'_>>),
        ask: &Ask,
        names: &Names,
    ) -> AllCounts {
        let needs = Needs::new(&usage.ledger, names, pod_set.per_pod);
        let leader = leader.map(|leader| Needs::new(&usage.ledger, names, leader.per_pod));
        let mut sieve = Sieve::new(Filter {
            hosts: &self.hosts,
            taints: &self.taints,
            pod_set: pod_set.spec,
            preferred: &[],
            needs: &needs,
            tolerations: &tree.tolerations,
            by_host: tree.has_hosts(),
        });
        let mut counting = Counting {
            layout: tree.layout(),
            ledger: &usage.ledger,
            generation: tree.generation,
            relabeled: tree.relabeled(),
            spliced: tree.spliced(),
            sieve: &mut sieve,
            shape: ShapeRef {
                flavor: tree.flavor(),
                empty: false,
                pod_set: pod_set.spec,
                preferred: &[],
                needs: &needs,
                leader: leader.as_ref(),
                ask,
            },
        };
        counting.all()
    }
}

/// How many pods fit into a domain of a level, in whole slices down to the level of slices; and how many besides the leader, if that fits.
fn fitting(counts: &Counts, level: usize, ask: &Ask) -> (i64, Option<i64>) {
    let (pods, led) = if level <= ask.slice_level {
        (counts.slices.saturating_mul(ask.size), counts.slices_led.saturating_mul(ask.size))
    } else {
        (counts.pods, counts.pods_led)
    };
    (pods, Some(led).filter(|_| ask.leaders == 0 || counts.leaders > 0))
}
