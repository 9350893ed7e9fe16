//! A namespace with its own queues on a plane that other tests use, too.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::ControlPlane;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::workloads;

use crate::reviewed::{answered, reviewed};

/// How long one effect may take on a busy machine: reports are written one at a time while the API server is slow, after everything else.
pub const DEADLINE: Duration = Duration::from_mins(3);

/// The label that names the queue of a job.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

/// A namespace; its flavor and its ClusterQueue have its name, its LocalQueue is called `lq`.
pub struct Place<'a> {
    /// The plane.
    pub plane: &'a ControlPlane,
    /// A client with the administrator's rights.
    pub client: Client,
    /// The name of the namespace, the flavor and the ClusterQueue.
    pub name: String,
}

impl<'a> Place<'a> {
    /// Makes the namespace with a flavor and queues of this many processors.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be made (see [`Place::bare`]), or the flavor or a queue cannot (see [`create`]).
    pub async fn new(plane: &'a ControlPlane, name: &str, cpu: u32) -> Result<Self> {
        let made = Self::bare(plane, name).await?;
        made.flavor(name).await?;
        made.cluster_queue(name, cpu, &json!({})).await?;
        made.local_queue("lq", name).await?;
        Ok(made)
    }

    /// Makes the namespace, without any queue.
    ///
    /// # Errors
    ///
    /// As [`ControlPlane::make_namespace`].
    pub async fn bare(plane: &'a ControlPlane, name: &str) -> Result<Self> {
        plane.make_namespace(name).await?;
        Ok(Self { plane, client: plane.client().await?, name: name.to_owned() })
    }

    /// The API of one of Kueue's namespaced kinds here.
    pub fn local(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        workloads::namespaced(&self.client, &self.name, kind, plural)
    }

    /// The API of one of Kueue's cluster-wide kinds.
    pub fn global(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        workloads::all(&self.client, kind, plural)
    }

    /// The API of ClusterQueues.
    pub fn cluster_queues(&self) -> Api<DynamicObject> {
        self.global("ClusterQueue", "clusterqueues")
    }

    /// The API of the LocalQueues here.
    pub fn local_queues(&self) -> Api<DynamicObject> {
        self.local("LocalQueue", "localqueues")
    }

    /// The API of the Workloads here.
    pub fn workloads(&self) -> Api<DynamicObject> {
        self.local("Workload", "workloads")
    }

    /// The API of the Jobs here.
    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// The API of the pods here.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// The pods here that a selector of labels selects.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or `labels` is no selector.
    pub async fn pods_with(&self, labels: &str) -> Result<Vec<Value>> {
        let pods = self.pods().list(&ListParams::default().labels(labels)).await.context("listing pods")?;
        pods.iter().map(|pod| serde_json::to_value(pod).context("reading a pod")).collect()
    }

    /// The processors of the pods here that run or may be bound, in thousandths, and their names.
    ///
    /// # Errors
    ///
    /// If the pods cannot be listed, or one asks for an amount that is not a number, with or without `m`.
    pub async fn live_cpu(&self) -> Result<(u64, Vec<String>)> {
        let (mut milli, mut names) = (0, Vec::new());
        for pod in self.pods().list(&ListParams::default()).await? {
            let pod = serde_json::to_value(pod)?;
            let over = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
            let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
            if over || gated || pod["metadata"]["deletionTimestamp"].is_string() {
                continue;
            }
            for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
                milli += match container["resources"]["requests"]["cpu"].as_str() {
                    Some(text) => match text.strip_suffix('m') {
                        Some(milli) => milli.parse()?,
                        None => text.parse::<u64>()? * 1_000,
                    },
                    None => 0,
                };
            }
            names.push(pod["metadata"]["name"].to_string());
        }
        Ok((milli, names))
    }

    /// Makes the Job `urgent` of one pod with `cpu` processors, and the priority class of this name, which gives it a higher priority than others.
    ///
    /// # Errors
    ///
    /// If the class (see [`create`]) or the Job (see [`Place::make_job`]) cannot be made.
    pub async fn make_urgent(&self, class: &str, cpu: u32) -> Result<()> {
        let object = json!({"metadata": {"name": class}, "value": 1_000});
        create(&self.global("WorkloadPriorityClass", "workloadpriorityclasses"), object).await?;
        let mut urgent = job("urgent", "lq", cpu, 1, 3_600);
        urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        self.make_job(&urgent).await
    }

    /// Makes a flavor.
    ///
    /// # Errors
    ///
    /// As [`create`].
    pub async fn flavor(&self, name: &str) -> Result<()> {
        create(&self.global("ResourceFlavor", "resourceflavors"), json!({"metadata": {"name": name}})).await
    }

    /// Makes a ClusterQueue of this many processors of the flavor of this place; `more` is merged into its spec.
    ///
    /// # Errors
    ///
    /// As [`create`].
    pub async fn cluster_queue(&self, name: &str, cpu: u32, more: &Value) -> Result<()> {
        let mut spec = json!({
            "namespaceSelector": {},
            "resourceGroups": [quota(&self.name, cpu)],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        create(&self.cluster_queues(), json!({"metadata": {"name": name}, "spec": spec})).await
    }

    /// Makes a LocalQueue.
    ///
    /// # Errors
    ///
    /// As [`create`].
    pub async fn local_queue(&self, name: &str, cluster_queue: &str) -> Result<()> {
        let object = json!({"metadata": {"name": name}, "spec": {"clusterQueue": cluster_queue}});
        create(&self.local_queues(), object).await
    }

    /// Makes a Job of one pod that asks for `cpu` processors and runs until it is deleted.
    ///
    /// # Errors
    ///
    /// As [`Place::make_job`].
    pub async fn job(&self, name: &str, queue: &str, cpu: u32) -> Result<()> {
        self.make_job(&job(name, queue, cpu, 1, 3_600)).await
    }

    /// Makes a Job, again if a webhook has not answered.
    ///
    /// # Errors
    ///
    /// If `job` is none, or it is refused or a webhook does not answer: see [`answered`].
    pub async fn make_job(&self, job: &Value) -> Result<()> {
        let job = serde_json::from_value(job.clone()).context("reading a Job")?;
        let (jobs, params) = (self.jobs(), PostParams::default());
        answered("making a Job", || jobs.create(&params, &job)).await
    }

    /// Makes a Job in one attempt, of which a test wants to see what comes.
    ///
    /// # Errors
    ///
    /// If `job` is none, the API server cannot be reached, it or a webhook refuses the Job, or a webhook does not answer.
    pub async fn make_job_once(&self, job: &Value) -> Result<()> {
        let job = serde_json::from_value(job.clone()).context("reading a Job")?;
        self.jobs().create(&PostParams::default(), &job).await.context("making a Job")?;
        Ok(())
    }

    /// Changes a Job as a user would.
    ///
    /// # Errors
    ///
    /// If there is no such Job, or the change is refused or a webhook does not answer: see [`reviewed`].
    pub async fn patch_job(&self, name: &str, patch: Value) -> kube::Result<Job> {
        let (jobs, params, patch) = (self.jobs(), PatchParams::default(), Patch::Merge(patch));
        reviewed("changing a Job", || jobs.patch(name, &params, &patch)).await
    }

    /// Deletes a Job with its pods.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or there is no such Job.
    pub async fn delete_job(&self, name: &str) -> Result<()> {
        self.jobs().delete(name, &DeleteParams::background()).await.context("deleting a Job")?;
        Ok(())
    }

    /// Whether a Job is suspended.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or there is no such Job.
    pub async fn suspended(&self, name: &str) -> Result<bool> {
        Ok(self.jobs().get(name).await?.spec.and_then(|spec| spec.suspend).unwrap_or(false))
    }

    /// Waits until a Job runs (or is suspended again).
    ///
    /// # Errors
    ///
    /// If it does not within three minutes ([`DEADLINE`]). The error has the conditions of its Workload.
    pub async fn wait_until(&self, name: &str, runs: bool) -> Result<()> {
        let what = format!("{}/{name} to {}", self.name, if runs { "run" } else { "be suspended" });
        let waited = eventually(&what, DEADLINE, || async {
            let suspended = self.suspended(name).await?;
            Ok(progress(suspended != runs, format!("suspended: {suspended}")))
        })
        .await;
        let Err(error) = waited else { return Ok(()) };
        // Read at the end only: to find it, all Workloads of the namespace are listed.
        let workload = workloads::of_job(&self.client, &self.name, name).await.ok().flatten();
        let reported = workload.map(|workload| workload["status"]["conditions"].to_string());
        anyhow::bail!("{error:#}; {}", reported.unwrap_or_else(|| "it has no Workload".to_owned()))
    }

    /// The Workload of a Job, once there is one.
    ///
    /// # Errors
    ///
    /// If there is none within three minutes ([`DEADLINE`]).
    pub async fn workload(&self, job: &str) -> Result<Value> {
        eventually(&format!("the Workload of {}/{job}", self.name), DEADLINE, || async {
            let found = workloads::of_job(&self.client, &self.name, job).await?;
            Ok(match found {
                Some(workload) => Progress::Done(workload),
                None => Progress::NotYet("none".to_owned()),
            })
        })
        .await
    }

    /// Waits until it is another second than that in which the Workload of a Job was made: Workloads of one second are in the order of their UIDs.
    ///
    /// # Errors
    ///
    /// As [`Place::workload`], or if the Workload does not say when it was made.
    pub async fn wait_for_another_second(&self, job: &str) -> Result<()> {
        let workload = self.workload(job).await?;
        let made = workload["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        let made: jiff::Timestamp = made.parse().context("reading when a Workload was made")?;
        eventually("another second", DEADLINE, || async {
            let now = jiff::Timestamp::now();
            Ok(progress(now.as_second() > made.as_second(), now))
        })
        .await
    }

    /// The Workload of a Job, as events are about it.
    ///
    /// # Errors
    ///
    /// As [`Place::workload`].
    pub async fn about_workload(&self, job: &str) -> Result<String> {
        let workload = self.workload(job).await?;
        Ok(format!("Workload/{}", workload["metadata"]["name"].as_str().unwrap_or_default()))
    }

    /// Waits until a condition of the Workload of a Job reads `<status>/<reason>: <message>`, with anything behind that.
    ///
    /// # Errors
    ///
    /// If it does not read so within three minutes ([`DEADLINE`]). The error has what it reads.
    pub async fn wait_for_condition(&self, job: &str, condition: &str, begins: &str) -> Result<()> {
        let what = format!("{condition} of {}/{job} to be {begins:?}", self.name);
        eventually(&what, DEADLINE, || async {
            let workload = workloads::of_job(&self.client, &self.name, job).await?.unwrap_or_default();
            let reported = reported(&workload, condition);
            Ok(progress(reported.starts_with(begins), reported))
        })
        .await
    }

    /// Waits until a condition of a queue reads `<status>/<reason>: <message>`, with anything behind that.
    ///
    /// # Errors
    ///
    /// If it does not read so within three minutes ([`DEADLINE`]), for example because there is no such queue.
    pub async fn wait_for_queue(&self, api: &Api<DynamicObject>, name: &str, begins: &str) -> Result<()> {
        eventually(&format!("the queue {name} to be {begins:?}"), DEADLINE, || async {
            let reported = reported(&serde_json::to_value(api.get(name).await?)?, "Active");
            Ok(progress(reported.starts_with(begins), reported))
        })
        .await
    }

    /// Waits until an event of this reason, whose note contains the text, was recorded here about this object (`<kind>/<name>`).
    ///
    /// # Errors
    ///
    /// If there is none within three minutes ([`DEADLINE`]). The error has those that there are.
    pub async fn wait_for_event(&self, about: &str, reason: &str, note: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.name);
        eventually(&format!("an event {reason} of {about} in {}", self.name), DEADLINE, || async {
            let all = events.list(&ListParams::default()).await?.items;
            let reported: Vec<_> = all
                .into_iter()
                .map(|event| {
                    let object = event.regarding.unwrap_or_default();
                    let of = [object.kind, object.name].map(Option::unwrap_or_default).join("/");
                    (of, event.reason.unwrap_or_default(), event.note.unwrap_or_default())
                })
                .collect();
            let found =
                reported.iter().any(|(of, why, text)| of == about && why == reason && text.contains(note));
            Ok(progress(found, format!("{reported:?}")))
        })
        .await
    }

    /// Waits until the ClusterQueue of this place says how many workloads wait, hold quota and are admitted.
    ///
    /// # Errors
    ///
    /// If it does not say so within three minutes ([`DEADLINE`]). The error has the counts that it says.
    pub async fn wait_for_counts(&self, counts: [u64; 3]) -> Result<()> {
        eventually(&format!("the counts of {} to be {counts:?}", self.name), DEADLINE, || async {
            let status = self.cluster_queues().get(&self.name).await?.data["status"].clone();
            let seen = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"]
                .map(|field| status[field].as_u64().unwrap_or_default());
            Ok(progress(seen == counts, format!("{seen:?}")))
        })
        .await
    }

    /// How many processors of the flavor of this place its ClusterQueue says are reserved.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or there is no such ClusterQueue.
    pub async fn reserved_cpu(&self) -> Result<String> {
        let status = self.cluster_queues().get(&self.name).await?.data["status"].clone();
        let total = status["flavorsReservation"][0]["resources"][0]["total"].clone();
        Ok(total.as_str().map_or_else(|| total.to_string(), str::to_owned))
    }

    /// Waits until that amount is reserved. The status may be an older one, even if its other fields are right already.
    ///
    /// # Errors
    ///
    /// If that does not happen within three minutes ([`DEADLINE`]). The error has the reported amount.
    pub async fn wait_for_reserved_cpu(&self, cpu: &str) -> Result<()> {
        eventually(&format!("{cpu} processors of {} to be reserved", self.name), DEADLINE, || async {
            let reserved = self.reserved_cpu().await?;
            Ok(progress(reserved == cpu, reserved))
        })
        .await
    }

    /// Waits until nothing is left of the Workloads here.
    ///
    /// # Errors
    ///
    /// If there still is one after three minutes ([`DEADLINE`]).
    pub async fn wait_until_empty(&self) -> Result<()> {
        eventually(&format!("no Workload to be left in {}", self.name), DEADLINE, || async {
            let left = workloads::list(&self.client, &self.name).await?;
            Ok(progress(left.is_empty(), format!("{} Workloads", left.len())))
        })
        .await
    }
}

/// A condition of an object as `<status>/<reason>: <message>`.
pub fn reported(object: &Value, condition: &str) -> String {
    let Some(found) = workloads::condition(object, condition) else { return "nothing".to_owned() };
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}: {}", text("status"), text("reason"), text("message"))
}

/// A resource group with this many processors of one flavor.
pub fn quota(flavor: &str, cpu: u32) -> Value {
    json!({
        "coveredResources": ["cpu"],
        "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
    })
}

/// A Job of `pods` pods that ask for `cpu` processors each and run for some seconds.
pub fn job(name: &str, queue: &str, cpu: u32, pods: u32, seconds: u32) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE_NAME: queue}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": {"sluice.dev/run-seconds": seconds.to_string()}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "main", "image": "none", "resources": {"requests": {"cpu": cpu.to_string()}},
                    }],
                },
            },
        },
    })
}

/// Creates an object of one of Kueue's kinds.
///
/// # Errors
///
/// If `api` is of another kind, or the object is refused or a webhook does not answer: see [`answered`].
pub async fn create(api: &Api<DynamicObject>, mut object: Value) -> Result<()> {
    let kind = api.resource_url().rsplit('/').next().unwrap_or_default().to_owned();
    object["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
    object["kind"] = json!(match kind.as_str() {
        "resourceflavors" => "ResourceFlavor",
        "topologies" => "Topology",
        "clusterqueues" => "ClusterQueue",
        "localqueues" => "LocalQueue",
        "admissionchecks" => "AdmissionCheck",
        "workloadpriorityclasses" => "WorkloadPriorityClass",
        "cohorts" => "Cohort",
        "workloads" => "Workload",
        other => anyhow::bail!("no kind is known for {other}"),
    });
    let object: DynamicObject = serde_json::from_value(object).context("reading an object")?;
    let params = PostParams::default();
    answered(&format!("making one of {kind}"), || api.create(&params, &object)).await
}

/// Changes an object of one of Kueue's kinds.
///
/// # Errors
///
/// If the API server cannot be reached, there is no such object, or it or a webhook refuses the change.
pub async fn patch(api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<()> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("changing {name}"))?;
    Ok(())
}
