//! Which nodes are healthy: ready, schedulable, and not about to be removed.

use jiff::{SignedDuration, Timestamp};
use sluice_api::config::Hotswap;
use sluice_api::slim;

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Work can run on it.
    Healthy,
    /// Not ready, but not for long enough: its health stays until then.
    Wavering {
        /// Until when.
        until: Timestamp,
        /// It is cordoned.
        closed: bool,
    },
    /// What runs on it may continue, but nothing new is scheduled to it: it is cordoned.
    Closed,
    /// Work on it is lost, or will be.
    Unhealthy,
}

impl Health {
    /// Whether it counts for capacity.
    pub fn has_capacity(self) -> bool {
        matches!(self, Self::Healthy | Self::Wavering { closed: false, .. })
    }

    /// Whether a pod that leaves it cannot come back.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Closed | Self::Wavering { closed: true, .. } | Self::Unhealthy)
    }

    /// Whether it looks bad to the brake: at once, not only when it counts.
    pub fn looks_bad(self) -> bool {
        matches!(self, Self::Wavering { .. } | Self::Unhealthy)
    }
}

/// How a node is now.
pub(crate) fn of(node: &slim::Node, now: Timestamp, config: &Hotswap) -> Health {
    if node.metadata.deletion_timestamp.is_some() || departs(node, config) {
        return Health::Unhealthy;
    }
    match node.ready {
        Some(true) if node.unschedulable => Health::Closed,
        Some(true) => Health::Healthy,
        Some(false) => {
            let wavering = |until| Health::Wavering { until, closed: node.unschedulable };
            lost_from(node, config).filter(|until| *until > now).map_or(Health::Unhealthy, wavering)
        }
        // It has not reported yet, or was never a machine.
        None => Health::Unhealthy,
    }
}

/// The time since which a node counts as lost, if it is not ready: no kubelet is left that would end its pods.
pub(crate) fn lost_from(node: &slim::Node, config: &Hotswap) -> Option<Timestamp> {
    let wait = SignedDuration::from_secs(config.not_ready_after.as_secs());
    let until = node.ready_since.and_then(|since| since.checked_add(wait).ok());
    (node.ready == Some(false)).then(|| until.unwrap_or(Timestamp::MIN))
}

/// Whether a node says that it is about to go.
fn departs(node: &slim::Node, config: &Hotswap) -> bool {
    let labels = node.metadata.labels.as_ref();
    let labelled = config
        .departing_labels
        .iter()
        .any(|(key, value)| labels.and_then(|labels| labels.get(key)).is_some_and(|is| is == value));
    labelled || node.taints.iter().any(|taint| config.departing_taints.contains(&taint.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Taint;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node() -> slim::Node {
        slim::Node { ready: Some(true), ready_since: Some(at(100)), ..slim::Node::default() }
    }

    fn health(change: impl FnOnce(&mut slim::Node), now: i64) -> Health {
        let mut node = node();
        change(&mut node);
        of(&node, at(now), &Hotswap::default())
    }

    #[test]
    fn not_ready_counts_after_thirty_seconds_and_not_before() {
        assert_eq!(health(|_| {}, 100), Health::Healthy);
        assert_eq!(
            health(|n| n.ready = Some(false), 129),
            Health::Wavering { until: at(130), closed: false }
        );
        assert_eq!(health(|n| n.ready = Some(false), 130), Health::Unhealthy);
    }

    #[test]
    fn departing_signals_and_deletion_count_at_once() {
        let label = |n: &mut slim::Node, value: &str| {
            let label = ("cloud.google.com/active-node-maintenance".to_owned(), value.to_owned());
            n.metadata.labels = Some([label].into());
        };
        assert_eq!(health(|n| label(n, "true"), 100), Health::Unhealthy);
        assert_eq!(health(|n| label(n, "false"), 100), Health::Healthy);
        let taint = Taint {
            key: "cloud.google.com/impending-node-termination".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        assert_eq!(health(|n| n.taints = vec![taint], 100), Health::Unhealthy);
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(100));
        assert_eq!(health(|n| n.metadata.deletion_timestamp = Some(now), 100), Health::Unhealthy);
    }

    #[test]
    fn a_cordoned_node_takes_nothing_new_and_loses_nothing() {
        let closed = health(|n| n.unschedulable = true, 100);
        assert_eq!(closed, Health::Closed);
        assert!(!closed.has_capacity() && !closed.looks_bad());
        let wavering = health(|n| (n.unschedulable, n.ready) = (true, Some(false)), 129);
        assert!(
            !wavering.has_capacity() && wavering.looks_bad(),
            "nor does it take any once it is not ready"
        );
    }
}
