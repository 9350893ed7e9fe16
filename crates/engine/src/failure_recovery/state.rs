//! What is kept of pods that are stuck on nodes that cannot be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use sluice_core::Name;

use crate::hotswap::pod::PodKey;

/// Pods that are being deleted and may be forced.
#[derive(Clone, Debug, Default)]
pub(crate) struct TerminatingPods {
    pub(super) pods: BTreeMap<PodKey, TerminatingPod>,
    pub(super) by_node: BTreeMap<Name, BTreeSet<PodKey>>,
}

/// A stuck pod.
#[derive(Clone, Debug)]
pub(super) struct TerminatingPod {
    pub(super) uid: Arc<str>,
    pub(super) node: Name,
    /// When it may be forced.
    pub(super) due: Timestamp,
    /// The grace of its deletion in seconds; 0 once any client deleted it without grace.
    pub(super) grace: i64,
    /// Whether its phase is final.
    pub(super) ended: bool,
    /// Whether its status says that it was forced.
    pub(super) reported: bool,
}
