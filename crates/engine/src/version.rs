//! Versions of objects: which of two is the newer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::answers::workload_key;
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::world::job_key;

/// How a seen version relates to the known one. Versions are opaque, but grow if they are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Seen before.
    Older,
    /// The known one.
    Same,
    /// Not seen before.
    Newer,
}

/// How a seen version relates to the known one.
pub(crate) fn compare(known: Option<&str>, seen: Option<&str>) -> Seen {
    let (Some(known), Some(seen)) = (known, seen) else { return Seen::Newer };
    if known == seen {
        return Seen::Same;
    }
    match (known.parse::<u64>(), seen.parse::<u64>()) {
        (Ok(known), Ok(seen)) if seen < known => Seen::Older,
        _ => Seen::Newer,
    }
}

/// Whether a version has nothing new.
pub(crate) fn is_stale(known: Option<&str>, seen: Option<&str>) -> bool {
    compare(known, seen) != Seen::Newer
}

/// Whether an answer about an object is older than what is known of it: a watch has shown a newer state.
pub(crate) fn is_overtaken(known: Option<&ObjectMeta>, answer: &ObjectMeta) -> bool {
    let known = known.and_then(|metadata| metadata.resource_version.as_deref());
    compare(known, answer.resource_version.as_deref()) == Seen::Older
}

impl Engine {
    /// UID and version of a Workload or a job as it is known; nothing of other kinds.
    pub fn version_of(&self, object: &ObjectRef) -> Option<(&str, &str)> {
        match object.kind {
            Kind::Workload => {
                let metadata = &self.world.workloads.get(&workload_key(object))?.object.metadata;
                metadata.uid.as_deref().zip(metadata.resource_version.as_deref())
            }
            Kind::Job(_) => {
                let view = &self.world.jobs.get(&job_key(object)?)?.view;
                Some((&*view.job.uid, &*view.resource_version))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use sluice_api::job::JobKind;

    use super::*;
    use crate::config::EngineConfig;
    use crate::input::{Input, Object};

    #[test]
    fn the_version_of_a_workload_or_a_job_is_the_latest_that_was_seen_while_it_exists() {
        let frameworks = [JobKind::JOB].into_iter().collect();
        let mut engine = Engine::new(EngineConfig { frameworks, ..EngineConfig::default() });
        let metadata =
            |version: &str| json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version});
        for kind in [Kind::Workload, Kind::Job(JobKind::JOB)] {
            let object = ObjectRef::namespaced(kind, "ns", "a");
            let seen = |version: &str| {
                if kind == Kind::Workload {
                    let workload = json!({"metadata": metadata(version)});
                    return Object::Workload(serde_json::from_value(workload).unwrap());
                }
                let mut metadata = metadata(version);
                metadata["labels"] = json!({"kueue.x-k8s.io/queue-name": "lq"});
                let pods = json!({"spec": {"containers": []}});
                let job = json!({"metadata": metadata, "spec": {"suspend": true, "template": pods}});
                Object::Job(Box::new(sluice_jobs::observe(JobKind::JOB, &job)))
            };
            assert_eq!(engine.version_of(&object), None);
            for (version, latest) in [("7", "7"), ("8", "8"), ("7", "8")] {
                engine.apply(Timestamp::UNIX_EPOCH, Input::Applied(seen(version)));
                assert_eq!(engine.version_of(&object), Some(("u", latest)), "{object}");
            }
            engine.apply(Timestamp::UNIX_EPOCH, Input::Deleted { object: object.clone(), uid: None });
            assert_eq!(engine.version_of(&object), None);
        }
        assert_eq!(engine.version_of(&ObjectRef::cluster(Kind::Node, "n")), None);
    }

    #[test]
    fn versions_grow_where_they_are_numbers() {
        assert_eq!(compare(Some("9"), Some("10")), Seen::Newer);
        assert_eq!(compare(Some("10"), Some("9")), Seen::Older);
        assert_eq!(compare(Some("a"), Some("b")), Seen::Newer);
        assert_eq!(compare(Some("a"), Some("a")), Seen::Same);
    }
}
