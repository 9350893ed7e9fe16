//! The aggregated API `visibility.kueue.x-k8s.io`: which Workloads wait in a queue, and where (docs/reference/01-api.md 1.11,
//! docs/reference/08-tooling.md 8.5); and `visibility.sluice.dev`: why a Workload waits.
//!
//! Every replica serves it. Places are read from a copy of the queues ([`board`]) to which the engine's changes are published ([`publish`]): a reader
//! never waits for the engine, nor the engine for a reader.

pub mod board;
mod discovery;
mod negotiate;
mod openapi;
pub mod publish;
pub(crate) mod route;
pub mod server;
pub(crate) mod status;
mod summary;
