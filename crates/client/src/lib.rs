//! What the manager and the plugin `kubectl kueue` share to reach a cluster.
//!
//! It must never contain what only one of them does, nor anything of queueing: it knows the API and a client, no engine.
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
pub mod settings;
pub mod version;
