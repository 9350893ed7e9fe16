//! The cluster of the engine's tests, for benchmarks.

#[path = "../../engine/tests/model/mod.rs"]
mod cluster;

pub use cluster::*;
