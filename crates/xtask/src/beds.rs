//! The world of the engine's tests of nodes, for benchmarks.

#[path = "../../engine/tests/hotswap/bed.rs"]
#[expect(dead_code, clippy::unwrap_used, clippy::panic, reason = "the engine's tests use all of it")]
mod bed;

pub use bed::{Bed, POOL, TPU};
