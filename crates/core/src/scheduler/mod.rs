//! The scheduler: the whole state of the core. Each module below changes or reads one part of it.

mod activity;
pub(crate) mod asked_shapes;
mod audit;
mod capacity;
pub(crate) mod claims;
mod flush;
mod ingest;
mod moves;
pub(crate) mod node_trial;
mod objects;
mod queues;
mod reclaimers;
mod reservation;
mod samples;
pub(crate) mod snapshot;
pub(crate) mod standing;
mod status;
mod sweep;
mod topology;
mod waiting;

use crate::admission_fair_sharing::Usages;
use crate::agenda::Agenda;
use crate::books::{Basis, Books};
use crate::changes::Changes;
use crate::config::Config;
use crate::stats::Stats;
use crate::tables::Sweeps;
use crate::view::View;
use crate::world::World;

/// The configuration, the usage, and what has to be tried. A search is functions over the first two: see [`View`].
#[derive(Debug, Clone)]
pub struct Scheduler {
    pub(crate) world: World,
    pub(crate) books: Books,
    pub(crate) agenda: Agenda,
    pub(crate) changes: Changes,
    /// What orders LocalQueues under admission fair sharing, as of the last cycle.
    pub(crate) usages: Usages,
    /// How many cycles have begun.
    pub(crate) cycle: u64,
    pub(crate) stats: Stats,
    /// When dead rows are looked for.
    pub(crate) sweeps: Sweeps,
}

impl Scheduler {
    /// An empty world.
    pub fn new(config: Config) -> Self {
        Self {
            world: World::new(config),
            books: Books::default(),
            agenda: Agenda::default(),
            changes: Changes::default(),
            usages: Usages::default(),
            cycle: 0,
            stats: Stats::default(),
            sweeps: Sweeps::default(),
        }
    }

    /// The inputs of a search.
    pub(crate) fn view<'a>(&'a mut self, basis: Basis, local_usage: &'a [f64]) -> View<'a> {
        View::new(&self.world, self.books.parts(basis), (self.cycle, &mut self.stats), local_usage)
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.world.config
    }

    /// Counters of the work done.
    pub fn stats(&self) -> Stats {
        let (placement_searches, counted_domains) = self.books.nodes.searched();
        let compared_domains = self.books.nodes.compared();
        let ordered_domains = self.books.nodes.ordered();
        let placing =
            Stats { placement_searches, counted_domains, compared_domains, ordered_domains, ..self.stats };
        Stats { cycles: self.cycle, ..placing }
    }
}
