//! A long run with faults, played from a seed: users create, change and delete jobs in many queues, and everything below them has faults. Every
//! change in etcd is recorded, and checked by a checker that shares no code with the tested program.
//!
//! * `plan` is derived from the seed: the jobs, the actions of their users, and the faults;
//! * `world` has the queues, `load` the users, `fleet` the replicas of the manager, `faults` their faults;
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
