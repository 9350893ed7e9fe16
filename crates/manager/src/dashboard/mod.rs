//! The dashboard: pages that show queues, Workloads and nodes, and the JSON that they are made from.
//!
//! The shown columns are kept in a copy ([`store`]) that follows the watches: a reader never waits for the engine, nor the engine for a reader. Every
//! answer is made for one caller: [`viewer`] says in which namespaces they may read Workloads (of other namespaces they get amounts without names),
//! and [`seen_queues`] says which ClusterQueues they may know. The same routes are served by the manager ([`in_manager`]) and by `sluice dashboard`
//! on a laptop ([`local`]).

pub mod alive;
pub mod amounts;
pub mod answers;
pub mod assets;
pub mod callers;
pub mod changes;
pub mod fits;
pub mod happening;
pub mod in_manager;
pub mod lately;
pub mod local;
pub mod opening;
pub mod past;
pub mod placed;
pub mod polled;
pub mod query;
pub mod reads;
pub mod rights;
pub mod rows;
pub mod seen_queues;
pub mod server;
pub mod snapshot;
pub mod source;
pub mod store;
mod texts;
pub mod tomorrow;
mod tracked;
pub mod viewer;
pub mod views;
