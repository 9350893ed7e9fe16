//! The state machine between Kubernetes objects and the admission core: inputs in, effects out.
//!
//! It must never contain I/O, a clock, randomness or an order that comes from a hash.

pub mod effect;
pub mod input;

pub use effect::{
    Effect, EffectId, Event, EventType, Level, LogLine, Observation, Purpose, Write, WriteRequest,
};
pub use input::{Input, Kind, Object, ObjectRef, WriteError};
