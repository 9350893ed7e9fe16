//! A copy of all positions that follows only the scheduler's notes of moves: it must agree with the scheduler at every moment.

use std::collections::BTreeMap;

use sluice_core::{Name, Scheduler, Standing, WorkloadKey};

/// The copy.
#[derive(Default)]
pub(super) struct Mirror {
    waiting: BTreeMap<WorkloadKey, Standing>,
    usage: BTreeMap<(Name, Name), f64>,
}

impl Mirror {
    fn local(key: &WorkloadKey, standing: &Standing) -> (Name, Name) {
        (key.namespace.clone(), standing.local_queue().clone())
    }

    /// Takes in what moved, a few at a time, and compares every queue.
    pub(super) fn follow(&mut self, core: &mut Scheduler) {
        while core.has_moves() {
            self.usage.extend(core.take_usages(2));
            for (key, standing) in core.take_moves(3) {
                match standing {
                    Some(standing) => {
                        self.usage.insert(Self::local(&key, &standing), standing.usage());
                        self.waiting.insert(key, standing);
                    }
                    None => drop(self.waiting.remove(&key)),
                }
            }
        }
        for at in 0..4 {
            let queue = Name::from(format!("q{at}"));
            let mut own: Vec<_> = self.waiting.iter().filter(|(_, s)| *s.cluster_queue() == queue).collect();
            own.sort_by(|(a, a_at), (b, b_at)| {
                let usage = |key, at| self.usage.get(&Self::local(key, at)).copied().unwrap_or_default();
                a_at.order(usage(a, a_at), b_at, usage(b, b_at))
            });
            let own: Vec<_> = own.into_iter().map(|(key, _)| key.clone()).collect();
            let reported: Vec<_> = core.positions(&queue).into_iter().map(|position| position.key).collect();
            assert_eq!(own, reported, "the places in {queue} that were reported, and those that are");
        }
    }
}
