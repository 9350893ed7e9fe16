//! Kinds that serve: their pods wait for admission in their place (docs/reference/07-integrations.md 7.4).
//!
//! The webhook marks the pods in their templates. The controller of the kind makes the pods, each of which waits for admission.

mod deployment;

pub(crate) use deployment::Deployment;
