//! For each finding, the tests of its state: they carry out the advice and the job starts, or the answer says why nothing can be done.

use super::*;

/// What the tests of a finding show.
enum Shown {
    /// What is advised is done, or waited for, and the job starts or runs well again.
    Ends(&'static [fn()]),
    /// The same with the real programs of a control plane: tests below `tests/tests/operator/explain`.
    EndsOnAControlPlane(&'static [&'static str]),
    /// It is reported, and what is advised is done in the core's own tests, `rules/s6_5_process.rs`: objects come into this state by too long a way.
    EndsInTheCore(&'static [fn()], &'static [&'static str]),
    /// It is reported, and nothing lets this job start, or nothing that a virtual cluster has.
    Reported(&'static [fn()], &'static str),
}

use Shown::{Ends, EndsInTheCore, EndsOnAControlPlane, Reported};

fn shown(code: Code) -> Shown {
    let table: &'static [fn()] = &[table::each_state_is_reported_correctly_and_the_advice_lets_the_job_start];
    match code {
        Code::PriorityClassMissing => {
            Ends(&[
                table::each_state_is_reported_correctly_and_the_advice_lets_the_job_start,
                alternatives::a_priority_class_that_is_missing_need_not_be_named,
                unqueued::a_priority_class_that_is_missing_is_reported_wherever_the_kind_names_it,
            ])
        }
        Code::NamespaceNotSelected => {
            Ends(&[table::each_state_is_reported_correctly_and_the_advice_lets_the_job_start, alternatives::a_namespace_that_no_labels_can_open_may_use_another_queue])
        }
        Code::ResourceNotCovered => Ends(&[
            table::each_state_is_reported_correctly_and_the_advice_lets_the_job_start,
            alternatives::a_resource_that_is_not_covered_may_be_left_out_or_asked_of_another_queue,
        ]),
        Code::Misconfigured => {
            Ends(&[table::each_state_is_reported_correctly_and_the_advice_lets_the_job_start, alternatives::pods_that_a_limit_range_refuses_start_when_it_allows_them])
        }
        Code::QueueNameMissing
        | Code::LocalQueueMissing
        | Code::ClusterQueueMissing
        | Code::LocalQueueStopped
        | Code::ClusterQueueStopped
        | Code::ClusterQueueIncomplete
        | Code::Gated
        | Code::TooLarge
        | Code::FlavorMismatch
        | Code::TopologyMismatch => Ends(table),
        Code::NamespaceNotManaged => Ends(&[
            waiting::a_job_of_a_namespace_that_is_not_managed_is_queued_when_the_namespace_gets_its_label,
            alternatives::a_job_of_a_namespace_that_is_not_managed_runs_in_another_or_when_the_selector_takes_it,
        ]),
        Code::PartOfAnother => {
            Ends(&[unqueued::a_question_about_a_part_leads_to_the_whole_and_what_lets_that_start])
        }
        Code::PodGroupIncomplete => {
            Ends(&[
                waiting::a_group_that_lacks_pods_says_how_many_and_starts_when_they_are_made,
                waiting::a_preempted_group_is_queued_again_when_its_pods_are_made_again,
            ])
        }
        Code::WithoutWorkload => Ends(&[
            unqueued::a_job_of_which_no_workload_can_be_made_says_why_and_starts_when_that_is_mended,
            unqueued::a_job_that_waits_for_a_workload_of_a_name_says_the_name_and_starts_when_it_is_made,
        ]),
        Code::Inactive => Ends(&[
            objects::a_deactivated_workload_starts_when_it_is_activated_as_it_is_said,
            waiting::a_check_that_rejects_says_that_it_is_deactivated_and_it_starts_when_it_is_activated,
        ]),
        Code::OnHold => Ends(&[
            waiting::a_job_that_wants_no_pods_starts_when_it_wants_some,
            unqueued::what_was_made_without_pods_is_queued_when_it_asks_for_some,
        ]),
        Code::BackingOff => Ends(&[waiting::a_job_that_was_put_back_is_tried_again_when_it_is_said]),
        Code::BehindOthers => Ends(&[table::a_job_that_waits_for_others_knows_how_many_come_before_it]),
        Code::PreemptionPending => Ends(&[waiting::what_it_preempts_is_named_until_its_pods_are_gone]),
        Code::WaitingForPodsReady => {
            Ends(&[waiting::whose_pods_keep_it_waiting_is_named_until_they_are_ready])
        }
        Code::QuotaShort => Ends(&[waiting::quota_that_is_in_use_is_reported_and_free_when_its_holder_ends]),
        Code::TopologyShort => Ends(&[
            topology::a_topology_that_is_short_names_level_and_domains_and_offers_only_wishes_that_work,
        ]),
        Code::CapacityShort => Ends(&[
            nodes::displaced_work_that_waits_for_nodes_says_which_how_many_and_since_when,
            nodes::displaced_work_runs_on_a_node_that_is_made_schedulable_again_or_added,
            nodes::work_that_lost_a_node_moves_when_other_work_on_the_others_has_ended,
        ]),
        Code::NodesLost => Ends(&[
            nodes::work_that_lost_a_node_moves_to_the_one_that_is_added,
            nodes::work_that_lost_a_node_runs_on_it_again_when_it_is_repaired,
            nodes::work_whose_queue_would_not_take_it_back_moves_when_the_queue_would,
        ]),
        Code::CheckPending => Ends(&[
            waiting::what_the_provider_says_is_reported_and_that_nodes_are_chosen_only_then,
            waiting::a_check_whose_object_is_gone_continues_when_it_is_created_again,
            alternatives::a_check_whose_object_is_gone_may_be_taken_out_of_the_queue,
        ]),
        Code::NodesNotChosen => {
            Ends(&[waiting::what_the_provider_says_is_reported_and_that_nodes_are_chosen_only_then])
        }
        Code::CheckRetry | Code::EvictedBefore => {
            Ends(&[waiting::a_check_that_wants_a_retry_says_what_follows_and_when])
        }
        Code::CheckRejected => Ends(&[
            waiting::a_check_that_rejects_says_that_it_is_deactivated_and_it_starts_when_it_is_activated,
        ]),
        Code::LocalQueueTerminating => {
            Ends(&[
                terminating::a_job_in_a_local_queue_that_goes_starts_in_another,
                alternatives::a_local_queue_that_goes_may_be_made_again_once_it_is_gone,
            ])
        }
        Code::ClusterQueueTerminating => Ends(&[
            terminating::a_job_in_a_cluster_queue_that_goes_starts_in_another,
            terminating::a_job_in_a_cluster_queue_that_goes_starts_when_the_queue_is_made_again,
        ]),
        Code::FlavorTerminating => Ends(&[terminating::a_job_whose_flavor_goes_starts_with_another]),
        Code::CohortTerminating => Ends(&[
            terminating::a_job_whose_cohort_goes_starts_in_another,
            terminating::a_job_whose_cohort_goes_starts_when_that_is_made_again,
        ]),
        Code::PodsPending => EndsOnAControlPlane(&[
            "pods_without_room_run_after_a_preemption_or_on_a_node_that_is_added",
            "pods_that_do_not_tolerate_their_nodes_run_when_the_flavor_knows_the_taint",
            "pods_whose_nodes_lack_labels_or_are_cordoned_run_when_these_are_mended",
            "pods_without_their_volume_run_when_it_is_made",
            "pods_with_a_gate_of_another_program_run_when_it_takes_the_gate_away",
            "pods_of_a_scheduler_that_does_not_run_run_when_it_does",
            "pods_that_want_a_port_that_others_have_run_when_it_is_free",
        ]),
        Code::PodsNotRunning => {
            EndsOnAControlPlane(&["explain_is_true_from_a_missing_queue_to_pods_without_a_node"])
        }
        Code::PodsNotReady => Ends(&[nodes::work_that_lost_a_node_runs_on_it_again_when_it_is_repaired]),
        Code::PodsMissing => EndsOnAControlPlane(&[
            "a_job_whose_pods_are_refused_runs_when_the_quota_of_its_namespace_takes_them",
        ]),
        Code::PreemptionHeldBack => EndsInTheCore(
            &[objects::whatever_the_engine_decides_there_is_a_finding_for_it],
            &[
                "s6_5_34_what_our_gate_holds_back_is_tried_again_after_an_arrival",
                "s6_5_34_free_quota_another_priority_or_another_policy_end_what_our_gate_holds_back",
            ],
        ),
        Code::TriedAgain => Ends(&[waiting::what_is_tried_again_by_itself_runs_after_a_while]),
        Code::Refused => Reported(
            &[nodes::what_the_manager_refuses_is_never_said_to_have_nothing_in_its_way],
            "the answer knows too little to advise",
        ),
        Code::Ended => {
            Reported(&[objects::evicted_lost_finished_deactivated_and_delayed_workloads_say_so], "it is over")
        }
        Code::BeingDeleted => {
            Ends(&[
                bounds::what_is_being_deleted_has_no_estimate_and_says_what_holds_it,
                alternatives::a_workload_that_another_program_holds_goes_when_that_lets_it_and_its_job_starts_again,
            ])
        }
        Code::NamespaceTerminating => Ends(&[
            bounds::a_namespace_that_is_being_deleted_is_reported_and_the_same_job_runs_in_another,
        ]),
        Code::PodsUnread | Code::EventsUnread | Code::ObjectsUnread => Reported(
            &[bounds::what_could_not_be_read_is_said_and_the_rest_is_answered],
            "it is about the answer, not about the job",
        ),
        Code::NodesUnread => Reported(
            &[bounds::nothing_is_tried_in_a_world_that_is_not_known_and_nothing_is_said_to_be_missing],
            "it is about the answer, not about the job",
        ),
    }
}

/// The tests that show the states of all findings, and those that only carry out advice; each once.
pub(super) fn stories() -> Vec<fn()> {
    let more: [fn(); 6] = [
        advised::a_job_that_was_admitted_a_moment_ago_has_its_pods_when_it_has_been_started,
        amounts::a_flavor_that_is_too_small_makes_no_job_smaller_that_waits_for_a_larger_one,
        unqueued::a_job_below_one_that_names_no_queue_is_no_part_of_what_is_queued,
        unqueued::a_job_below_one_that_others_manage_runs_when_the_workload_of_that_is_let_in,
        unqueued::a_pod_without_a_queue_runs_when_it_is_created_again_with_one,
        waiting::what_is_tried_again_by_itself_runs_after_a_while,
    ];
    let of_codes = Code::ALL.into_iter().flat_map(|code| match shown(code) {
        Ends(tests) | EndsInTheCore(tests, _) | Reported(tests, _) => tests,
        EndsOnAControlPlane(_) => &[],
    });
    let mut all: Vec<fn()> = Vec::new();
    for story in of_codes.copied().chain(more) {
        if !all.iter().any(|known| std::ptr::fn_addr_eq(*known, story)) {
            all.push(story);
        }
    }
    all
}

/// What is reported and cannot be ended here is named with its reason, and the tests of elsewhere are there.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its files")]
fn each_finding_has_its_state_played() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tests/operator/explain");
    let files = ["pods.rs", "states.rs", "wrong_queues.rs"]
        .map(|name| std::fs::read_to_string(format!("{folder}/{name}")).unwrap());
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/rules/s6_5_process.rs");
    let rules = std::fs::read_to_string(rules).unwrap();
    for code in Code::ALL {
        match shown(code) {
            Ends(tests) => assert!(!tests.is_empty(), "{code:?}"),
            Reported(tests, why) => assert!(!tests.is_empty() && !why.is_empty(), "{code:?}"),
            EndsInTheCore(tests, names) => {
                assert!(!tests.is_empty(), "{code:?}");
                for name in names {
                    assert!(rules.contains(&format!("fn {name}()")), "{code:?}: {name}");
                }
            }
            EndsOnAControlPlane(names) => {
                for name in names {
                    let test = format!("async fn {name}()");
                    assert!(files.iter().any(|file| file.contains(&test)), "{code:?}: {name}");
                }
            }
        }
    }
}
