//! The commands: the plugin `kubectl kueue`, migration, and the simulator's commands with their output. `sluice` has the last two as well.
//!
//! It must never contain an admission decision: those come from `sluice-sim`, which asks the engine, or from the manager.
//! Invariants:
//! * what explains, simulates or lists only reads; what writes says so in its name (`create`, `stop`, `resume`, `delete`, `migrate storage`);
//! * a world is read the same way for a person's command and for the manager's page of explanations.
#![forbid(unsafe_code)]

pub mod ask;
pub mod ask_explain;
pub mod cli;
pub mod cluster;
pub mod complete;
pub mod connection;
pub mod create;
pub mod delete;
mod deployed;
pub mod explain;
pub mod html;
pub mod integration;
pub mod jsonpath;
#[cfg(test)]
mod kinds;
pub mod kubectl;
pub mod leader;
pub mod list;
pub mod made;
pub mod migrate;
pub mod output;
pub mod print;
pub mod replay;
pub mod report;
pub mod simulate;
pub mod switch;
pub mod switch_values;
pub mod table;
pub mod usage;
pub mod version;
pub mod write;
