//! A tenant tries to bypass the queues by every means that a user of batch jobs has. In all cases a job that is not admitted does not run (or only
//! until it is stopped), quota holds, and the jobs of other tenants continue.
//!
//! Each story has its own tenant and namespace; all run side by side, since they mostly wait for events that must not happen, but for those of huge
//! objects and of a flood of the webhooks. The victim uses all quota of the tenants' queue, so that a hostile job in it must never run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::join_all;

mod annotations;
mod bed;
mod huge;
mod orphans;
mod owners;
mod quantities;
mod queues;
mod unsuspended;
mod workloads;

#[tokio::test]
async fn a_hostile_tenant_gains_nothing() {
    let stories = [
        annotations::marks_of_the_manager_gain_a_user_nothing().boxed_local(),
        annotations::marks_in_templates_gain_a_user_nothing().boxed_local(),
        orphans::a_job_that_is_deleted_without_its_pods_stays().boxed_local(),
        owners::an_owner_that_is_not_there_admits_nothing().boxed_local(),
        owners::a_real_owner_admits_only_what_it_made().boxed_local(),
        owners::owners_that_own_each_other_keep_nothing_running().boxed_local(),
        quantities::odd_quantities_are_refused_or_wait_or_count().boxed_local(),
        queues::a_queue_that_is_named_by_annotation_is_a_queue().boxed_local(),
        queues::a_queue_name_that_changes_takes_no_quota_along().boxed_local(),
        queues::a_queue_name_that_changes_in_any_state_gains_nothing().boxed_local(),
        queues::a_running_job_that_takes_its_queue_name_off_keeps_no_quota_for_nothing().boxed_local(),
        unsuspended::a_job_that_is_unsuspended_by_hand_is_stopped_in_every_state().boxed_local(),
        unsuspended::a_job_in_a_stopped_queue_is_stopped_and_one_with_more_pods_waits_again().boxed_local(),
        unsuspended::a_job_whose_quota_is_reserved_waits_for_its_checks().boxed_local(),
        unsuspended::a_job_that_is_finishing_gets_no_more_pods().boxed_local(),
        workloads::a_workload_that_is_not_the_jobs_own_admits_nothing().boxed_local(),
        workloads::a_batch_user_writes_no_workload().boxed_local(),
        workloads::a_tenant_who_writes_workloads_runs_nothing_beyond_quota().boxed_local(),
    ];
    let over = AtomicBool::new(false);
    let stories = async {
        join_all(stories).await;
        // A write of such an object takes the API server seconds, in which the others would wait.
        huge::huge_objects_wait_like_others_or_are_refused().boxed_local().await;
        huge::jobs_of_many_values_take_little_memory().boxed_local().await;
        // Beside its flood a write of another story may wait for longer than the API server does.
        huge::what_the_default_queue_takes_is_taken_however_large_and_under_any_load().boxed_local().await;
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(stories, bed::memory_stays(&over));
}
