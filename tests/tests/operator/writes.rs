//! The number of writes for Workloads and Jobs on a real API server, counted there (docs/manual/performance.md "Writes").

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::metrics::{Scraper, sum};
use sluice_testkit::wait::{Progress, consistently, eventually, progress};
use sluice_testkit::{ControlPlane, FaultProxy, Manager, Write, workloads};
use sluice_tests::place::{DEADLINE, Place, job};
use sluice_tests::reviewed::answered;

use crate::status::{shared, start_with};

/// In how many places writes are counted at most.
const TRIES: usize = 3;

/// Counts in one place after the other, until nothing comes in between: see [`Answers::came_late`] and [`Answers::met_others`].
async fn in_places<F: Future<Output = bool>>(name: &str, count: impl Fn(String) -> F) {
    for number in 1..=TRIES {
        if count(format!("{name}-{number}")).await {
            return;
        }
        println!("in {name}-{number} something came in between");
    }
    panic!("in each of {TRIES} places a write had no answer in time, or several met writes of others");
}

/// Whether the API server, or a webhook, had no time for a write.
fn had_no_time(write: &Write) -> bool {
    write.status == 429 || write.status >= 500
}

/// How well writes are answered from some time on. Where that is late, the manager makes them again, and they say nothing about how many it needs.
struct Answers<'a> {
    proxy: &'a FaultProxy,
    /// How many writes there were before.
    from: usize,
    /// How many of them had no answer.
    unanswered: usize,
}

impl<'a> Answers<'a> {
    fn from_now(proxy: &'a FaultProxy) -> Self {
        Self { proxy, from: proxy.writes().len(), unanswered: proxy.unanswered_writes() }
    }

    /// Whether one came late since then, on what is of this place.
    fn came_late(&self, here: &Place<'_>) -> bool {
        self.proxy.unanswered_writes() > self.unanswered
            || of_place(&self.proxy.writes()[self.from..], here).iter().any(had_no_time)
    }

    /// Whether more than one start or stop of this place was refused since then because the Job's own controller was faster. By chance one may be; a
    /// manager whose writes always are is so everywhere.
    fn met_others(&self, here: &Place<'_>) -> bool {
        let of_job = |write: &&Write| write.status == 409 && write.path.contains("/jobs/");
        let conflicts = of_place(&self.proxy.writes()[self.from..], here).iter().filter(of_job).count();
        println!("{}: {conflicts} writes on Jobs met a newer version", here.name);
        conflicts > 1
    }
}

fn api(here: &Place<'_>) -> Api<DynamicObject> {
    workloads::namespaced(&here.client, &here.name, "Workload", "workloads")
}

/// A Workload with one pod that asks for `cpu` processors.
async fn make(here: &Place<'_>, name: &str, cpu: u32) {
    make_with(here, name, cpu, 0).await;
}

/// The same with a priority.
async fn make_with(here: &Place<'_>, name: &str, cpu: u32, priority: i32) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu.to_string()}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
        "spec": {"queueName": "lq", "priority": priority, "podSets": [{"name": "main", "count": 1, "template": template}]},
    });
    let (api, params, workload) =
        (api(here), PostParams::default(), serde_json::from_value(workload).unwrap());
    answered("making a Workload", || api.create(&params, &workload)).await.unwrap();
}

/// Says that a Workload has finished, as the harness of another project would.
async fn finish(here: &Place<'_>, name: &str) {
    let condition = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
        "status": {"conditions": [condition]},
    });
    let by = PatchParams::apply("harness").force();
    api(here).patch_status(name, &by, &Patch::Apply(status)).await.unwrap();
}

/// Waits until a condition has a status.
async fn wait_for(here: &Place<'_>, name: &str, type_: &str, status: &str) {
    eventually(&format!("{type_}={status} of {name}"), DEADLINE, || async {
        let object = api(here).get(name).await?;
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |c: &Value| c["type"] == type_ && c["status"] == status;
        Ok(progress(conditions.iter().any(is), format!("{conditions:?}")))
    })
    .await
    .unwrap();
}

/// Those writes of the manager that are on what is of a place or on the ClusterQueue of its name: others share the plane.
fn of_place(writes: &[Write], here: &Place<'_>) -> Vec<Write> {
    let (namespace, queue) =
        (format!("/namespaces/{}/", here.name), format!("/clusterqueues/{}/", here.name));
    let is_here = |write: &Write| {
        let path = format!("{}/", write.path);
        path.contains(&namespace) || path.contains(&queue)
    };
    writes.iter().filter(|write| is_here(write)).cloned().collect()
}

/// How many conversions the API server had asked for, once it asks for no more at so many looks, and the seconds that they took.
async fn conversions(scraper: &Scraper<'_>, manager: &Manager, looks: u32) -> [f64; 2] {
    let last = Mutex::new(([0.0; 2], 0));
    eventually("the last conversion", DEADLINE, || async {
        let text = scraper.scrape(manager).await?;
        let now = ["count", "sum"].map(|part| {
            let name = format!("sluice_webhook_review_duration_seconds_{part}");
            sum(&text, &name, &["webhook=\"convert\""]).unwrap_or(0.0)
        });
        let mut last = last.lock().unwrap();
        let same = if now[0] > last.0[0] { 0 } else { last.1 + 1 };
        *last = (now, same);
        Ok(progress(same >= looks, now[0]))
    })
    .await
    .unwrap();
    last.into_inner().unwrap().0
}

/// The API server keeps a copy of all objects in each version that it serves: each change of one is converted for the older version, by any
/// client. Nothing else is: all that the manager reads and writes is the version that is stored.
#[tokio::test]
async fn a_write_is_converted_once_at_most() {
    let (plane, proxy, manager) = start_with(&json!({})).await;
    let here = Place::new(&plane, "converted", 4).await.unwrap();
    let queues = workloads::namespaced(&here.client, &here.name, "LocalQueue", "localqueues");
    here.wait_for_queue(&queues, "lq", "True/Ready").await.unwrap();
    let scraper = Scraper::new(&plane);
    // Those of earlier writes must not be counted as those of later ones, however late they come.
    proxy.forget_writes();
    let before = conversions(&scraper, &manager, 40).await;
    let mut others = 0_u32;
    for number in 0..20 {
        let name = format!("w{number}");
        make(&here, &name, 1).await;
        wait_for(&here, &name, "Admitted", "True").await;
        finish(&here, &name).await;
        others += 2;
    }
    let after = conversions(&scraper, &manager, 10).await;
    let (converted, took) = (after[0] - before[0], after[1] - before[1]);
    let of_group = |write: &&Write| write.path.contains("/apis/kueue.x-k8s.io/") && write.status < 300;
    let ours = u32::try_from(proxy.writes().iter().filter(of_group).count()).unwrap();
    let writes = f64::from(ours + others);
    println!("{converted} conversions for {writes} writes, {:.3} ms each", took * 1e3 / converted);
    assert!(ours >= 20 && before[0] > 0.0, "{ours} writes of ours, {before:?} conversions before");
    assert!(converted <= writes, "{converted} conversions for {writes} writes");
    manager.stop().await.unwrap();
    plane.stop();
}

#[tokio::test]
async fn a_workload_takes_one_write_and_one_more_if_it_waits() {
    let (plane, proxy) = shared().await;
    in_places("counted", |name| count_of_workloads(plane, proxy, name)).await;
}

async fn count_of_workloads(plane: &ControlPlane, proxy: &FaultProxy, name: String) -> bool {
    let here = Place::new(plane, &name, 1).await.unwrap();
    let queues = workloads::namespaced(&here.client, &here.name, "LocalQueue", "localqueues");
    here.wait_for_queue(&queues, "lq", "True/Ready").await.unwrap();
    let answers = Answers::from_now(proxy);
    let all = || of_place(&proxy.writes()[answers.from..], &here);
    let of = |name: &str| {
        let on = |write: &Write| write.path.contains(&format!("/workloads/{name}"));
        all().into_iter().filter(on).collect::<Vec<_>>()
    };
    make(&here, "first", 1).await;
    wait_for(&here, "first", "Admitted", "True").await;
    make(&here, "waits", 1).await;
    make(&here, "large", 7).await;
    for name in ["waits", "large"] {
        wait_for(&here, name, "QuotaReserved", "False").await;
    }
    finish(&here, "first").await;
    wait_for(&here, "waits", "Admitted", "True").await;
    finish(&here, "waits").await;
    // Others come and go: what waits is not written again. On a busy machine one of them may wait for the end before it to be seen.
    let next: [String; 5] = std::array::from_fn(|number| format!("next-{number}"));
    for name in &next {
        make(&here, name, 1).await;
        wait_for(&here, name, "Admitted", "True").await;
        finish(&here, name).await;
    }
    let counts = || ["first", "waits", "large"].map(|name| of(name).len());
    eventually("the last write to be noted", DEADLINE, || async {
        let noted = next.iter().all(|name| !of(name).is_empty()) && counts() == [1, 2, 1];
        Ok(progress(noted || answers.came_late(&here), format!("{:?}", all())))
    })
    .await
    .unwrap();
    let rest = consistently("no more writes", Duration::from_secs(2), || async {
        Ok(progress(counts() == [1, 2, 1], format!("{:?}", counts())))
    });
    let rest = rest.await;
    if answers.came_late(&here) {
        return false;
    }
    rest.unwrap();
    let mut waited = 0;
    for name in &next {
        let count = of(name).len();
        assert!((1..=2).contains(&count), "{name}: {:?}", of(name));
        waited += count - 1;
    }
    let conflicts: Vec<_> = all().into_iter().filter(|write| write.status == 409).collect();
    assert!(conflicts.is_empty(), "{conflicts:?}");
    let events = all().iter().filter(|write| write.path.contains("/events")).count();
    // Seven admissions with an event each, and the Workloads that waited.
    assert!(events <= 9 + waited, "{events}");
    true
}

/// What was written on a Job and its Workload from one write on, in that order: the methods, and whether on the Workload or its status. And how many
/// writes there were of any kind.
async fn of_job(here: &Place<'_>, proxy: &FaultProxy, job: &str, from: usize) -> (Vec<String>, usize) {
    let workload = here.workload(job).await.unwrap();
    let workload = workload["metadata"]["name"].as_str().unwrap();
    let what = |write: &Write| {
        let path = &write.path;
        let on = if path.ends_with(&format!("/workloads/{workload}/status")) {
            "status"
        } else if path.ends_with("/workloads") || path.ends_with(&format!("/workloads/{workload}")) {
            "workload"
        } else if path.contains(&format!("/jobs/{job}")) {
            "job"
        } else {
            return None;
        };
        // The Job's own controller was faster (`met_others` counts that), or the answer came late: the write is made anew.
        if on == "job" && write.status == 409 || had_no_time(write) {
            return None;
        }
        assert!(write.status < 300, "{write:?}");
        Some(format!("{} {on}", write.method))
    };
    let all = proxy.writes();
    (of_place(&all[from..], here).iter().filter_map(what).collect(), all.len())
}

/// Waits until these and no others were written on a Job and its Workload from one write on: the proxy notes a write once it is answered, a moment
/// after its effect can be seen. Gives how many there were of any kind; none if an answer came late.
async fn wait_for_writes(
    here: &Place<'_>,
    answers: &Answers<'_>,
    job: &str,
    from: usize,
    wanted: &[&str],
) -> Option<usize> {
    eventually(&format!("the writes on {job} to be {wanted:?}"), DEADLINE, || async {
        let (writes, count) = of_job(here, answers.proxy, job, from).await;
        Ok(if answers.came_late(here) {
            Progress::Done(None)
        } else if writes == wanted {
            Progress::Done(Some(count))
        } else if writes.len() < wanted.len() {
            Progress::NotYet(format!("{writes:?}"))
        } else {
            Progress::Never(format!("they are {writes:?}"))
        })
    })
    .await
    .unwrap()
}

/// Says of the pods of a Job what a kubelet would, once there are any.
async fn report_pods(here: &Place<'_>, job: &str, status: &Value) {
    let pods: Api<Pod> = Api::namespaced(here.client.clone(), &here.name);
    let of_job = ListParams::default().labels(&format!("job-name={job}"));
    let found = eventually(&format!("pods of {job}"), DEADLINE, || async {
        let found = pods.list(&of_job).await?.items;
        Ok(if found.is_empty() { Progress::NotYet("none".to_owned()) } else { Progress::Done(found) })
    })
    .await
    .unwrap();
    for pod in found {
        let patch = Patch::Merge(json!({"status": status}));
        pods.patch_status(pod.metadata.name.as_deref().unwrap(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_job_takes_three_writes_until_it_runs_and_two_at_its_end() {
    let (plane, proxy, manager) = start_with(&json!({"waitForPodsReady": {"timeout": "5m"}})).await;
    in_places("counted-jobs", |name| count_of_job(&plane, &proxy, name)).await;
    manager.stop().await.unwrap();
    plane.stop();
}

async fn count_of_job(plane: &ControlPlane, proxy: &FaultProxy, name: String) -> bool {
    let here = Place::new(plane, &name, 1).await.unwrap();
    here.wait_for_queue(&here.local_queues(), "lq", "True/Ready").await.unwrap();
    let answers = Answers::from_now(proxy);
    here.job("a", "lq", 1).await.unwrap();
    here.wait_until("a", true).await.unwrap();
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    report_pods(&here, "a", &ready).await;
    here.wait_for_condition("a", "PodsReady", "True").await.unwrap();
    // It is made, admitted, started, and ready.
    let until_ready = ["POST workload", "PATCH status", "PATCH job", "PATCH status"];
    let Some(from) = wait_for_writes(&here, &answers, "a", answers.from, &until_ready).await else {
        return false;
    };
    report_pods(&here, "a", &json!({"phase": "Succeeded", "conditions": []})).await;
    wait_for_end(&here, "a").await;
    // Finished, and the finalizer.
    let at_its_end = ["PATCH status", "PATCH workload"];
    let Some(ended) = wait_for_writes(&here, &answers, "a", from, &at_its_end).await else { return false };
    // The pod of another one fails before it is ready: nothing is written about readiness.
    let mut fails = job("b", "lq", 1, 1, 3_600);
    fails["spec"]["backoffLimit"] = json!(0);
    here.make_job(&fails).await.unwrap();
    here.wait_until("b", true).await.unwrap();
    let Some(from_b) = wait_for_writes(&here, &answers, "b", ended, &until_ready[..3]).await else {
        return false;
    };
    report_pods(&here, "b", &json!({"phase": "Failed", "conditions": []})).await;
    wait_for_end(&here, "b").await;
    let ended = wait_for_writes(&here, &answers, "b", from_b, &at_its_end).await;
    // That a Workload is made counts for both.
    let and_b = [&at_its_end[..], &until_ready[..1]].concat();
    let rest = consistently("no more writes", Duration::from_secs(1), || async {
        let [(of_a, _), (of_b, _)] =
            [of_job(&here, proxy, "a", from).await, of_job(&here, proxy, "b", from_b).await];
        Ok(progress(of_a == and_b && of_b == at_its_end, format!("{of_a:?}, {of_b:?}")))
    });
    let rest = rest.await;
    if ended.is_none() || answers.came_late(&here) {
        return false;
    }
    rest.unwrap();
    let events: Vec<_> = of_place(&proxy.writes()[answers.from..], &here)
        .into_iter()
        .filter(|write| write.path.contains("/events"))
        .collect();
    assert!(events.len() <= 8, "two Jobs with four events each: {events:?}");
    !answers.met_others(&here)
}

/// Waits until the Workload of a Job is released.
async fn wait_for_end(here: &Place<'_>, job: &str) {
    eventually(&format!("the end of {job}"), DEADLINE, || async {
        let workload = here.workload(job).await?;
        let finalizers = workload["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        Ok(progress(finalizers == 0, workload["status"]["conditions"].to_string()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_preempted_job_takes_four_more_writes_and_its_stop() {
    let (plane, proxy) = shared().await;
    in_places("counted-turns", |name| count_of_turn(plane, proxy, name)).await;
}

async fn count_of_turn(plane: &ControlPlane, proxy: &FaultProxy, name: String) -> bool {
    let here = Place::bare(plane, &name).await.unwrap();
    let answers = Answers::from_now(proxy);
    here.flavor(&here.name).await.unwrap();
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    here.cluster_queue(&here.name, 1, &preempts).await.unwrap();
    here.local_queue("lq", &here.name).await.unwrap();
    here.wait_for_queue(&here.local_queues(), "lq", "True/Ready").await.unwrap();
    here.job("low", "lq", 1).await.unwrap();
    here.wait_until("low", true).await.unwrap();
    here.wait_for_condition("low", "Admitted", "True").await.unwrap();
    let from = eventually("its start to be noted", DEADLINE, || async {
        let (writes, count) = of_job(&here, proxy, "low", 0).await;
        let started = answers.came_late(&here) || writes.iter().any(|write| write == "PATCH job");
        Ok(if started { Progress::Done(count) } else { Progress::NotYet(format!("{writes:?}")) })
    })
    .await
    .unwrap();
    make_with(&here, "high", 1, 1_000).await;
    wait_for(&here, "high", "Admitted", "True").await;
    here.wait_until("low", false).await.unwrap();
    finish(&here, "high").await;
    here.wait_until("low", true).await.unwrap();
    here.wait_for_condition("low", "Admitted", "True").await.unwrap();
    // It is stopped, in two steps at most, and started. It is evicted, its quota is released and reserved again; and it says what it waits for if that
    // takes half a second or longer.
    let turn = || async {
        let (writes, _) = of_job(&here, proxy, "low", from).await;
        let count = |what: &str| writes.iter().filter(|write| *write == what).count();
        let (of_job, of_status) = (count("PATCH job"), count("PATCH status"));
        let within = of_job <= 3 && of_status <= 4 && of_job + of_status == writes.len();
        (within, of_job >= 2 && of_status >= 3, format!("{writes:?}"))
    };
    let counted = eventually("the writes of its turn", DEADLINE, || async {
        let (within, whole, seen) = turn().await;
        Ok(if within {
            progress(whole || answers.came_late(&here), seen)
        } else {
            Progress::Never(format!("they are {seen}"))
        })
    });
    let counted = counted.await;
    let rest = consistently("no more writes than these", Duration::from_secs(1), || async {
        let (within, _, seen) = turn().await;
        Ok(progress(within, seen))
    });
    let rest = rest.await;
    if answers.came_late(&here) {
        return false;
    }
    counted.unwrap();
    rest.unwrap();
    !answers.met_others(&here)
}
