//! A long and bad day, played from a seed: users who make, change and delete jobs in many queues, and faults of everything below them. Every
//! change that etcd stores is recorded, and judged by a checker that shares no code with what is tested.
//!
//! * `plan` is what the seed means: the jobs, what their users do, and the faults;
//! * `world` is the queues, `load` the users, `fleet` the replicas of the manager, `faults` what happens to them;
//! * `recorder` follows etcd, `checker` judges; `run` plays all of it, and `report` has the figures.

pub mod checker;
mod dice;
mod faults;
mod fleet;
mod load;
mod plan;
mod pods;
mod recorder;
mod report;
mod run;
mod world;

pub use recorder::judge;
pub use report::{Report, Size};
pub use run::run;
