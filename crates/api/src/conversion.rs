//! Conversion between v1beta1 and v1beta2 (docs/reference/01-api.md, "v1beta1 differences"), on JSON documents.
//!
//! Only differing fields are changed, and quantities become strings; the rest of an object, mainly its pod templates, is passed through unread. A
//! document may be anything, since the API server converts before it validates. A value of an unexpected type is left for the API server to refuse;
//! only an unreadable topology assignment is an error, because the other version cannot express it.
//!
//! Lost in the conversion to v1beta1: `concurrentAdmissionPolicy`, preemption gates, layered slice constraints, `quotaManagement`. Lost in the
//! conversion to v1beta2: the unused fields of status, `retryDelayMinutes`, the old names of the fungibility policies, a priority class without
//! source, and whether checks were listed by name or by strategy.

mod error;
mod object;
mod quantities;
mod queues;
mod review;
pub mod topology;
mod workload;

use std::fmt;

use serde_json::Value;

use crate::v1beta2::{ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, Workload};
pub use error::ConversionError;
pub use review::{ConversionRequest, ConversionReview, MAX_ANSWER, answer_review};

use object::text;

/// A version of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Deprecated.
    V1beta1,
    /// Stored.
    V1beta2,
}

impl Version {
    /// The `apiVersion` of objects of this version.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1beta1 => "kueue.x-k8s.io/v1beta1",
            Self::V1beta2 => "kueue.x-k8s.io/v1beta2",
        }
    }

    /// The version that an `apiVersion` names.
    pub fn parse(api_version: &str) -> Option<Self> {
        [Self::V1beta1, Self::V1beta2].into_iter().find(|version| version.api_version() == api_version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.api_version())
    }
}

/// Converts one object in place. Kinds with the same form in both versions only change their `apiVersion`.
///
/// # Errors
///
/// If the document is not an object, has an `apiVersion` other than the two versions, or has a topology assignment that cannot be read or has more
/// than 100,000 domains.
pub fn convert(object: &mut Value, to: Version) -> Result<(), ConversionError> {
    convert_root(object, to, false).map(drop)
}

/// Converts; says whether topology assignments were left compressed, which `may_leave` allows.
fn convert_root(object: &mut Value, to: Version, may_leave: bool) -> Result<bool, ConversionError> {
    let root = object.as_object_mut().ok_or(ConversionError::NotAnObject)?;
    let named = text(root, "apiVersion").unwrap_or_default();
    let from = Version::parse(named).ok_or_else(|| ConversionError::ApiVersion(named.to_owned()))?;
    if from == to {
        return Ok(false);
    }
    let kind = text(root, "kind").unwrap_or_default().to_owned();
    let up = to == Version::V1beta2;
    quantities::to_strings(object, &kind);
    let root = object.as_object_mut().ok_or(ConversionError::NotAnObject)?;
    match kind.as_str() {
        ClusterQueue::KIND => queues::cluster_queue(root, up),
        LocalQueue::KIND => queues::local_queue(root, up),
        Cohort::KIND => queues::cohort(root, up),
        MultiKueueCluster::KIND => queues::multikueue_cluster(root, up),
        Workload::KIND if up => workload::convert(root, workload::To::V1beta2)?,
        Workload::KIND if may_leave => workload::convert(root, workload::To::CompressedV1beta1)?,
        Workload::KIND => workload::convert(root, workload::To::V1beta1)?,
        _ => {}
    }
    root.insert("apiVersion".to_owned(), to.api_version().into());
    Ok(may_leave && !up && kind == Workload::KIND)
}
