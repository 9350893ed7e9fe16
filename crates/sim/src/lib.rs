//! A virtual cluster under virtual time around the real engine and the real job adapters.
//!
//! [`Simulation`] holds the objects, plays the API server, the job controllers and the kubelets, and lets the engine
//! decide; [`Record`] keeps what happened, [`Report`] what it comes to. It must never contain: an admission decision, I/O, a
//! clock, randomness without a seed, an order that comes from a hash. Invariants:
//!
//! * the same manifests, scenario, configuration and seed give the same record, byte for byte;
//! * what one job draws does not depend on the others, so that two futures can be compared;
//! * no manifest makes it panic: what cannot be read is said with file, document and field.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

mod agenda;
mod autoscaler;
mod cancel;
pub mod duration;
pub mod explain;
#[cfg(feature = "faults")]
pub mod faults;
mod futures;
mod json;
mod left_out;
pub mod live;
mod machines;
pub mod manifest;
mod millis;
mod nodes;
mod object;
mod observed;
mod options;
mod packed;
pub mod parts;
pub mod places;
mod play;
mod pods;
mod random;
mod record;
pub mod replay;
pub mod report;
pub mod resource;
pub mod scenario;
mod schema;
pub mod series;
mod serving;
mod setup;
mod simulation;
pub mod starts;
pub mod stops;
mod unread;
pub mod whatif;
mod world;

pub use sluice_engine::Kind;

pub use cancel::Cancel;
pub use left_out::LeftOut;
pub use manifest::{File, Manifest, ManifestError, Manifests, Skipped, Source};
pub use observed::Observed;
pub use options::Options;
pub use packed::Packed;
pub use pods::{DEFAULT_RUN_TIME, RUN_SECONDS, SUBMIT_AFTER_SECONDS, queue_of};
pub use random::Distribution;
pub use record::{
    Hold, HoldEnd, Holding, JobRecord, LocalStop, NodeChange, NodeSeen, PlaceChange, PlacedSet, QuotaChange,
    Record, Recorded, TimelineEntry, TimelineEvent, show_amount,
};
pub use report::Report;
pub use scenario::Scenario;
pub use serving::{PodMemory, bytes_to_make};
pub use setup::{prepare, prepare_with_log, settings};
pub use simulation::{SimError, Simulation};
