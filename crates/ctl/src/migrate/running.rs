//! Running jobs that will be stopped because they make more pods than their Workloads count.

use std::collections::BTreeMap;

use kube::Client;
use serde_json::Value;
use sluice_api::conditions::WorkloadCondition;
use sluice_api::job::{JobKind, JobView};
use sluice_api::labels;
use sluice_client::error_chain::message;
use sluice_sim::Kind;

use crate::cluster::{self, refusal};

/// How many pods of each pod set an admitted Workload was counted for, by the namespace and name of its job.
type Counted = BTreeMap<(String, String), BTreeMap<String, i64>>;

/// The admitted Workloads of jobs that may run.
#[derive(Clone, Debug, Default)]
pub struct Running {
    by_kind: BTreeMap<JobKind, Counted>,
}

impl Running {
    /// Adds a Workload, in v1beta2. Workloads of elastic jobs are skipped, since a job has several, and those of objects whose pods are jobs or wait
    /// themselves.
    pub fn look(&mut self, workload: &Value) {
        let conditions = || workload["status"]["conditions"].as_array().into_iter().flatten();
        let holds = |kind: WorkloadCondition| {
            conditions().any(|c| c["type"] == kind.as_str() && c["status"] == "True")
        };
        let elastic = workload["metadata"]["annotations"][labels::ELASTIC_JOB] == "true";
        if elastic || !holds(WorkloadCondition::Admitted) || holds(WorkloadCondition::Finished) {
            return;
        }
        let owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.into_iter().find(|owner| owner["controller"] == true);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some((owner, kind)) = controller
            .and_then(|owner| {
                Some((owner, JobKind::from_owner(owner["apiVersion"].as_str()?, owner["kind"].as_str()?)?))
            })
            .filter(|(_, kind)| !kind.integration().of_pods && !kind.integration().suspends_pods)
        else {
            return;
        };
        let sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
        let counts = sets.map(|set| (text(&set["name"]), set["count"].as_i64().unwrap_or(0))).collect();
        let job = (text(&workload["metadata"]["namespace"]), text(&owner["name"]));
        self.by_kind.entry(kind).or_default().insert(job, counts);
    }

    /// The lines about jobs that will be stopped, and about jobs that cannot be read. Reads the jobs of each kind that has any.
    pub async fn lines(&self, client: &Client) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, counted) in &self.by_kind {
            let place = cluster::collection(Kind::Job(*kind), None);
            let line = |object: Value| line_of(*kind, counted, &object);
            match cluster::list(client, &place, "", line).await {
                Ok(found) => lines.extend(found),
                // The kind no longer exists, so its jobs do not, either.
                Err(error) if refusal(&error).is_some_and(|status| status.code == 404) => {}
                Err(error) => lines.push(format!(
                    "{} cannot be read, so it is unknown which will be stopped: {}",
                    kind.integration().plural,
                    refusal(&error).map_or_else(|| format!("{error:#}"), message)
                )),
            }
        }
        lines
    }
}

/// The line about a job that will be stopped.
fn line_of(kind: JobKind, counted: &Counted, object: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let job = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let counts = counted.get(&job)?;
    let why = stopped_because(&sluice_jobs::observe(kind, object), counts)?;
    Some(format!("{} {}/{} will be stopped: {why}", kind.integration().plural, job.0, job.1))
}

/// Why a running job does not keep running: it makes more pods of a pod set than were counted, or it cannot be read and its controller follows changes.
fn stopped_because(view: &JobView, counted: &BTreeMap<String, i64>) -> Option<String> {
    if view.suspended || view.finished.is_some() {
        return None;
    }
    if let Some(why) = &view.invalid {
        let follows = view.job.kind.integration().follows_changes;
        return follows.then(|| format!("it cannot be queued: {why}"));
    }
    view.pod_sets.iter().find_map(|set| {
        let (makes, counted) = (i64::from(set.count), counted.get(&set.name).copied().unwrap_or(0));
        (makes > counted).then(|| {
            format!(
                "it makes {makes} pods of {}, but its Workload counts {counted}; it is queued again",
                set.name
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(kind: (&str, &str), conditions: &[&str], sets: &[(&str, i64)]) -> Value {
        let sets: Vec<_> = sets.iter().map(|(name, count)| json!({"name": name, "count": count})).collect();
        let conditions: Vec<_> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let (api_version, kind) = kind;
        json!({
            "metadata": {"namespace": "team", "name": "w", "ownerReferences":
                [{"apiVersion": api_version, "kind": kind, "name": "job", "uid": "u", "controller": true}]},
            "spec": {"podSets": sets}, "status": {"conditions": conditions},
        })
    }

    const SPARK: (&str, &str) = ("sparkoperator.k8s.io/v1beta2", "SparkApplication");

    fn counted(workloads: &[Value]) -> Vec<(JobKind, Counted)> {
        let mut running = Running::default();
        for workload in workloads {
            running.look(workload);
        }
        running.by_kind.into_iter().collect()
    }

    #[test]
    fn only_jobs_that_may_run_on_a_workload_are_looked_at() {
        let admitted = ["QuotaReserved", "Admitted"];
        let found = counted(&[workload(SPARK, &admitted, &[("driver", 1)])]);
        let counts = BTreeMap::from([("driver".to_owned(), 1)]);
        let job = ("team".to_owned(), "job".to_owned());
        assert_eq!(found, [(JobKind::SPARK_APPLICATION, BTreeMap::from([(job, counts)]))]);
        for left_out in [
            workload(SPARK, &["QuotaReserved"], &[]),
            workload(SPARK, &["Admitted", "Finished"], &[]),
            workload(("v1", "Pod"), &admitted, &[]),
            workload(("apps/v1", "StatefulSet"), &admitted, &[]),
            workload(("example.com/v1", "Other"), &admitted, &[]),
        ] {
            assert!(counted(std::slice::from_ref(&left_out)).is_empty(), "{left_out}");
        }
    }

    #[test]
    fn a_running_job_that_makes_more_pods_than_were_counted_or_cannot_be_read_is_named() {
        let application = |instances: Value| {
            json!({
                "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
                "metadata": {"name": "job", "namespace": "team", "uid": "u"},
                "spec": {
                    "type": "Scala", "mode": "cluster", "mainClass": "a.B", "sparkVersion": "3.5.0",
                    "driver": {"cores": 1, "memory": "1g"},
                    "executor": {"cores": 1, "memory": "1g", "instances": instances},
                },
                "status": {"applicationState": {"state": "RUNNING"}},
            })
        };
        let view = |instances| sluice_jobs::observe(JobKind::SPARK_APPLICATION, &application(instances));
        let counts =
            |executors: i64| BTreeMap::from([("driver".to_owned(), 1), ("executor".to_owned(), executors)]);
        assert_eq!(stopped_because(&view(json!(2)), &counts(2)), None);
        assert_eq!(stopped_because(&view(json!(2)), &counts(3)), None);
        let more = stopped_because(&view(Value::Null), &counts(0)).unwrap();
        assert_eq!(more, "it makes 2 pods of executor, but its Workload counts 0; it is queued again");
        let mut unread = view(json!(2));
        unread.invalid = Some("spec.driver.cores is odd".to_owned());
        let why = stopped_because(&unread, &counts(2)).unwrap();
        assert_eq!(why, "it cannot be queued: spec.driver.cores is odd");
        let job = ("team".to_owned(), "job".to_owned());
        let (kind, grown) = (JobKind::SPARK_APPLICATION, application(Value::Null));
        assert_eq!(line_of(kind, &Counted::default(), &grown), None);
        let line = line_of(kind, &BTreeMap::from([(job, counts(0))]), &grown).unwrap();
        assert!(line.starts_with("sparkapplications team/job will be stopped: it makes 2 pods"), "{line}");
        for mut waits in [view(json!(2)), unread] {
            waits.suspended = true;
            assert_eq!(stopped_because(&waits, &counts(0)), None);
        }
    }
}
