//! The topology domains of an admitted pod set, by columns (docs/reference/01-api.md 1.4; docs/reference/06-algorithm.md 6.21).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which domains hold how many pods. The order of the domains matters: pods go by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
    "message": "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
}]))]
pub struct TopologyAssignment {
    /// The labels of the levels, from the widest; only the host name's where that is the lowest.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(max = 317)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub levels: Vec<String>,
    /// Runs of domains, each compressed for itself.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A run of domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
        "message": "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice",
    },
    {
        "rule": "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        "message": "podCounts.individual must have length equal to domainCount",
    },
]))]
pub struct TopologyAssignmentSlice {
    /// How many domains.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// The domains' values, one entry for each level.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_per_level: Vec<TopologyAssignmentSliceLevelValues>,
    /// The domains' numbers of pods.
    pub pod_counts: TopologyAssignmentSlicePodCounts,
}

/// The values of one level: one for all domains, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.universal) != has(self.individual)",
    "message": "exactly one of the fields in [universal individual] must be set",
}]))]
pub struct TopologyAssignmentSliceLevelValues {
    /// The value of every domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub universal: Option<String>,
    /// A value for each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<TopologyAssignmentSliceLevelIndividualValues>,
}

/// Value i is `prefix + roots[i] + suffix`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSliceLevelIndividualValues {
    /// What all values begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// What all values end with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub suffix: Option<String>,
    /// The middle part of each value.
    #[schemars(
        length(min = 1, max = 100_000),
        inner(length(max = 63)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub roots: Vec<String>,
}

/// Numbers of pods: one for all domains, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.universal) != has(self.individual)",
    "message": "exactly one of the fields in [universal individual] must be set",
}]))]
pub struct TopologyAssignmentSlicePodCounts {
    /// The number of every domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub universal: Option<i32>,
    /// A number for each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 100_000),
        inner(range(min = 1)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub individual: Vec<i32>,
}
