//! The contract's texts (docs/reference/03-conditions-events.md): rows of its tables of conditions and events that no other lifecycle test covers,
//! each compared with a simulated lifecycle: type, status, reason, message and reporter.

use std::sync::Arc;

use serde_json::json;
use sluice_api::job::JobView;
use sluice_core::FairSharing;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WriteError};

use crate::model::build::job;
use crate::model::{Api, Cluster, reported};

/// One transition: what happens, and what is then reported about the Workload of a job.
pub struct Row {
    /// The job.
    pub of: &'static str,
    pub play: fn(&mut Cluster),
    /// Conditions: type, and `status/reason: message`.
    pub conditions: &'static [(&'static str, &'static str)],
    /// Events that were recorded meanwhile: reporter, and `type reason: note`.
    pub events: &'static [(&'static str, &'static str)],
}

pub const ADMISSION: &str = "kueue-admission";
pub const WORKLOADS: &str = "kueue-workload-controller";
pub const JOBS: &str = "batch/job-kueue-controller";

/// Replaces `{W:job}` (UID of the Workload), `{N:job}` (its name) and `{J:job}` (UID of the job).
fn filled(c: &Cluster, text: &str) -> String {
    let jobs: Vec<String> = c.api.jobs().map(|(job, _)| job.name.to_string()).collect();
    let mut text = text.to_owned();
    for name in jobs.iter().filter(|name| !c.api.workloads_of(&c.api.job(name).view.job.uid).is_empty()) {
        let metadata = c.workload(name).metadata;
        text = text
            .replace(&format!("{{W:{name}}}"), &metadata.uid.unwrap_or_default())
            .replace(&format!("{{N:{name}}}"), &metadata.name.unwrap_or_default())
            .replace(&format!("{{J:{name}}}"), &c.api.job(name).view.job.uid);
    }
    text
}

/// What differs from a row.
fn differences(c: &Cluster, row: &Row) -> Vec<String> {
    let mut wrong = Vec::new();
    for (type_, wanted) in row.conditions {
        let (is, wanted) = (reported(&c.workload(row.of), type_), filled(c, wanted));
        if is != wanted {
            wrong.push(format!("{type_}: {is:?} instead of {wanted:?}"));
        }
    }
    let events: Vec<_> = c
        .events
        .iter()
        .map(|e| (e.reporter, format!("{:?} {}: {}", e.type_, e.reason, e.note), e.action == e.reason))
        .collect();
    for (reporter, wanted) in row.events {
        let wanted = filled(c, wanted);
        if !events.iter().any(|(by, reported, same)| by == reporter && *reported == wanted && *same) {
            wrong.push(format!("{reporter} {wanted:?} not among {events:#?}"));
        }
    }
    wrong
}

fn check(rows: &[Row]) {
    check_with(&EngineConfig::default(), rows);
}

/// Plays the rows under a configuration.
pub fn check_with(config: &EngineConfig, rows: &[Row]) {
    let mut wrong = Vec::new();
    for row in rows {
        let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..config.clone() });
        c.api.namespace("team-a", &[]);
        (row.play)(&mut c);
        c.settle();
        wrong.extend(differences(&c, row));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub fn cq() -> ObjectRef {
    ObjectRef::cluster(Kind::ClusterQueue, "cq")
}

/// A job of `pods` pods with one processor each.
pub fn submit(c: &mut Cluster, name: &str, queue: &str, pods: i32, change: impl FnOnce(&mut JobView)) {
    let mut view = job("team-a", name, queue, pods, "1");
    change(&mut view);
    c.api.add_job(view);
    c.settle();
    c.advance(1);
}

/// The check of a job's Workload answers.
pub fn answer(c: &mut Cluster, job: &str, state: &str, message: &str) {
    let workload = Api::workload_ref(&c.workload(job));
    c.api.edit_status(&workload, |status| {
        status["admissionChecks"][0]["state"] = json!(state);
        status["admissionChecks"][0]["message"] = json!(message);
    });
    c.settle();
}

#[test]
fn why_a_workload_waits() {
    check(&[
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({}));
                submit(c, "a", "lq", 1, |view| {
                    let mut template = (**view.pod_sets[0].template.as_ref().unwrap()).clone();
                    let spec = template.spec.as_mut().unwrap();
                    spec.node_selector = Some([("pool".to_owned(), "other".to_owned())].into());
                    view.pod_sets[0].template = Some(Arc::new(template));
                });
            },
            conditions: &[(
                "QuotaReserved",
                "False/NoMatchingFlavor: couldn't assign flavors to pod set main: flavor default doesn't match node affinity",
            )],
            events: &[(
                ADMISSION,
                "Warning NoMatchingFlavor: couldn't assign flavors to pod set main: flavor default doesn't match node affinity",
            )],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({}));
                submit(c, "a", "lq", 5, |_| {});
            },
            conditions: &[(
                "QuotaReserved",
                "False/ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, \
                 previously considered podsets requests (0) + current podset request (5) > maximum capacity (2)",
            )],
            events: &[],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({}));
                submit(c, "a", "nowhere", 1, |_| {});
            },
            conditions: &[("QuotaReserved", "False/Misconfigured: LocalQueue nowhere doesn't exist")],
            events: &[],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.local_queue("team-a", "lq", "nowhere");
                submit(c, "a", "lq", 1, |_| {});
            },
            conditions: &[("QuotaReserved", "False/Misconfigured: ClusterQueue nowhere doesn't exist")],
            events: &[],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({"stopPolicy": "Hold"}));
                submit(c, "a", "lq", 1, |_| {});
            },
            conditions: &[("QuotaReserved", "False/Suspended: ClusterQueue cq is inactive")],
            events: &[],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}));
                submit(c, "a", "lq", 1, |_| {});
            },
            conditions: &[(
                "QuotaReserved",
                "False/Misconfigured: workload namespace doesn't match ClusterQueue selector",
            )],
            events: &[],
        },
    ]);
}

#[test]
fn from_a_job_to_its_end() {
    check(&[
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "ok"}]}}));
                c.api.active_check("ok");
                submit(c, "a", "lq", 1, |_| {});
            },
            conditions: &[
                ("QuotaReserved", "True/QuotaReserved: Quota reserved in ClusterQueue cq"),
                ("Admitted", "False/UnsatisfiedAdmissionChecks: The workload has not all checks ready"),
            ],
            events: &[
                (JOBS, "Normal CreatedWorkload: Created Workload: team-a/{N:a}"),
                (
                    ADMISSION,
                    "Normal QuotaReserved: Quota reserved in ClusterQueue cq, wait time since queued was 0s",
                ),
            ],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "ok"}]}}));
                c.api.active_check("ok");
                submit(c, "a", "lq", 1, |_| {});
                answer(c, "a", "Ready", "");
                c.pods_vanish = false;
                answer(c, "a", "Retry", "later");
            },
            conditions: &[
                ("QuotaReserved", "True/QuotaReserved: Quota reserved in ClusterQueue cq"),
                (
                    "Evicted",
                    "True/AdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"ok\" (later)",
                ),
            ],
            events: &[(
                WORKLOADS,
                "Normal EvictedDueToAdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"ok\" (later)",
            )],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({}));
                c.fail.push_back((Purpose::StartJob, WriteError::Unstartable("the label l is there".into())));
                submit(c, "a", "lq", 1, |_| {});
            },
            conditions: &[("Finished", "True/FailedToStart: the label l is there")],
            events: &[(JOBS, "Warning FailedToStart: the label l is there")],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({}));
                submit(c, "a", "lq", 1, |_| {});
                c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
                c.settle();
                c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "None"}}));
            },
            conditions: &[
                ("Evicted", "False/QuotaReserved: Previously: The ClusterQueue is stopped"),
                (
                    "Requeued",
                    "True/ClusterQueueRestarted: The ClusterQueue was restarted after being stopped",
                ),
            ],
            events: &[
                (WORKLOADS, "Normal EvictedDueToClusterQueueStopped: The ClusterQueue is stopped"),
                (JOBS, "Normal Stopped: The ClusterQueue is stopped"),
                (JOBS, "Normal Started: Admitted by clusterQueue cq"),
            ],
        },
        Row {
            of: "a",
            play: |c| {
                c.api.simple("2", &json!({}));
                submit(c, "a", "lq", 1, |_| {});
                let workload = Api::workload_ref(&c.workload("a"));
                c.api.edit(&workload, &json!({"spec": {"active": false}}));
            },
            conditions: &[
                ("Evicted", "True/Deactivated: The workload is deactivated"),
                ("QuotaReserved", "False/Deactivated: The workload is deactivated"),
                ("Requeued", "False/Deactivated: The workload is deactivated"),
                ("Admitted", "False/NoReservation: The workload has no reservation"),
            ],
            events: &[(WORKLOADS, "Normal EvictedDueToDeactivated: The workload is deactivated")],
        },
    ]);
}

/// `cq` and `other` in a cohort, each with this much; `more` is what `cq` may preempt.
pub fn cohort(c: &mut Cluster, own: &str, others: &str, more: serde_json::Value) {
    let mut spec = more;
    spec["cohortName"] = json!("co");
    c.api.simple(own, &spec);
    c.api.cluster_queue("other", "default", others, &json!({"cohortName": "co"}));
    c.api.local_queue("team-a", "lq-other", "other");
    c.api.priority_class("high", 1000);
    c.settle();
}

#[test]
fn the_workload_that_a_victim_is_preempted_for() {
    check(&[
        Row {
            of: "victim",
            play: |c| {
                cohort(c, "2", "0", json!({"preemption": {"reclaimWithinCohort": "Any"}}));
                submit(c, "victim", "lq-other", 2, |_| {});
                c.pods_vanish = false;
                submit(c, "a", "lq", 2, |_| {});
            },
            conditions: &[(
                "Preempted",
                "True/InCohortReclamation: Preempted to accommodate a workload (UID: {W:a}, JobUID: {J:a}) due to \
                 reclamation within the cohort; preemptor path: /co/cq; preemptee path: /co/other",
            )],
            events: &[
                (
                    ADMISSION,
                    "Normal Preempted: Preempted to accommodate a workload (UID: {W:a}, JobUID: {J:a}) due to \
                     reclamation within the cohort; preemptor path: /co/cq; preemptee path: /co/other; \
                     preemptor effective priority: 0 (base: 0, boost: 0); \
                     preemptee effective priority: 0 (base: 0, boost: 0)",
                ),
                (
                    ADMISSION,
                    "Normal PreemptedWorkload: Preempted workload team-a/{N:victim} (UID: {W:victim}) in ClusterQueue \
                     other; preemptor effective priority: 0 (base: 0, boost: 0); \
                     preemptee effective priority: 0 (base: 0, boost: 0)",
                ),
                (
                    WORKLOADS,
                    "Normal EvictedDueToPreempted: Preempted to accommodate a workload (UID: {W:a}, JobUID: {J:a}) due \
                     to reclamation within the cohort; preemptor path: /co/cq; preemptee path: /co/other",
                ),
            ],
        },
        Row {
            of: "victim",
            play: |c| {
                let may =
                    json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}});
                cohort(c, "2", "2", json!({"preemption": may}));
                submit(c, "victim", "lq-other", 4, |_| {});
                c.pods_vanish = false;
                submit(c, "a", "lq", 3, |view| view.workload_priority_class = Some("high".into()));
            },
            conditions: &[(
                "Preempted",
                "True/InCohortReclaimWhileBorrowing: Preempted to accommodate a workload (UID: {W:a}, JobUID: {J:a}) due \
                 to reclamation within the cohort while borrowing; preemptor path: /co/cq; preemptee path: /co/other",
            )],
            events: &[],
        },
        Row {
            of: "victim",
            play: |c| {
                c.config.fair_sharing = Some(FairSharing::default());
                c.restart();
                cohort(c, "0", "0", json!({"preemption": {"reclaimWithinCohort": "Any"}}));
                c.api.cluster_queue("lender", "default", "4", &json!({"cohortName": "co"}));
                submit(c, "first", "lq-other", 2, |_| {});
                submit(c, "victim", "lq-other", 2, |_| {});
                c.pods_vanish = false;
                submit(c, "a", "lq", 1, |_| {});
            },
            conditions: &[(
                "Preempted",
                "True/InCohortFairSharing: Preempted to accommodate a workload (UID: {W:a}, JobUID: {J:a}) due to \
                 Fair Sharing within the cohort; preemptor path: /co/cq; preemptee path: /co/other",
            )],
            events: &[],
        },
    ]);
}

#[test]
fn a_job_that_cannot_become_a_workload_gets_the_reason() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    submit(&mut c, "a", "lq", 1, |view| view.invalid = Some("too many pod sets: 19, at most 18".into()));
    let reported: Vec<_> =
        c.events.iter().map(|e| (e.reporter, e.reason.as_str(), e.note.as_str())).collect();
    assert_eq!(reported, [(JOBS, "ErrWorkloadCompose", "too many pod sets: 19, at most 18")]);
    assert!(c.api.workloads().is_empty());
}
