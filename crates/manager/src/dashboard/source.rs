//! The source of data that the columns do not have. It differs between the manager and a laptop.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_api::journal::WorkloadLine;
use sluice_api::slim;
use sluice_engine::WorkloadKey;
use sluice_sim::live::{Extent, Live};

use super::snapshot::Snapshot;
use super::viewer::{Caller, Viewer};
use super::views::items::{Order, Places};
use super::views::topology::Fits;
use crate::access::Asking;
use crate::memory::Reservation;
use crate::visibility::status::Refusal;

/// The highest number of ClusterQueues whose places are looked up for one answer.
pub const MOST_ORDERS: usize = 16;

/// A view that is offered only if its objects may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Cohorts and ClusterQueues.
    Queues,
    /// Workloads.
    Workloads,
    /// Flavors and nodes.
    Nodes,
}

/// Everything that a simulation of what comes begins with.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The objects.
    pub live: Live,
    /// The manager's configuration.
    pub configuration: Configuration,
    /// Whether that is not known, and the default one is simulated.
    pub assumed: bool,
    /// How many more bytes the documents may take, of the memory reserved for them.
    pub left: usize,
}

/// An answer, or why there is none.
pub type Found<'a, T> = BoxFuture<'a, Result<T, Refusal>>;

/// Finds the places of Workloads, if they are known. It may sort a queue: it is called where answers are made.
pub type Finder = Box<dyn FnOnce(&[WorkloadKey]) -> Places + Send>;

/// Identifies callers.
pub trait Callers: Send + Sync + 'static {
    /// The caller, by what the request says, which may name a namespace.
    fn viewer<'a>(&'a self, asking: Asking<'a>, named: Option<&'a str>) -> Found<'a, Caller>;
    /// Whether the caller may have explanations that name Workloads of other namespaces, too; an error for callers who may have no explanations of
    /// this namespace.
    fn explains<'a>(&'a self, asking: Asking<'a>, namespace: &'a str) -> Found<'a, bool>;
    /// Whether the caller may read the events of a namespace.
    fn reads_events<'a>(&'a self, asking: Asking<'a>, namespace: &'a str) -> Found<'a, bool>;
}

/// Data that the columns do not have.
pub trait Source: Send + Sync + 'static {
    /// Why a view is not offered, if it is not.
    fn missing(&self, view: View) -> Option<String>;
    /// The Workloads that wait in a ClusterQueue, in its order, if that is known; a laptop may know only those of its user.
    fn order<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Order>;
    /// A function that finds the places of some of them.
    fn finder<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Finder> {
        Box::pin(async move {
            let order = self.order(queue).await;
            let find = move |keys: &[WorkloadKey]| {
                let wanted: BTreeSet<&WorkloadKey> = keys.iter().collect();
                let own = order.iter().flat_map(|order| order.iter()).filter(|(_, key)| wanted.contains(key));
                own.map(|(at, key)| (key.clone(), *at)).collect()
            };
            Box::new(find) as Finder
        })
    }
    /// A Workload: namespace and name.
    fn workload<'a>(&'a self, namespace: &'a str, name: &'a str) -> Found<'a, slim::Workload>;
    /// The events about an object: its namespace and UID. Nothing if they cannot be read.
    fn events<'a>(&'a self, namespace: &'a str, uid: &'a str) -> BoxFuture<'a, Option<Vec<Value>>>;
    /// The journal's lines about a Workload, by its UID and since its creation; empty without a journal.
    fn past<'a>(&'a self, _uid: &'a str, _since: Timestamp) -> BoxFuture<'a, Vec<WorkloadLine>> {
        Box::pin(async { Vec::new() })
    }
    /// Why a Workload waits: `text` and `explanation`.
    fn explain<'a>(&'a self, viewer: &'a Viewer, namespace: &'a str, name: &'a str) -> Found<'a, Value>;
    /// How many pods of each size fit into the domains of the flavors that have a topology, if that is known.
    fn fits<'a>(&'a self, snapshot: &'a Snapshot) -> BoxFuture<'a, Option<Fits>>;
    /// Memory for a simulation, if there is enough.
    fn reserve(&self) -> Option<Reservation>;
    /// The objects that a simulation of this part of the cluster begins with, in at most this number of bytes.
    fn begin<'a>(&'a self, extent: Extent<'a>, bytes: usize) -> Found<'a, Begin>;
}
