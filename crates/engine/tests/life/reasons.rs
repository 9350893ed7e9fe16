//! Reasons that have two names: the granular ones, and those from before them (docs/reference/03-conditions-events.md 3.1 "legacy"; docs/reference/10-traps.md 1).

use std::sync::Arc;

use serde_json::json;
use sluice_api::gates::Gate;
use sluice_api::job::JobView;

use crate::contract::{ADMISSION, Row, WORKLOADS, answer, check_with, cq, submit};
use crate::model::{Api, Cluster};
use crate::waiting::{checked, gate};

/// The transitions whose reasons have two names: what happens, and what is reported with the granular and with the older reasons.
type Twice = (
    fn(&mut Cluster),
    [&'static [(&'static str, &'static str)]; 2],
    &'static [[(&'static str, &'static str); 2]],
);

fn no_flavor(view: &mut JobView) {
    let mut template = (**view.pod_sets[0].template.as_ref().unwrap()).clone();
    template.spec.as_mut().unwrap().node_selector = Some([("pool".to_owned(), "other".to_owned())].into());
    view.pod_sets[0].template = Some(Arc::new(template));
}

const TWICE: &[Twice] = &[
    (
        |c| {
            c.api.simple("2", &json!({}));
            submit(c, "a", "lq", 1, no_flavor);
        },
        [
            &[(
                "QuotaReserved",
                "False/NoMatchingFlavor: couldn't assign flavors to pod set main: flavor default doesn't match node affinity",
            )],
            &[(
                "QuotaReserved",
                "False/Pending: couldn't assign flavors to pod set main: flavor default doesn't match node affinity",
            )],
        ],
        &[[
            (
                ADMISSION,
                "Warning NoMatchingFlavor: couldn't assign flavors to pod set main: flavor default doesn't match node affinity",
            ),
            (
                ADMISSION,
                "Warning Pending: couldn't assign flavors to pod set main: flavor default doesn't match node affinity",
            ),
        ]],
    ),
    (
        |c| {
            c.api.simple("2", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
            c.api.priority_class("high", 9);
            submit(c, "victim", "lq", 2, |_| {});
            c.pods_vanish = false;
            submit(c, "a", "lq", 1, |view| view.workload_priority_class = Some("high".into()));
        },
        [
            &[(
                "QuotaReserved",
                "False/WaitingForPreemptedWorkloads: couldn't assign flavors to pod set main: insufficient unused quota for \
                 cpu in flavor default, 1 more needed. Pending the preemption of 1 workload(s)",
            )],
            &[(
                "QuotaReserved",
                "False/Pending: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor \
                 default, 1 more needed. Pending the preemption of 1 workload(s)",
            )],
        ],
        &[[
            (
                ADMISSION,
                "Warning WaitingForPreemptedWorkloads: couldn't assign flavors to pod set main: insufficient unused quota \
                 for cpu in flavor default, 1 more needed. Pending the preemption of 1 workload(s)",
            ),
            (
                ADMISSION,
                "Warning Pending: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor \
                 default, 1 more needed. Pending the preemption of 1 workload(s)",
            ),
        ]],
    ),
    (
        |c| {
            submit(c, "a", "nowhere", 1, |_| {});
            c.advance(5);
        },
        [
            &[("QuotaReserved", "False/Misconfigured: LocalQueue nowhere doesn't exist")],
            &[("QuotaReserved", "False/Inadmissible: LocalQueue nowhere doesn't exist")],
        ],
        &[[
            (WORKLOADS, "Warning Misconfigured: LocalQueue nowhere doesn't exist"),
            (WORKLOADS, "Warning Inadmissible: LocalQueue nowhere doesn't exist"),
        ]],
    ),
    (
        |c| {
            c.api.simple("2", &json!({"stopPolicy": "Hold"}));
            submit(c, "a", "lq", 1, |_| {});
        },
        [
            &[("QuotaReserved", "False/Suspended: ClusterQueue cq is inactive")],
            &[("QuotaReserved", "False/Inadmissible: ClusterQueue cq is inactive")],
        ],
        &[],
    ),
    // It lost its reservation to a check that asks for time.
    (
        |c| {
            checked(c);
            answer(c, "a", "Ready", "");
            let workload = Api::workload_ref(&c.workload("a"));
            c.api.edit_status(&workload, |status| {
                status["admissionChecks"][0]["requeueAfterSeconds"] = json!(900);
            });
            answer(c, "a", "Retry", "later");
        },
        [
            &[
                (
                    "QuotaReserved",
                    "False/PendingEvaluation: Evicted due to AdmissionCheck in Retry state: \"ok\" (later)",
                ),
                ("Admitted", "False/NoReservation: The workload has no reservation"),
                (
                    "Requeued",
                    "False/AdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"ok\" (later)",
                ),
            ],
            &[
                (
                    "QuotaReserved",
                    "False/Pending: Evicted due to AdmissionCheck in Retry state: \"ok\" (later)",
                ),
                (
                    "Admitted",
                    "False/NoReservationUnsatisfiedChecks: The workload has no reservation and not all checks ready",
                ),
            ],
        ],
        &[],
    ),
    // The queue asks for a check more while it runs: it stays admitted.
    (
        |c| {
            c.api.simple("2", &json!({}));
            c.api.active_check("late");
            submit(c, "a", "lq", 1, |_| {});
            let checks = json!({"admissionChecks": [{"name": "late"}]});
            c.api.edit(&cq(), &json!({"spec": {"admissionChecksStrategy": checks}}));
        },
        [&[
            ("QuotaReserved", "True/QuotaReserved: Quota reserved in ClusterQueue cq"),
            ("Admitted", "True/Admitted: The workload is admitted"),
        ]; 2],
        &[],
    ),
];

#[test]
fn every_reason_has_its_granular_and_its_older_name() {
    for (at, granular) in [true, false].into_iter().enumerate() {
        let config = gate(Gate::UnadmittedWorkloadsObservability, granular);
        for (play, conditions, events) in TWICE {
            let events: Vec<_> = events.iter().map(|both| both[at]).collect();
            let row = Row { of: "a", play: *play, conditions: conditions[at], events: events.leak() };
            check_with(&config, &[row]);
        }
    }
}
