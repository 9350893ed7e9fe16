//! Usage above a limit that is excused: a reservation that a former leader wrote late.

use super::super::excess::LATE_WRITE;
use super::*;

const LEASE: &str = "/registry/leases/kueue-system/sluice";
const OTHER_JOB: &str = "/registry/jobs/ns/k";

impl History {
    /// A replica begins to lead.
    fn leader(self, name: &str) -> Self {
        self.put(LEASE, json!({"spec": {"holderIdentity": name}}))
    }

    /// The other Workload no longer holds quota, and says why.
    fn unreserved(self, why: &str) -> Self {
        let condition = json!({"type": "QuotaReserved", "status": "False", "message": why});
        self.late(&[]).with(|workload| workload["status"]["conditions"] = json!([condition]))
    }

    fn revoked(self) -> Self {
        self.unreserved("Quota was reserved by a former leader, and other Workloads hold that quota now")
    }
}

/// Two Workloads of jobs of their own hold two processors each of a queue that has two; the second one's reservation may be taken back.
fn a_late_reservation(of_first: impl Fn(History) -> History) -> History {
    of_first(History::new().leader("b").job(true, &[]).workload(WORKLOAD, ADMITTED, 2)).late(ADMITTED)
}

/// How many limits are exceeded, and how many reservations are excused, if the first quota is given so long after the replica began to lead.
fn judged_after(history: &History, long: Duration, user_deletes: bool) -> (usize, usize) {
    let mut checker = Checker::default();
    if user_deletes {
        checker.expect_deletion(OTHER_JOB);
    }
    for change in &history.0 {
        if change.key == WORKLOAD {
            checker.clock(long);
        }
        checker.observe(change).unwrap();
    }
    checker.end_excesses();
    let above = checker.violations().iter().filter(|one| one.rule == Rule::AboveQuota).count();
    (above, checker.account().late_reservations)
}

fn judged(history: &History) -> (usize, usize) {
    judged_after(history, Duration::ZERO, false)
}

fn runs(history: History) -> History {
    history.job(false, &[])
}

fn waits(history: History) -> History {
    history
}

#[test]
fn a_reservation_that_is_taken_back_before_anything_runs_on_it_is_counted_apart() {
    assert_eq!(judged(&a_late_reservation(waits).revoked()), (0, 1));
    assert_eq!(judged(&a_late_reservation(runs).revoked()), (0, 1), "what runs is within the limit");
    assert_eq!(judged(&a_late_reservation(waits).late_job(true).job(false, &[]).revoked()), (0, 1));
    assert_eq!(judged(&a_late_reservation(waits)), (1, 0), "it stays");
    assert_eq!(judged(&a_late_reservation(runs).late_job(false).revoked()), (1, 0), "both run");
    let back = a_late_reservation(waits).late_job(false).late_job(true).late(EVICTED);
    assert_eq!(judged(&back.job(false, &[])), (1, 0), "its pods may still be there");
    let ended = a_late_reservation(runs).workload(WORKLOAD, &["QuotaReserved", "Finished"], 2);
    assert_eq!(judged(&ended.late_job(false)), (0, 1), "it runs when the other has ended");
}

#[test]
fn a_reservation_above_a_limit_that_no_former_leader_made_is_noticed() {
    let revoked = a_late_reservation(runs).revoked();
    assert_eq!(judged_after(&revoked, LATE_WRITE, false), (0, 1));
    assert_eq!(judged_after(&revoked, LATE_WRITE + Duration::from_secs(1), false), (1, 0));
    let mut unled = a_late_reservation(runs).revoked();
    unled.0.retain(|change| change.key != LEASE);
    assert_eq!(judged(&unled), (1, 0));
    // The present leader noticed nothing: what it gave too much goes for another reason.
    assert_eq!(judged(&a_late_reservation(runs).unreserved("The workload is deactivated")), (1, 0));
    assert_eq!(judged(&a_late_reservation(waits).late(EVICTED).unreserved("Preempted")), (1, 0));
}

#[test]
fn a_reservation_above_a_limit_may_end_as_a_user_deletes_its_job() {
    let deleted = a_late_reservation(runs).late_job(true).delete(OTHER_JOB).delete(OTHER);
    assert_eq!(judged_after(&deleted, Duration::ZERO, true), (0, 1));
    assert_eq!(judged(&deleted), (1, 0));
    // Or as a user deletes the Workload itself.
    let going = |history: History| {
        history
            .late(ADMITTED)
            .with(|one| one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"))
    };
    assert_eq!(judged(&going(a_late_reservation(runs).late_job(true)).delete(OTHER)), (0, 1));
}
