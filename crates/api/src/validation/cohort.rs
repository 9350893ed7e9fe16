//! Cohort (docs/reference/01-api.md 1.7).

use super::FieldError;
use super::quota::{Node, check_groups, check_weight};
use crate::v1beta2::Cohort;

/// Resource groups and weight. An update that leaves the spec alone is let through.
pub fn validate_cohort(new: &Cohort, old: Option<&Cohort>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_some_and(|old| old.spec == new.spec) {
        return errors;
    }
    let node = Node {
        has_parent: new.spec.parent_name.as_ref().is_some_and(|name| !name.is_empty()),
        lends_own_quota_only: false,
        parent: "parent",
    };
    check_groups("spec.resourceGroups", &new.spec.resource_groups, node, &mut errors);
    check_weight("spec.fairSharing", new.spec.fair_sharing.as_ref(), &mut errors);
    errors
}
