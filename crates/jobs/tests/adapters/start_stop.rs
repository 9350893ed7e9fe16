//! The patches that start, stop and suspend Jobs and JobSets alike.

use serde_json::json;
use sluice_api::job::JobKind;

use crate::testing::starts::originals;
use crate::testing::{apply, job, jobset};

#[test]
fn suspending_writes_one_field() {
    for (kind, object) in [(JobKind::JOB, job()), (JobKind::JOB_SET, jobset())] {
        let step = sluice_jobs::suspend(&sluice_jobs::observe(kind, &object));
        assert_eq!(step.subresource, None);
        assert_eq!(
            step.patch.body(),
            json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "spec": {"suspend": true}})
        );
    }
}

#[test]
fn no_patch_acts_on_an_object_that_was_not_seen() {
    for (kind, object) in [(JobKind::JOB, job()), (JobKind::JOB_SET, jobset())] {
        let view = sluice_jobs::observe(kind, &object);
        let mut newer = object.clone();
        newer["metadata"]["resourceVersion"] = json!("99");
        let start = sluice_jobs::start(&view, &originals(&view)).unwrap();
        assert_eq!(apply(&newer, &start), Err("409 Conflict".to_owned()));
        let stop = sluice_jobs::stop(&view, &originals(&view)).remove(0);
        assert_eq!(apply(&newer, &stop.patch), Err("409 Conflict".to_owned()));
        assert_eq!(apply(&newer, &sluice_jobs::suspend(&view).patch), Err("409 Conflict".to_owned()));
        assert!(apply(&newer, &start.pinned("99")).is_ok());
    }
}
