//! What people run at a command line: the plugin `kubectl kueue`, and the simulator's commands, which `sluice` has too.
//!
//! It must never contain an admission decision: those come from `sluice-sim`, which asks the engine, or from the manager.
//! Invariants:
//! * what explains, simulates or lists only reads; what writes says so in its name (`create`, `stop`, `resume`, `delete`);
//! * a world is read the same way for a person's command and for the manager's page of explanations.
#![forbid(unsafe_code)]

pub mod ask;
pub mod ask_explain;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod complete;
pub mod connection;
pub mod create;
pub mod delete;
pub mod error_chain;
pub mod explain;
pub mod jsonpath;
pub mod kubectl;
pub mod leader;
pub mod list;
pub mod live;
pub mod output;
pub mod print;
pub mod replay;
pub mod resource;
pub mod settings;
pub mod simulate;
pub mod switch;
pub mod version;
pub mod write;
