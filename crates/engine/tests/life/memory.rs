//! What is kept of objects that need not be known in full.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::EnvVar;
use sluice_api::job::JobView;
use sluice_engine::{Engine, EngineConfig, Input, Object};

use crate::model::build::job;

const LARGE: usize = 1 << 20;

/// A job with a large pod template.
fn large(name: &str, queue: Option<&str>) -> JobView {
    let mut view = job("team-a", name, queue.unwrap_or("none"), 1, "1");
    view.queue_name = queue.map(str::to_owned);
    let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
    let env = EnvVar { name: "LARGE".to_owned(), value: Some("x".repeat(LARGE)), ..EnvVar::default() };
    template.spec.as_mut().unwrap().containers[0].env = Some(vec![env]);
    view
}

/// What an engine keeps of a job, in bytes.
fn kept(engine: &mut Engine, view: impl FnOnce() -> JobView) -> i64 {
    let measured = allocation_counter::measure(|| {
        engine.apply(Timestamp::UNIX_EPOCH, Input::Applied(Object::Job(Box::new(view()))));
    });
    measured.bytes_current
}

#[test]
fn of_a_job_without_a_queue_no_template_is_kept() {
    let mut engine = Engine::new(EngineConfig::default());
    for number in 0..20 {
        let bytes = kept(&mut engine, || large(&format!("plain-{number}"), None));
        assert!(bytes < 8 << 10, "{bytes} bytes are kept");
    }
    let bytes = kept(&mut engine, || large("queued", Some("q")));
    assert!(bytes > i64::try_from(LARGE).unwrap(), "{bytes}: its Workload is still to be made");
    // When it gets a queue name, it is seen in full.
    let bytes =
        kept(&mut engine, || JobView { resource_version: "9".to_owned(), ..large("plain-3", Some("q")) });
    assert!(bytes > i64::try_from(LARGE).unwrap(), "{bytes}");

    let all = EngineConfig { manage_jobs_without_queue_name: true, ..EngineConfig::default() };
    let bytes = kept(&mut Engine::new(all), || large("plain", None));
    assert!(bytes > i64::try_from(LARGE).unwrap(), "{bytes}: it gets a Workload, too");
}
