//! Resource groups and weights, which ClusterQueues and Cohorts share (docs/reference/01-api.md 1.2 and 1.7).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use sluice_quantity::Quantity;

use super::syntax::qualified_name;
use super::{FieldError, NEGATIVE};
use crate::v1beta2::{FairSharing, FlavorQuotas, ResourceGroup, ResourceQuota};

/// The most flavors, and the most resources, of all groups together.
const MAX_TOTAL: usize = 256;
/// The most quotas of one group: flavors times resources.
const MAX_QUOTAS: usize = 512;

/// Whose groups they are.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// Whether the queue has a cohort. Without one it cannot borrow or lend.
    pub has_parent: bool,
    /// Whether the lending limit is bounded by the nominal quota. A Cohort may lend what its children have.
    pub lends_own_quota_only: bool,
    /// The word for what is missing: `cohort` or `parent`.
    pub parent: &'static str,
}

pub(super) fn check_groups(path: &str, groups: &[ResourceGroup], node: Node, errors: &mut Vec<FieldError>) {
    let flavors: usize = groups.iter().map(|group| group.flavors.len()).sum();
    if flavors > MAX_TOTAL {
        errors.push(FieldError {
            detail: format!("all groups together must have at most {MAX_TOTAL} flavors"),
            ..FieldError::too_many(path, flavors, MAX_TOTAL)
        });
    }
    let resources: usize = groups.iter().map(|group| group.covered_resources.len()).sum();
    if resources > MAX_TOTAL {
        errors.push(FieldError {
            detail: format!("all groups together must have at most {MAX_TOTAL} coveredResources"),
            ..FieldError::too_many(path, resources, MAX_TOTAL)
        });
    }
    let mut seen_resources = BTreeSet::new();
    let mut seen_flavors = BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let quotas = group.flavors.len() * group.covered_resources.len();
        if quotas > MAX_QUOTAS {
            errors.push(FieldError {
                detail: format!(
                    "a group must have at most {MAX_QUOTAS} quotas (flavors times coveredResources)"
                ),
                ..FieldError::too_many(&path, quotas, MAX_QUOTAS)
            });
        }
        for (at, resource) in group.covered_resources.iter().enumerate() {
            let path = format!("{path}.coveredResources[{at}]");
            let problems = qualified_name(resource);
            errors.extend(problems.into_iter().map(|p| FieldError::invalid(&path, resource, p)));
            if !seen_resources.insert(resource.as_str()) {
                errors.push(FieldError::duplicate(path, resource));
            }
        }
        for (at, flavor) in group.flavors.iter().enumerate() {
            let path = format!("{path}.flavors[{at}]");
            check_flavor(&path, flavor, &group.covered_resources, node, errors);
            if !seen_flavors.insert(flavor.name.as_str()) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &flavor.name));
            }
        }
    }
}

fn check_flavor(
    path: &str,
    flavor: &FlavorQuotas,
    covered: &[String],
    node: Node,
    errors: &mut Vec<FieldError>,
) {
    if flavor.resources.len() != covered.len() {
        errors.push(FieldError::invalid(
            format!("{path}.resources"),
            flavor.resources.len(),
            "must have the same number of resources as the coveredResources",
        ));
    }
    for (index, quota) in flavor.resources.iter().enumerate() {
        let path = format!("{path}.resources[{index}]");
        if covered.get(index).is_some_and(|name| *name != quota.name) {
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                &quota.name,
                "must match the name in coveredResources",
            ));
        }
        check_quota(&path, quota, node, errors);
    }
}

fn check_quota(path: &str, quota: &ResourceQuota, node: Node, errors: &mut Vec<FieldError>) {
    let nominal = amount(&format!("{path}.nominalQuota"), &quota.nominal_quota, errors);
    for (field, limit) in [("borrowingLimit", &quota.borrowing_limit), ("lendingLimit", &quota.lending_limit)]
    {
        let Some(limit) = limit else { continue };
        let path = format!("{path}.{field}");
        let parsed = amount(&path, limit, errors);
        if !node.has_parent {
            errors.push(FieldError::invalid(
                &path,
                limit,
                format!("must be nil when {} is empty", node.parent),
            ));
        }
        if field == "lendingLimit"
            && node.lends_own_quota_only
            && let (Some(limit_nano), Some(nominal)) = (parsed, nominal)
            && limit_nano > nominal
        {
            errors.push(FieldError::invalid(path, limit, "must be less than or equal to the nominalQuota"));
        }
    }
}

/// The amount in nano units, if it is valid.
fn amount(path: &str, text: &Text, errors: &mut Vec<FieldError>) -> Option<i128> {
    match Quantity::parse(&text.0) {
        Ok(quantity) => {
            if quantity.is_negative() {
                errors.push(FieldError::invalid(path, text, NEGATIVE));
            }
            Some(quantity.nano())
        }
        Err(error) => {
            errors.push(FieldError::invalid(path, text, error.to_string()));
            None
        }
    }
}

/// A weight must be 0 or more than one nano, since shares are divided by it.
pub(super) fn check_weight(path: &str, fair_sharing: Option<&FairSharing>, errors: &mut Vec<FieldError>) {
    let Some(weight) = fair_sharing.and_then(|fair_sharing| fair_sharing.weight.as_ref()) else { return };
    let path = format!("{path}.weight");
    if amount(&path, weight, errors) == Some(1) {
        errors.push(FieldError::invalid(path, weight, "When not 0, weight must be > 10e-9"));
    }
}
