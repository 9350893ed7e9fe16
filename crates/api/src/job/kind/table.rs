//! The built-in kinds. Nothing else lists them.
//!
//! An entry is `NAME by folder::ADAPTER;`. That folder of `crates/jobs/src` has the kind's descriptor, which is included here, and its adapter.
//! `pub` before it makes its module public. Entries are sorted by framework.

use super::JobKind;
use super::integration::{CleanUp, Integration, PLAIN, PartNames, Parts};
use super::pods_at::{CountAt, PartsAt, PodPlace, PodsAt};
use crate::gates::Gate;
use crate::job::template::TemplateKind;

/// The common parts of Ray's kinds.
#[path = "../../../../jobs/src/ray/family.rs"]
mod ray;
/// The common parts of Kubeflow's kinds.
#[path = "../../../../jobs/src/replica_specs/family.rs"]
mod replica_specs;

/// Makes the kinds, their list, and the macros that list their modules and adapters. The first token is the `$` of macro variables: a generated macro
/// that has variables needs one of its own.
macro_rules! kinds {
    (($sign:tt) $($name:ident by $visible:vis $folder:ident :: $adapter:ident;)+) => {
        $(mod $folder {
            include!(concat!("../../../../jobs/src/", stringify!($folder), "/descriptor.rs"));
        })+

        impl JobKind {
            $(
                #[doc = concat!("The kind in `crates/jobs/src/", stringify!($folder), "`.")]
                pub const $name: Self = Self(&$folder::DESCRIPTOR);
            )+

            /// Every built-in kind, in the order of the frameworks' names.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];
        }

        /// The modules in the folders of [`JobKind::ALL`](crate::job::JobKind::ALL), for the root of the crate that has these folders.
        #[macro_export]
        macro_rules! job_modules {
            () => { $($visible mod $folder;)+ };
        }

        /// The adapters of [`JobKind::ALL`](crate::job::JobKind::ALL), in the same order: references to what is at these paths below the
        /// given root, which is the `crate` that has them.
        #[macro_export]
        macro_rules! job_adapters {
            ($sign root:tt) => { [$(&$sign root::$folder::$adapter),+] };
        }
    };
}

kinds! {
    ($)
    JOB by job::Job;
    DEPLOYMENT by deployment::Deployment;
    JOB_SET by jobset::JobSet;
    JAX_JOB by jaxjob::ADAPTER;
    MPI_JOB by mpijob::ADAPTER;
    PADDLE_JOB by paddlejob::ADAPTER;
    PYTORCH_JOB by pytorchjob::ADAPTER;
    TF_JOB by tfjob::ADAPTER;
    XGBOOST_JOB by xgboostjob::ADAPTER;
    LEADER_WORKER_SET by leaderworkerset::LeaderWorkerSet;
    POD by pub pods::Pod;
    RAY_CLUSTER by raycluster::ADAPTER;
    RAY_JOB by rayjob::ADAPTER;
    RAY_SERVICE by rayservice::ADAPTER;
    SPARK_APPLICATION by spark::SparkApplication;
    STATEFUL_SET by statefulset::StatefulSet;
    TRAIN_JOB by trainjob::TrainJob;
    APP_WRAPPER by appwrapper::AppWrapper;
}
