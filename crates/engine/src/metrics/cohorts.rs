//! The gauges of Cohorts (docs/reference/05-metrics.md), and the position of a Cohort in its tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::Name;

use super::{
    COHORT_INFO, COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS, COHORT_SUBTREE_QUOTA,
    COHORT_SUBTREE_RESOURCE_RESERVATIONS, COHORT_SUBTREE_USAGE, COHORT_WEIGHTED_SHARE, base_units, number,
    scrape::{LIGHT, Page},
    share,
};
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};

impl Engine {
    /// The gauges of a Cohort, if there is one of that name. `admitted` has what the ClusterQueues below it have admitted, by their custom labels:
    /// queues with equal labels share a series.
    pub(super) fn cohort_gauges(
        &self,
        name: &Name,
        admitted: Option<BTreeMap<Vec<Arc<str>>, usize>>,
        out: &mut Page<'_>,
    ) {
        if name.is_empty() || self.deleted_cohorts.contains(name) {
            return;
        }
        let Some(figures) = self.scheduler.cohort_status(name) else { return };
        let parent = self.parent_cohort(name).unwrap_or_default();
        out.add(COHORT_INFO, &[name, &parent, &self.root_cohort(name)], 1.0);
        if self.config.fair_sharing.is_some() {
            out.add(COHORT_WEIGHTED_SHARE, &[name], share(figures.exact_share));
        }
        for (flavor, resource, quota, usage) in &figures.subtree {
            out.add(COHORT_SUBTREE_QUOTA, &[name, flavor, resource], base_units(resource, *quota));
            out.add(COHORT_SUBTREE_USAGE, &[name, flavor, resource], base_units(resource, *usage));
        }
        let (reservations, nodes) = self.scheduler.cohort_reservations(name);
        out.looked_at(nodes / LIGHT);
        for (flavor, resource, held) in reservations {
            let value = base_units(&resource, held);
            out.add(COHORT_SUBTREE_RESOURCE_RESERVATIONS, &[name, &flavor, &resource], value);
        }
        let none = || {
            let nothing = ObjectRef::cluster(Kind::ClusterQueue, "");
            BTreeMap::from([(self.custom.of(&nothing), 0)])
        };
        for (labels, n) in admitted.unwrap_or_else(none) {
            out.add_with(COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS, &[name], number(n), &labels);
        }
    }

    /// The cohort above a cohort.
    pub(crate) fn parent_cohort(&self, name: &str) -> Option<Name> {
        self.world.cohorts.get(name)?.spec.parent_name.as_deref().filter(|p| !p.is_empty()).map(Name::from)
    }

    /// The cohort at the top; a cycle ends where it would begin again.
    pub(super) fn root_cohort(&self, name: &str) -> Name {
        let mut seen = vec![Name::from(name)];
        while let Some(parent) = self.parent_cohort(&seen[seen.len() - 1])
            && !seen.contains(&parent)
        {
            seen.push(parent);
        }
        seen.pop().unwrap_or_default()
    }

    /// The cohorts above a ClusterQueue, nearest first.
    pub(crate) fn cohorts_above(&self, queue: &str) -> Vec<Name> {
        let first = self.world.cluster_queues.get(queue).and_then(|q| q.spec.cohort_name.as_deref());
        let mut above: Vec<Name> = first.filter(|c| !c.is_empty()).map(Name::from).into_iter().collect();
        while let Some(parent) = above.last().and_then(|last| self.parent_cohort(last))
            && !above.contains(&parent)
        {
            above.push(parent);
        }
        above
    }

    /// The object of a Cohort was deleted. As long as queues or Cohorts name it, it is still a Cohort, but without series.
    pub(crate) fn note_deleted_cohort(&mut self, name: &Name) {
        let named = |cohort: &Name| {
            let is = |other: Option<&str>| other == Some(&**cohort);
            self.world.cluster_queues.values().any(|q| is(q.spec.cohort_name.as_deref()))
                || self.world.cohorts.values().any(|c| is(c.spec.parent_name.as_deref()))
        };
        let mut deleted = std::mem::take(&mut self.deleted_cohorts);
        deleted.insert(Name::clone(name));
        deleted.retain(named);
        self.deleted_cohorts = deleted;
    }
}
