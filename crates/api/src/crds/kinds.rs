//! The parts of a kind's definition outside the schema (docs/reference/01-api.md 1.0).

use serde_json::{Value, json};

use super::structural::schema_of;
use crate::{v1beta1, v1beta2};

/// A kind.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a kind, as a definition has them")]
pub(super) struct Kind {
    pub name: &'static str,
    pub plural: &'static str,
    pub short_names: &'static [&'static str],
    pub namespaced: bool,
    pub status: bool,
    /// Whether objects convert by webhook; otherwise the shapes are the same and the API server only renames the version.
    pub converts: bool,
    /// Whether v1beta1 carries the deprecation marker.
    pub deprecated: bool,
    pub columns: &'static [Column],
    /// Fields that a field selector may name, in v1beta2.
    pub selectable: &'static [&'static str],
    pub v1beta1: fn() -> Value,
    pub v1beta2: fn() -> Value,
}

/// A column of `kubectl get`.
pub(super) struct Column {
    name: &'static str,
    type_: &'static str,
    path: &'static str,
    priority: i32,
    description: &'static str,
}

impl Column {
    pub fn document(&self) -> Value {
        let mut column = json!({
            "name": self.name,
            "type": self.type_,
            "jsonPath": self.path,
        });
        if self.priority != 0 {
            column["priority"] = self.priority.into();
        }
        if !self.description.is_empty() {
            column["description"] = self.description.into();
        }
        column
    }
}

impl Kind {
    /// The only column that differs: v1beta1 has the cohort under its older name.
    pub fn columns_v1beta1(&self) -> &'static [Column] {
        if self.name == "ClusterQueue" { CLUSTER_QUEUE_V1BETA1 } else { self.columns }
    }
}

const fn column(
    name: &'static str,
    type_: &'static str,
    path: &'static str,
    priority: i32,
    description: &'static str,
) -> Column {
    Column { name, type_, path, priority, description }
}

const STRATEGY: Column = column("Strategy", "string", ".spec.queueingStrategy", 1, "The order of admission");
const PENDING: Column = column(
    "Pending Workloads",
    "integer",
    ".status.pendingWorkloads",
    0,
    "Workloads that wait for admission",
);
const AGE: Column = column("Age", "date", ".metadata.creationTimestamp", 0, "");

const CLUSTER_QUEUE: &[Column] = &[
    column("Cohort", "string", ".spec.cohortName", 0, "The cohort that the queue shares quota with"),
    STRATEGY,
    PENDING,
    admitted(1),
];
const CLUSTER_QUEUE_V1BETA1: &[Column] = &[
    column("Cohort", "string", ".spec.cohort", 0, "The cohort that the queue shares quota with"),
    STRATEGY,
    PENDING,
    admitted(1),
];

const fn admitted(priority: i32) -> Column {
    column(
        "Admitted Workloads",
        "integer",
        ".status.admittedWorkloads",
        priority,
        "Workloads that are admitted and not finished",
    )
}

/// All kinds, sorted by the name of their definition.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "AdmissionCheck",
        plural: "admissionchecks",
        short_names: &["ac"],
        namespaced: false,
        status: true,
        converts: false,
        deprecated: true,
        columns: &[],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::AdmissionCheck>,
        v1beta2: schema_of::<v1beta2::AdmissionCheck>,
    },
    Kind {
        name: "ClusterQueue",
        plural: "clusterqueues",
        short_names: &["cq"],
        namespaced: false,
        status: true,
        converts: true,
        deprecated: true,
        columns: CLUSTER_QUEUE,
        selectable: &[],
        v1beta1: schema_of::<v1beta1::ClusterQueue>,
        v1beta2: schema_of::<v1beta2::ClusterQueue>,
    },
    Kind {
        name: "Cohort",
        plural: "cohorts",
        short_names: &["co"],
        namespaced: false,
        status: true,
        converts: true,
        deprecated: true,
        columns: &[],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::Cohort>,
        v1beta2: schema_of::<v1beta2::Cohort>,
    },
    Kind {
        name: "LocalQueue",
        plural: "localqueues",
        short_names: &["queue", "queues", "lq"],
        namespaced: true,
        status: true,
        converts: true,
        deprecated: true,
        columns: &[
            column("ClusterQueue", "string", ".spec.clusterQueue", 0, "The ClusterQueue behind the queue"),
            PENDING,
            admitted(0),
        ],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::LocalQueue>,
        v1beta2: schema_of::<v1beta2::LocalQueue>,
    },
    Kind {
        name: "MultiKueueCluster",
        plural: "multikueueclusters",
        short_names: &["mkc"],
        namespaced: false,
        status: true,
        converts: true,
        deprecated: true,
        columns: &[
            column(
                "Connected",
                "string",
                ".status.conditions[?(@.type=='Active')].status",
                0,
                "Whether the cluster is reached",
            ),
            column("Age", "date", ".metadata.creationTimestamp", 0, "Time since the cluster was declared"),
        ],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::MultiKueueCluster>,
        v1beta2: schema_of::<v1beta2::MultiKueueCluster>,
    },
    Kind {
        name: "MultiKueueConfig",
        plural: "multikueueconfigs",
        short_names: &["mkconf"],
        namespaced: false,
        status: false,
        converts: false,
        deprecated: false,
        columns: &[],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::MultiKueueConfig>,
        v1beta2: schema_of::<v1beta2::MultiKueueConfig>,
    },
    Kind {
        name: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        short_names: &["prc"],
        namespaced: false,
        status: false,
        converts: false,
        deprecated: true,
        columns: &[],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::ProvisioningRequestConfig>,
        v1beta2: schema_of::<v1beta2::ProvisioningRequestConfig>,
    },
    Kind {
        name: "ResourceFlavor",
        plural: "resourceflavors",
        short_names: &["flavor", "flavors", "rf"],
        namespaced: false,
        status: false,
        converts: false,
        deprecated: true,
        columns: &[],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::ResourceFlavor>,
        v1beta2: schema_of::<v1beta2::ResourceFlavor>,
    },
    Kind {
        name: "Topology",
        plural: "topologies",
        short_names: &["topo"],
        namespaced: false,
        status: false,
        converts: false,
        deprecated: true,
        columns: &[],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::Topology>,
        v1beta2: schema_of::<v1beta2::Topology>,
    },
    Kind {
        name: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        short_names: &["wpc"],
        namespaced: false,
        status: false,
        converts: false,
        deprecated: true,
        columns: &[column("Value", "integer", ".value", 0, "The priority; higher goes first")],
        selectable: &[],
        v1beta1: schema_of::<v1beta1::WorkloadPriorityClass>,
        v1beta2: schema_of::<v1beta2::WorkloadPriorityClass>,
    },
    Kind {
        name: "Workload",
        plural: "workloads",
        short_names: &["kwl", "kueueworkload", "kueueworkloads"],
        namespaced: true,
        status: true,
        converts: true,
        deprecated: true,
        columns: &[
            column(
                "Queue",
                "string",
                ".spec.queueName",
                0,
                "The LocalQueue that the workload was submitted to",
            ),
            column(
                "Reserved in",
                "string",
                ".status.admission.clusterQueue",
                0,
                "The ClusterQueue that holds quota for the workload",
            ),
            column(
                "Admitted",
                "string",
                ".status.conditions[?(@.type=='Admitted')].status",
                0,
                "Whether the workload may run",
            ),
            column(
                "Finished",
                "string",
                ".status.conditions[?(@.type=='Finished')].status",
                0,
                "Whether the workload is done",
            ),
            AGE,
        ],
        selectable: &[".status.admission.clusterQueue"],
        v1beta1: schema_of::<v1beta1::Workload>,
        v1beta2: schema_of::<v1beta2::Workload>,
    },
];
