//! The examples of the repository, simulated and compared with their `expected.yaml`.
#![expect(clippy::disallowed_methods, reason = "a test reads its files")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue stops")]

mod story;

use story::Story;

fn holds(folder: &str, name: &str) {
    Story::read(folder, name).check();
}

#[test]
fn jobsets_of_one_file_share_the_chips() {
    holds("tpu-multislice", "one-file");
}

#[test]
fn the_order_of_the_tutorial_is_kept() {
    holds("tpu-multislice", "page-order");
}

#[test]
fn the_variant_for_standard_clusters_behaves_the_same() {
    holds("tpu-multislice", "standard");
}

#[test]
fn a_high_priority_evicts_a_low_one_which_finishes_afterwards() {
    holds("tpu-preemption", "preemption");
}

#[test]
fn borrowed_quota_is_taken_back() {
    holds("cohort-borrowing", "borrow-and-reclaim");
}

#[test]
fn what_is_not_lent_stays_free() {
    holds("cohort-borrowing", "lending-limit");
}

#[test]
fn strict_queues_wait_and_best_effort_ones_do_not() {
    holds("cohort-borrowing", "strictness");
}

#[test]
fn the_next_flavor_comes_before_borrowing() {
    holds("gpu-flavors", "next-flavor-before-borrowing");
}

#[test]
fn borrowing_comes_first_where_the_queue_says_so() {
    holds("gpu-flavors", "borrowing-before-next-flavor");
}

#[test]
fn queue_names_in_annotations_count() {
    holds("hotswap", "queued-by-annotation");
}

#[test]
fn a_pool_that_is_about_to_go_is_left_and_the_preempted_one_runs_again() {
    holds("hotswap", "pool-fails");
}

#[test]
fn nodes_are_asked_for_before_a_job_starts() {
    holds("dws", "provisioned");
}

#[test]
fn a_request_that_fails_is_made_again() {
    holds("dws", "retried");
}

#[test]
fn the_providers_quota_keeps_a_job_waiting_and_its_text_is_shown() {
    holds("dws", "quota-of-the-provider");
}

#[test]
fn a_jobset_without_a_queue_is_left_alone() {
    holds("hotswap", "without-queue-name");
}
