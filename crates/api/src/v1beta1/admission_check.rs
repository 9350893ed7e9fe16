//! AdmissionCheck (docs/reference/01-api.md 1.6).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;
use crate::schema::{KIND_NAME, LABEL, SUBDOMAIN};

custom_resource! {
    /// AdmissionCheck is a gate between the reservation of quota and admission.
    pub struct AdmissionCheck("v1beta1", "admissionchecks", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: AdmissionCheckSpec,
        }
        if_some {
            /// What was observed and decided.
            status: AdmissionCheckStatus,
        }
    }
}

/// Who decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// The controller that sets the state of this check on workloads; cannot be changed.
    #[schemars(
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "field is immutable"}])
    )]
    pub controller_name: String,
    /// Has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = 15))]
    pub retry_delay_minutes: Option<i64>,
    /// An object with the controller's parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

/// A reference to a cluster-scoped object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParametersReference {
    /// The object's API group.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub api_group: String,
    /// The object's kind.
    #[schemars(length(max = 63), regex(pattern = KIND_NAME))]
    pub kind: String,
    /// The object's name.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
}

/// Whether the check works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStatus {
    /// `Active`, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions_unbounded")]
    pub conditions: Vec<Condition>,
}
