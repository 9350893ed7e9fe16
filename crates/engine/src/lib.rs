//! The state machine between Kubernetes objects and the admission core: inputs in, effects out.
//!
//! [`Engine::apply`] takes objects and answers of writes; [`Engine::cycle`] decides and returns effects. It must never contain: I/O, a clock,
//! randomness, an order that comes from a hash. Invariants:
//!
//! * The objects in the API server are the only durable state: an engine that lists them again continues where another stopped.
//! * At most one write per object is without an answer; what the core assumed meanwhile is undone if the write fails.
//! * Quota is given back only after the job's pods are gone, and a job starts only after its admission was written.
//! * Nothing is decided before the initial state is complete, and nothing by a replica that does not lead.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

mod account;
mod alarm;
mod answers;
mod aside;
pub mod attempt;
mod attempts;
mod backoff;
mod boxed_map;
mod changes;
pub mod config;
mod debug;
mod edges;
pub mod effect;
mod engine;
mod external;
mod failure_recovery;
mod failures;
mod followed;
mod gone;
mod hotswap;
mod in_use;
mod index_map;
mod ingest;
pub mod input;
mod job_pod;
mod journal;
mod json_text;
mod kept;
mod keys;
mod left_behind;
mod lifecycle;
mod list;
mod logging;
mod lost_answer;
pub mod metrics;
mod namesakes;
mod observe;
mod outage;
mod outbox;
mod pod_jobs;
mod positions;
pub mod provisioning;
mod retry;
mod state;
mod status;
mod templates;
mod topologies;
mod topology;
mod trouble;
mod unheeded;
mod unreported;
mod unstoppable;
mod version;
mod wanted;
mod work;
mod world;

pub use account::{Account, Accounting, PodSetFits, Stage, WhyNotMoved};
pub use backoff::Backoff;
pub use changes::Change;
pub use config::{EngineConfig, Gather, Part, ResourceConfig, StatusDelay, Transformation, WaitForPodsReady};
pub use debug::Explanation;
pub use effect::{
    Effect, EffectId, EndPods, Event, EventType, LeftPods, Level, LogLine, Observation, PodStep, PodsOf,
    Purpose, Write, WriteRequest,
};
pub use engine::Engine;
pub use input::{Input, Kind, Object, ObjectRef, WaitingWrites, WriteError};
pub use json_text::JsonText;
pub use lifecycle::ancestor::Whole;
pub use lifecycle::report::same_words;
pub use lifecycle::slices::is_superseded;
pub use metrics::{FitSearch, LargestFits, ShapeFit};
pub use positions::{Moves, WaitingWorkload};
pub use provisioning::template::TemplateSource;
pub use sluice_core::{LargestFit, Name, WorkloadKey};
pub use state::State;
pub use work::Work;

/// The reporter of what the scheduler decides (docs/reference/03-conditions-events.md 3.6).
pub const REPORTER_ADMISSION: &str = "kueue-admission";
/// The reporter of what the workload controller decides.
pub(crate) const REPORTER_WORKLOAD: &str = "kueue-workload-controller";
