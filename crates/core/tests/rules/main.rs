//! A test for every rule of the admission algorithm: small worlds through the public API, one file per section of
//! docs/reference/06-algorithm.md. `README.md` lists each rule and its test; `index` checks that the list is complete and true.
//!
//! A test is called `s<section>_<rule>_<the rule in its standard words>`. The worlds are built with `world`, a few lines
//! each. All worlds have the reference's rules only: the gates that are ours are off, except where a test says so.
#![expect(clippy::disallowed_methods, reason = "a test reads the sources")]
#![cfg(test)]

mod index;
mod ours_capacity;
mod ours_fits;
mod ours_hotswap;
mod ours_lent_nodes;
mod ours_node_trial;
mod ours_reclaimers;
mod ours_remembered;
mod ours_room;
mod ours_scan;
mod s11_2_seen;
mod s6_10_checks;
mod s6_11_topology;
mod s6_12_placement;
mod s6_14_replacement;
mod s6_15_second_pass;
mod s6_17_eviction;
mod s6_18_stop_policy;
mod s6_26_slices;
mod s6_28_amounts;
mod s6_2_resources;
mod s6_3_quota_tree;
mod s6_4_order;
mod s6_4_requeue;
mod s6_5_order;
mod s6_5_process;
mod s6_6_flavors;
mod s6_6_fungibility;
mod s6_6_partial_admission;
mod s6_7_classical_preemption;
mod s6_8_fair_sharing;
mod s6_9_admission_fair_sharing;
mod world;
