//! The oracle reproduces the outcome of Kueue's own core on the engine cases: evidence that it implements the reference correctly. The core runs the
//! same cases in `cargo xtask case`. The outcomes of `borrow-threshold`, `fair-flavors`, `fair-preempt`, `fair-tree-limits`, `partial-admission`,
//! `resource-groups`, `strict-fifo`, `tree-limits` and `two-resources` are not Kueue's: core and oracle, written separately, have the same result.
//! `minPods`, `resourceGroups` and `flavorFungibility` in them are extensions, too.

use crate::oracle::bench::Case;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn check(case: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/bench");
    let text = std::fs::read_to_string(folder.join(format!("{case}.yaml"))).expect("the case is in the tree");
    let case_file = Case::parse(&text);
    let run = case_file.run();
    let expected = case_file.expected;
    let mut outcome = run.outcome;
    // Digests that the case does not list were not stable or hold nothing.
    let digest: BTreeMap<_, _> =
        outcome.digest.into_iter().filter(|(name, _)| expected.digest.contains_key(name)).collect();
    outcome.digest = digest;
    if outcome != expected {
        let folder = std::env::temp_dir().join("sluice-oracle");
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join(format!("{case}.seq"));
        std::fs::write(&path, run.sequence.join("\n") + "\n" + &run.evictions.join("\n")).expect("writable");
        eprintln!("the oracle's events are in {}", path.display());
    }
    assert_eq!(outcome, expected, "{case}");
}

macro_rules! cases {
    ($($test:ident: $case:literal,)*) => {
        $(#[test]
        fn $test() {
            check($case);
        })*
    };
}

cases! {
    borrow_threshold: "borrow-threshold",
    churn_baseline: "churn-baseline",
    churn_borrow: "churn-borrow",
    fair_churn_baseline: "fair-churn-baseline",
    fair_flavors: "fair-flavors",
    fair_preempt: "fair-preempt",
    fair_tree_limits: "fair-tree-limits",
    fair_weights_borrow: "fair-weights-borrow",
    fit_30_queues: "fit-30cq-15k",
    partial_admission: "partial-admission",
    preempt_cascade: "preempt-cascade",
    preempt_reclaim: "preempt-reclaim",
    preempt_within_queue: "preempt-within-cq",
    resource_groups: "resource-groups",
    strict_fifo: "strict-fifo",
    tree_limits: "tree-limits",
    two_resources: "two-resources",
}

macro_rules! big_cases {
    ($($test:ident: $case:literal,)*) => {
        // Minutes in a debug build: `make exhaustive` runs them.
        $(#[cfg(feature = "exhaustive")]
        #[test]
        fn $test() {
            check($case);
        })*
    };
}

big_cases! {
    churn_large_scale: "churn-large-scale",
    fair_one_cohort: "fair-1cohort-200cq",
    fit_1000_queues: "fit-1000cq-50k",
    fit_one_queue: "fit-1cq-10k",
}
