//! A job runs on the nodes of its admitted flavors, even if its user changes its templates.

use serde_json::json;
use sluice_api::job::{JobKind, JobView};
use sluice_engine::{Kind, ObjectRef, Purpose};

use crate::model::build::{job, made_by};
use crate::model::{Cluster, condition, reported};
use crate::unadmitted::running;

/// A queue with the flavor `default`, which has the label `pool=default`, and a suspended job of a kind in it.
fn with(kind: JobKind) -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    // Times of creation count whole seconds.
    c.advance(1);
    c.api.add_job(of(kind));
    c
}

fn of(kind: JobKind) -> JobView {
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.job.kind = kind;
    view
}

fn pool(c: &Cluster) -> Option<String> {
    c.api.job("a").view.pod_sets[0].scheduling.node_selector.get("pool").cloned()
}

fn move_to(c: &mut Cluster, pool: &str) {
    c.api.edit_job("a", |job| {
        job.view.pod_sets[0].scheduling.node_selector.insert("pool".to_owned(), pool.to_owned());
    });
    c.settle();
}

#[test]
fn a_running_job_that_its_user_sends_to_other_nodes_is_stopped_and_starts_again_on_its_own() {
    let mut c = with(JobKind::PYTORCH_JOB);
    c.settle();
    assert_eq!(pool(&c).as_deref(), Some("default"));
    move_to(&mut c, "dearer");
    assert!(c.api.job("a").view.suspended);
    assert_eq!(pool(&c), None, "its template is as it was before the start");
    let why = "True/OutOfSync: The pods of \"main\" run without the node selector pool=default of flavor \"default\", on which they are admitted";
    assert_eq!(reported(&c.workload("a"), "Evicted"), why);
    c.advance(30);
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(pool(&c).as_deref(), Some("default"));
    // The pause grows if the templates are changed repeatedly.
    let mut waited = 0;
    for _ in 0..4 {
        move_to(&mut c, "dearer");
        while c.api.job("a").view.suspended {
            c.advance(1);
            waited += 1;
        }
    }
    assert!(waited > 100, "{waited}");
}

#[test]
fn a_job_that_is_resumed_by_hand_before_its_start_is_stopped() {
    let mut c = with(JobKind::JOB);
    c.slow = Some(Purpose::StartJob);
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    c.api.edit_job("a", |job| (job.view.suspended, job.view.active) = (false, true));
    c.release();
    assert!(c.api.job("a").view.suspended);
    c.advance(30);
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(pool(&c).as_deref(), Some("default"));
}

/// The nodes of a flavor may get other labels: what was started before continues, also when a manager comes that has not seen the change.
#[test]
fn a_job_that_was_started_before_its_flavor_changed_runs_on() {
    runs_on_after(|c, flavor| {
        c.api.edit(flavor, &json!({"spec": {"nodeLabels": {"pool": "renamed"}}}));
    });
}

/// So it does when the flavor is deleted and made again, seen or not.
#[test]
fn a_job_that_was_started_before_its_flavor_was_made_again_runs_on() {
    let make_again = |c: &mut Cluster| {
        c.api.put(
            Kind::ResourceFlavor,
            json!({"metadata": {"name": "default"}, "spec": {"nodeLabels": {"pool": "renamed"}}}),
        );
    };
    runs_on_after(|c, flavor| {
        c.api.delete(flavor);
        c.advance(1);
        make_again(c);
    });
    // Its deletion and the new one come as one change.
    runs_on_after(|c, flavor| {
        c.api.delete(flavor);
        make_again(c);
    });
}

fn runs_on_after(change: impl FnOnce(&mut Cluster, &ObjectRef)) {
    let mut c = with(JobKind::PYTORCH_JOB);
    c.settle();
    c.advance(10);
    change(&mut c, &ObjectRef::cluster(Kind::ResourceFlavor, "default"));
    for _ in 0..2 {
        c.advance(60);
        assert!(!c.api.job("a").view.suspended);
        assert_eq!(pool(&c).as_deref(), Some("default"));
        c.restart();
    }
    // One that is started on it as it is now keeps to that.
    c.api.delete_job("a");
    c.advance(10);
    c.api.add_job(of(JobKind::PYTORCH_JOB));
    c.advance(10);
    assert_eq!(pool(&c).as_deref(), Some("renamed"));
    move_to(&mut c, "default");
    assert!(c.api.job("a").view.suspended);
}

/// A user who may create Jobs makes one in the place of a JobSet's, for the nodes of a dearer flavor.
#[test]
fn a_part_that_runs_on_other_nodes_than_its_job_is_deleted_for_its_controller_to_make_it_again() {
    let mut c = with(JobKind::JOB_SET);
    c.settle();
    let part = |c: &Cluster, selector: &[(&str, &str)]| {
        let mut part = job("team-a", "a-main-0", "", 1, "1");
        part.controller = Some(made_by(&c.api.job("a").view));
        let own = selector.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
        part.pod_sets[0].scheduling.node_selector = own.collect();
        part
    };
    let stays = |selector: &[(&str, &str)]| {
        let mut c = with(JobKind::JOB_SET);
        c.settle();
        let part = part(&c, selector);
        running(&mut c, part);
        c.settle();
        assert!(!c.api.job("a").view.suspended);
        c.api.jobs().any(|(reference, _)| &*reference.name == "a-main-0")
    };
    // The controller adds the flavor's label.
    assert!(stays(&[]) && stays(&[("zone", "a")]) && stays(&[("pool", "default")]));
    assert!(!stays(&[("pool", "dearer")]));
    // One that waits is not concerned: it gets the labels when it is resumed.
    let mut waits = part(&c, &[("pool", "dearer")]);
    (waits.suspended, waits.active) = (true, false);
    c.api.add_job(waits);
    c.settle();
    assert!(c.api.job("a-main-0").view.suspended);
}
