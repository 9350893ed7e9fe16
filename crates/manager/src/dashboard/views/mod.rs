//! The views: what a viewer sees of a snapshot. Pure.

#[cfg(test)]
mod budgets;
pub mod displaced;
pub mod items;
pub mod lent;
mod life;
pub mod nodes;
pub mod now;
pub mod topology;
pub mod workload;
