//! The watched kinds, and how each becomes an object of the engine.

use sluice_api::{slim, v1beta2};
use sluice_engine::input::{Kind, Object};

use super::pump::{Decoded, Watched};

/// Implements [`Watched`] for types that the engine takes as they are.
macro_rules! watched {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl Watched for $type {
            fn decode(self) -> Decoded {
                Decoded::Object(Object::$variant(Box::new(self)))
            }
        })*
    };
}

watched! {
    v1beta2::ResourceFlavor => ResourceFlavor,
    v1beta2::ClusterQueue => ClusterQueue,
    v1beta2::LocalQueue => LocalQueue,
    v1beta2::Cohort => Cohort,
    v1beta2::AdmissionCheck => AdmissionCheck,
    v1beta2::WorkloadPriorityClass => WorkloadPriorityClass,
    slim::Workload => Workload,
    slim::PriorityClass => PriorityClass,
    slim::Namespace => Namespace,
    slim::Node => Node,
    slim::LimitRange => LimitRange,
    slim::RuntimeClass => RuntimeClass,
}

/// The kinds of our own group; without any of them nothing works.
pub const OWN: [Kind; 7] = [
    Kind::ResourceFlavor,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::Cohort,
    Kind::AdmissionCheck,
    Kind::Workload,
    Kind::WorkloadPriorityClass,
];

/// The kinds of the cluster that are always there.
pub const CLUSTER: [Kind; 5] =
    [Kind::PriorityClass, Kind::Namespace, Kind::Node, Kind::LimitRange, Kind::RuntimeClass];
