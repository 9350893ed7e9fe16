//! A summary of the engine's state, for debugging: page by page, because it lists all Workloads that wait.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_core::{Name, Standing, WorkloadKey};

use crate::effect::EffectId;
use crate::engine::Engine;
use crate::world::after;

/// The object that was visited last.
#[derive(Clone, Debug)]
enum StatePosition {
    Start,
    Write(Option<EffectId>),
    Workload(Option<WorkloadKey>),
    ClusterQueue(Option<Name>),
    End,
}

/// A state in progress.
#[derive(Clone, Debug)]
pub struct State {
    at: StatePosition,
    head: Value,
    writes: Vec<Value>,
    waiting: BTreeMap<Name, Vec<Standing>>,
    queues: Vec<(Name, Value)>,
    largest: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            at: StatePosition::Start,
            head: Value::Null,
            writes: Vec::new(),
            waiting: BTreeMap::new(),
            queues: Vec::new(),
            largest: 0,
        }
    }
}

impl State {
    /// The largest number of objects that one page visited.
    pub fn largest_page(&self) -> usize {
        self.largest
    }

    /// The state. What waits is put in order here.
    pub fn into_value(self) -> Value {
        let Self { mut head, writes, mut waiting, queues, .. } = self;
        let queues = queues.into_iter().map(|(name, mut figures)| {
            let members = Standing::positions(waiting.remove(&name).unwrap_or_default());
            let line =
                |p: sluice_core::PendingPosition| json!({"workload": p.key.to_string(), "priority": p.priority, "active": p.active});
            figures["pending"] = members.into_iter().map(line).collect();
            figures
        });
        head["clusterQueues"] = queues.collect();
        head["openWrites"] = writes.into();
        head
    }
}

impl Engine {
    /// The engine's state in short.
    pub fn state(&self) -> Value {
        let mut state = State::default();
        while !self.state_page(&mut state, usize::MAX) {}
        state.into_value()
    }

    /// Looks at the next `most` objects for a state; whether that were the last.
    pub fn state_page(&self, state: &mut State, most: usize) -> bool {
        for looks in 1..=most.max(1) {
            state.largest = state.largest.max(looks);
            state.at = match std::mem::replace(&mut state.at, StatePosition::End) {
                StatePosition::Start => {
                    state.head = self.head();
                    StatePosition::Write(None)
                }
                StatePosition::Write(last) => match self.outbox.open_after(last) {
                    Some((id, open)) => {
                        let purpose = open.purpose.to_string();
                        state
                            .writes
                            .push(json!({"id": id.0, "object": open.object.to_string(), "purpose": purpose}));
                        StatePosition::Write(Some(id))
                    }
                    None => StatePosition::Workload(None),
                },
                StatePosition::Workload(last) => match self.world.workloads.after(last.as_ref()).next() {
                    Some((key, _)) => {
                        if let Some(standing) = self.scheduler.standing(key, None) {
                            let queue = Name::clone(standing.cluster_queue());
                            state.waiting.entry(queue).or_default().push(standing);
                        }
                        StatePosition::Workload(Some(key.clone()))
                    }
                    None => StatePosition::ClusterQueue(None),
                },
                StatePosition::ClusterQueue(last) => {
                    match after(&self.world.cluster_queues, last.as_ref()).next() {
                        Some((name, _)) => {
                            state.queues.push((Name::clone(name), self.queue_state(name)));
                            StatePosition::ClusterQueue(Some(Name::clone(name)))
                        }
                        None => return true,
                    }
                }
                StatePosition::End => return true,
            };
        }
        false
    }

    fn head(&self) -> Value {
        let aside: Vec<_> =
            self.aside.iter().map(|(o, aside)| json!({"object": o.to_string(), "why": aside.why})).collect();
        json!({
            "leader": self.leader,
            "synced": self.synced,
            "now": self.now.to_string(),
            "nextTimer": self.next_timer().map(|t| t.to_string()),
            "setAside": aside,
            "counts": {
                "workloads": self.world.workloads.len(),
                "jobs": self.world.jobs.len(),
                "clusterQueues": self.world.cluster_queues.len(),
                "localQueues": self.world.local_queues.len(),
                "cohorts": self.world.cohorts.len(),
                "resourceFlavors": self.world.flavors.len(),
                "nodes": self.world.nodes.len(),
                "timers": self.timers.len(),
            },
            "hotswap": self.hotswap_state(),
        })
    }

    fn queue_state(&self, name: &str) -> Value {
        let figures = self.scheduler.cluster_queue_status(name);
        json!({
            "name": name,
            "active": figures.as_ref().is_some_and(|f| f.inactive.is_empty()),
            "reserving": figures.as_ref().map(|f| f.reserving),
            "admitted": figures.as_ref().map(|f| f.admitted),
        })
    }
}
