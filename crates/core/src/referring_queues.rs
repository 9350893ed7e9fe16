//! Which ClusterQueues name a flavor or a check: a change of one concerns these, not all queues.

use std::collections::{BTreeMap, BTreeSet};

use crate::Name;
use crate::intern::{FlavorId, QueueId};
use crate::resource_group::Group;
use crate::spec::ClusterQueueSpec;

/// Queues by what they name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReferringQueues {
    flavors: BTreeMap<FlavorId, BTreeSet<QueueId>>,
    checks: BTreeMap<Name, BTreeSet<QueueId>>,
}

/// The objects that a queue names.
type QueueReferences<'a> = (&'a [Group], Option<&'a ClusterQueueSpec>);

fn flavors(of: QueueReferences<'_>) -> impl Iterator<Item = FlavorId> + '_ {
    of.0.iter().flat_map(|group| &group.flavors).copied()
}

fn checks(of: QueueReferences<'_>) -> impl Iterator<Item = &Name> {
    of.1.into_iter().flat_map(|spec| &spec.admission_checks).map(|rule| &rule.name)
}

impl ReferringQueues {
    /// A queue names other objects now.
    pub(crate) fn replace(&mut self, id: QueueId, old: QueueReferences<'_>, new: QueueReferences<'_>) {
        for flavor in flavors(old) {
            if let Some(queues) = self.flavors.get_mut(&flavor) {
                queues.remove(&id);
                if queues.is_empty() {
                    self.flavors.remove(&flavor);
                }
            }
        }
        for check in checks(old) {
            if let Some(queues) = self.checks.get_mut(check) {
                queues.remove(&id);
                if queues.is_empty() {
                    self.checks.remove(check);
                }
            }
        }
        for flavor in flavors(new) {
            self.flavors.entry(flavor).or_default().insert(id);
        }
        for check in checks(new) {
            self.checks.entry(check.clone()).or_default().insert(id);
        }
    }

    /// The queues that name a flavor.
    pub(crate) fn of_flavor(&self, flavor: FlavorId) -> impl Iterator<Item = QueueId> + '_ {
        self.flavors.get(&flavor).into_iter().flatten().copied()
    }

    /// The queues that name a check.
    pub(crate) fn of_check(&self, check: &str) -> impl Iterator<Item = QueueId> + '_ {
        self.checks.get(check).into_iter().flatten().copied()
    }
}
