//! The blocks of commands that are not runnable without a cluster, and the tests that show that they work.

/// How it is known that the commands of a block work. Lines of our programs and of make are parsed besides.
pub enum Proof {
    /// This function of a test types them, and reads them from the page.
    Typed(&'static str, &'static str),
    /// This test applies the manifests that they name, in their order. The files exist.
    Played(&'static str, &'static str),
    /// This test renders the chart with the values that they set.
    Rendered(&'static str, &'static str),
    /// They are parsed only, for this reason.
    Parsed(&'static str),
}

use Proof::{Parsed, Played, Rendered, Typed};

const QUEUES: Proof = Typed("tests/tests/operator/visibility/book.rs", "its_pages_work_as_they_are_typed");
const LAPTOP: &str = "tests/tests/operator/dashboard/laptop.rs";
const JOURNAL: &str = "tests/tests/operator/journal/page.rs";
const USAGE: Proof = Typed(JOURNAL, "works_as_it_is_typed");
const UNINSTALL: &str = "tests/tests/packaging/chart_uninstall.rs";
const SWITCHED_ON: Proof = Typed(UNINSTALL, "switched_on_as_the_pages_say");
const REMOVED: Proof = Typed(UNINSTALL, "blocks_of_the_book");
const WITHOUT_HELM: Proof =
    Typed("tests/tests/packaging/chart_install.rs", "they_are_upgraded_and_removed_as_the_page_says");
const VALUES: Proof = Rendered(
    "tests/tests/packaging/chart/book.rs",
    "values_and_commands_of_the_book_make_volumes_of_one_source",
);
const EXAMPLES: &str = "tests/tests/operator/examples.rs";
const BUILDS: Proof = Parsed("they build the programs, or an image, and play what tests play");
const HOTSWAP: Proof = Played(EXAMPLES, "hotswap_manifests_apply_verbatim_and_are_found_by_their_annotation");

/// A page, how a block of it begins, and what shows that the block works. Each row is of one block.
pub const BLOCKS: &[(&str, &str, Proof)] = &[
    ("README.md", "make try", BUILDS),
    ("README.md", "helm install ", VALUES),
    ("docs/contributing/failed-seed.md", "cargo xtask sim ", Parsed("they play a day that has failed")),
    ("docs/contributing/failed-seed.md", "make day ", Parsed("it plays a day of half an hour")),
    ("docs/contributing/test.md", "cargo build ", BUILDS),
    ("docs/start/cluster.md", "make image ", BUILDS),
    ("docs/start/cluster.md", "helm install ", VALUES),
    (
        "docs/start/cluster.md",
        "kubectl get workloads",
        Typed("tests/tests/operator/visibility/book.rs", "the_first_job_runs"),
    ),
    ("docs/start/laptop.md", "make try", BUILDS),
    ("docs/start/laptop.md", "export PATH=", BUILDS),
    ("docs/start/laptop.md", "make build", BUILDS),
    ("docs/start/laptop.md", "make demo", BUILDS),
    ("docs/tasks/dashboard.md", "sluice dashboard", Typed(LAPTOP, "commands_of_the_page")),
    (
        "docs/tasks/dashboard.md",
        "kubectl -n kueue-system get configmap ",
        Typed(LAPTOP, "commands_of_the_page"),
    ),
    (
        "docs/tasks/dashboard.md",
        "kubectl -n kueue-system port-forward ",
        Rendered("tests/tests/packaging/chart/dashboard.rs", "the_page_forwards_a_port_that_the_service_has"),
    ),
    (
        "docs/tasks/dashboard.md",
        "kubectl -n team-a create token ",
        Typed("tests/tests/operator/dashboard.rs", "typed_token"),
    ),
    (
        "docs/tasks/from-kueue.md",
        "# 1. ",
        Typed(
            "tests/tests/packaging/migrate_readme.rs",
            "the_book_s_commands_switch_from_kueue_without_losing_anything",
        ),
    ),
    ("docs/tasks/journal.md", "helm upgrade ", SWITCHED_ON),
    ("docs/tasks/journal.md", "# Google Cloud ", USAGE),
    ("docs/tasks/journal.md", "kubectl kueue usage ", USAGE),
    ("docs/tasks/journal.md", "kubectl kueue report ", USAGE),
    ("docs/tasks/journal.md", "kubectl get --raw ", USAGE),
    ("docs/tasks/maintenance.md", "kubectl kueue stop ", QUEUES),
    ("docs/tasks/rbac.md", "kubectl create rolebinding ", QUEUES),
    ("docs/tasks/team-quotas.md", "kubectl create namespace ", QUEUES),
    ("docs/tasks/team-quotas.md", "kubectl kueue stop ", QUEUES),
    ("docs/tasks/tracing.md", "helm upgrade ", SWITCHED_ON),
    ("docs/tasks/tracing.md", "kubectl kueue explain ", Typed(JOURNAL, "finds_a_trace")),
    ("docs/tasks/upgrade-uninstall.md", "sluice migrate storage ", REMOVED),
    ("docs/tasks/upgrade-uninstall.md", "kubectl get pods ", REMOVED),
    ("docs/tasks/upgrade-uninstall.md", "kubectl get crd ", REMOVED),
    ("docs/tasks/upgrade-uninstall.md", "for folder in ", WITHOUT_HELM),
    ("docs/tasks/upgrade-uninstall.md", "kubectl apply --server-side ", WITHOUT_HELM),
    ("docs/tasks/visibility.md", "kubectl kueue list workload ", QUEUES),
    ("docs/tasks/visibility.md", "kubectl kueue explain job/train -n team-a\n", QUEUES),
    ("docs/tasks/visibility.md", "kubectl kueue explain job/train -n team-a --what-if ", QUEUES),
    ("docs/troubleshooting/symptoms.md", "kubectl kueue explain ", QUEUES),
    (
        "examples/dws/README.md",
        "kubectl apply ",
        Played(EXAMPLES, "dws_asks_for_nodes_and_starts_when_they_are_there"),
    ),
    (
        "examples/gpu-flavors/README.md",
        "kubectl -n research get workloads ",
        Played(EXAMPLES, "gpu_flavors_are_chosen_by_taints_order_and_borrowing"),
    ),
    ("examples/hotswap/README.md", "cd examples/hotswap", HOTSWAP),
    ("examples/hotswap/README.md", "kubectl delete jobsets ", HOTSWAP),
    (
        "examples/hotswap/README.md",
        "kubectl label nodes -l cloud.google.com/gke-nodepool=v6e-pool-1 \
         cloud.google.com/active-node-maintenance=",
        HOTSWAP,
    ),
    (
        "examples/hotswap/README.md",
        "kubectl label nodes -l cloud.google.com/gke-nodepool=v6e-pool-1 \
         cloud.google.com/active-node-maintenance-",
        HOTSWAP,
    ),
    ("examples/simulate/README.md", "sluice simulate queues.yaml ", Parsed("the files are the reader's")),
    (
        "examples/topology/README.md",
        "kubectl apply ",
        Played(EXAMPLES, "topology_keeps_pods_together_and_says_what_is_too_wide"),
    ),
    (
        "examples/topology/README.md",
        "kubectl get workload ",
        Played(EXAMPLES, "topology_keeps_pods_together_and_says_what_is_too_wide"),
    ),
    (
        "examples/tpu-multislice/README.md",
        "make demo ",
        Played(EXAMPLES, "tpu_multislice_runs_in_the_order_of_one_file_and_in_the_order_of_the_page"),
    ),
    (
        "examples/tpu-preemption/README.md",
        "kubectl apply ",
        Played(EXAMPLES, "tpu_preemption_evicts_the_low_priority_jobset_which_finishes_afterwards"),
    ),
];
