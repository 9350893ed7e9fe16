//! The access to a cluster that the manager and the plugin `kubectl kueue` share.
//!
//! It must not contain anything that only one of them needs, or anything about queueing: it knows the API and a client, but no engine.
//! Invariants:
//! * it only reads;
//! * an error prints with all its causes, each once.
#![forbid(unsafe_code)]

pub mod bounded;
pub mod error_chain;
pub mod kubeconfig;
pub mod lease;
pub mod list;
pub mod patience;
mod proxy;
pub mod requests;
pub mod settings;
mod transport;
pub mod version;
