//! The engine is dropped after each write, and a new one goes on from the API objects alone: the end is the same.

mod model;

use model::build::job;
use model::{Cluster, condition};
use serde_json::json;
use sluice_engine::{Kind, Purpose};

/// Two jobs, the second of which preempts the first; the first runs again when the second is done.
fn play(cut_after: Option<usize>) -> (Cluster, usize) {
    let mut c = Cluster::plain();
    c.api.priority_class("low", 100);
    c.api.priority_class("high", 1000);
    c.api.simple("3", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.writes_left = cut_after;
    for (name, class) in [("low", "low"), ("high", "high")] {
        let mut view = job("team-a", name, "lq", 3, "1");
        view.workload_priority_class = Some(class.to_owned());
        c.api.add_job(view);
        settle_or_restart(&mut c);
    }
    c.api.finish_job("high", true);
    settle_or_restart(&mut c);
    c.advance(400);
    let writes = c.writes.len();
    (c, writes)
}

/// Settles; when the writes are used up, the engine is replaced and goes on.
fn settle_or_restart(c: &mut Cluster) {
    c.settle();
    if c.writes_left == Some(0) {
        c.writes_left = None;
        c.restart();
        c.settle();
    }
}

#[test]
fn a_cut_after_any_write_leads_to_the_same_end() {
    let (_, writes) = play(None);
    assert!(writes > 12, "the play is long enough to be cut: {writes}");
    for cut in 0..=writes {
        let (c, _) = play(Some(cut));
        assert_eq!(condition(&c.workload("high"), "Finished"), "True", "cut after {cut}");
        let low = c.workload("low");
        assert_eq!(condition(&low, "Admitted"), "True", "cut after {cut}");
        assert_ne!(condition(&low, "Evicted"), "True", "cut after {cut}");
        assert!(!c.api.job("low").view.suspended, "cut after {cut}");
        assert_eq!(c.api.workloads().len(), 2, "cut after {cut}");
    }
}

#[test]
fn a_list_that_is_older_than_our_own_writes_takes_nothing_away() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    let before = c.api.revision();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    let writes = c.writes.len();
    c.list(Kind::Workload, Vec::new(), before);
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    assert_eq!(c.written(Purpose::CreateWorkload), 2, "one of each: {:?}", &c.writes[writes..]);
    assert!(c.api.job("b").view.suspended, "the quota is not free");
}

#[test]
fn what_a_list_lacks_is_gone_if_it_does_not_exist() {
    for newer in [true, false] {
        let mut c = Cluster::plain();
        c.api.simple("0", &json!({}));
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.settle();
        let workload = c.api.names(Kind::Workload).swap_remove(0);
        c.api.vanish(&workload);
        let revision = if newer { c.api.revision() } else { 0 };
        c.list(Kind::Workload, Vec::new(), revision);
        c.settle();
        assert_eq!(c.written(Purpose::CreateWorkload), 2, "it is made anew");
    }
}
