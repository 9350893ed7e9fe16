//! Prometheus metrics (reference 05).

pub mod access;
pub mod process;
pub mod registry;
