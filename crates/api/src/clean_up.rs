//! Jobs that clean up after a job that is being deleted: its controller makes them then, and deletes the job when they are done.
//!
//! They run without quota, since the job above has none any more, or never had any. So there is one of them at most, by its name, and it is small. Any
//! user can write an owner reference, and keep a job from being deleted: an owner that is being deleted proves nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use sluice_quantity::Quantity;

use crate::job::{CleanUp, JobKind, JobPodSet, JobView};

/// Longest name of a Job: its pods have it in a label.
const LONGEST: usize = 63;

impl CleanUp {
    /// Whether `name` is that of the job that cleans up after the job `above`. KubeRay cuts the beginning off a name that is too long, and replaces a
    /// first character that a name must not have by a letter.
    fn is_called(&self, above: &str, name: &str) -> bool {
        let whole = format!("{above}{}", self.suffix);
        let Some(cut) = whole.len().checked_sub(LONGEST).filter(|cut| *cut > 0) else { return whole == name };
        let Some(kept) = whole.get(cut..) else { return false };
        let replaced = kept.strip_prefix(|first: char| !first.is_ascii_lowercase());
        kept == name || replaced.is_some_and(|rest| name.strip_prefix('r') == Some(rest))
    }

    /// Whether a job of these pod sets has one pod, which requests no more.
    fn allows(&self, pod_sets: &[JobPodSet]) -> bool {
        let [pod_set] = pod_sets else { return false };
        let spec = pod_set.template.as_ref().and_then(|template| template.spec.as_ref());
        pod_set.count <= 1 && spec.is_some_and(|spec| self.covers(spec))
    }

    fn covers(&self, spec: &PodSpec) -> bool {
        let of_pod = spec.resources.is_some() || spec.overhead.is_some();
        if of_pod || spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
            return false;
        }
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let staying: Vec<_> = init.iter().filter(stays).collect();
        let main: Vec<_> = spec.containers.iter().chain(staying.iter().copied()).collect();
        // The others run one after another.
        let mut others = init.iter().filter(|container| !stays(container));
        self.cover(&main) && others.all(|one| self.cover(&[&[one][..], &staying[..]].concat()))
    }

    /// Whether these containers request no more in all.
    fn cover(&self, containers: &[&Container]) -> bool {
        let mut left: BTreeMap<&str, i128> = BTreeMap::new();
        for (resource, most) in self.most {
            left.insert(resource, Quantity::parse(most).map_or(0, |most| most.nano()));
        }
        for resources in containers.iter().filter_map(|container| container.resources.as_ref()) {
            let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
            let is_new =
                |resource: &&String| requests.is_none_or(|requests| !requests.contains_key(*resource));
            // A limit replaces a missing request.
            let by_limit = limits.into_iter().flatten().filter(|(resource, _)| is_new(resource));
            for (resource, amount) in requests.into_iter().flatten().chain(by_limit) {
                let Ok(amount) = Quantity::parse(&amount.0) else { return false };
                let left = left.entry(resource).or_default();
                *left = left.saturating_sub(amount.nano().max(0));
            }
        }
        left.values().all(|left| *left >= 0)
    }
}

impl JobKind {
    /// Whether `(kind, name)` is the job that cleans up after the job `above` of this kind.
    pub fn is_cleaned_up_by(self, above: &str, (kind, name): (Self, &str)) -> bool {
        let by = self.integration().cleaned_up_by.as_ref();
        by.is_some_and(|by| by.framework == kind.framework() && by.is_called(above, name))
    }
}

impl JobView {
    /// Whether another job cleans up after this one, which is being deleted: its controller waits for that job, which runs without quota.
    pub fn is_cleaned_up_by(&self, child: &Self) -> bool {
        let is_it = || self.job.kind.is_cleaned_up_by(&self.job.name, (child.job.kind, &child.job.name));
        self.deleting && child.may_clean_up && is_it()
    }

    /// Whether the job is one that may clean up after another, by its name, its pods, and as it names no queue. To be asked while it has its
    /// templates.
    pub fn looks_like_clean_up(&self) -> bool {
        let all = JobKind::ALL.iter().filter_map(|kind| kind.integration().cleaned_up_by.as_ref());
        let mut all = all.filter(|one| one.framework == self.job.kind.framework());
        self.queue_name.is_none()
            && all.any(|one| self.job.name.ends_with(one.suffix) && one.allows(&self.pod_sets))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CLUSTER: JobKind = JobKind::RAY_CLUSTER;

    fn is_called(above: &str, name: &str) -> bool {
        CLUSTER.is_cleaned_up_by(above, (JobKind::JOB, name))
    }

    #[test]
    fn what_cleans_up_has_the_name_of_the_deleted_job_as_kuberay_cuts_it() {
        assert!(is_called("ray", "ray-redis-cleanup"));
        for name in ["ray", "redis-cleanup", "ray-redis-cleanup-2", "x-redis-cleanup", "ay-redis-cleanup"] {
            assert!(!is_called("ray", name), "{name}");
        }
        for (first, kept) in [('a', 'a'), ('-', 'r'), ('7', '7'), ('7', 'r')] {
            let rest = "b".repeat(LONGEST - 1 - "-redis-cleanup".len());
            let above = format!("long{first}{rest}");
            let name = format!("{kept}{rest}-redis-cleanup");
            assert_eq!(name.len(), LONGEST);
            assert!(is_called(&above, &name), "{name}");
            assert!(!is_called(&above, &format!("{above}-redis-cleanup")) && !is_called(&above, &name[1..]));
        }
        assert!(!CLUSTER.is_cleaned_up_by("ray", (JobKind::JOB_SET, "ray-redis-cleanup")));
        assert!(!JobKind::JOB.is_cleaned_up_by("ray", (JobKind::JOB, "ray-redis-cleanup")));
    }

    fn covers(spec: &Value) -> bool {
        let by = CLUSTER.integration().cleaned_up_by.unwrap();
        by.covers(&serde_json::from_value(spec.clone()).unwrap())
    }

    #[test]
    fn what_cleans_up_requests_no_more_than_kuberay_lets_it() {
        let requests =
            |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}}});
        let limits = |cpu: &str| json!({"name": "c", "resources": {"limits": {"cpu": cpu}}});
        let stays = |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let pod = |init: Value, containers: Value| json!({"initContainers": init, "containers": containers});
        for small in [
            json!({"containers": [requests("200m")]}),
            json!({"containers": [limits("0.2")]}),
            pod(json!([limits("200m"), limits("200m")]), json!([requests("200m")])),
            pod(json!([stays("100m"), limits("100m")]), json!([requests("100m")])),
            json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "8"}, "requests": {"cpu": "100m"}}}]}),
        ] {
            assert!(covers(&small), "{small}");
        }
        let gpu = json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
        for large in [
            json!({"containers": [requests("201m")]}),
            json!({"containers": [limits("1")]}),
            json!({"containers": [limits("150m"), limits("150m")]}),
            json!({"containers": [gpu]}),
            pod(json!([limits("201m")]), json!([requests("200m")])),
            pod(json!([stays("150m")]), json!([requests("100m")])),
            pod(json!([stays("150m"), limits("100m")]), json!([])),
            json!({"containers": [requests("100m")], "resources": {"requests": {"cpu": "8"}}}),
            json!({"containers": [requests("100m")], "resourceClaims": [{"name": "c", "resourceClaimName": "gpu"}]}),
        ] {
            assert!(!covers(&large), "{large}");
        }
    }
}
