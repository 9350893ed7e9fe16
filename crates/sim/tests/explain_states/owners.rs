//! Jobs and Workloads below objects that are not queued themselves: each is simulated by itself, and ends.

use std::task::{Context, Poll, Waker};

use sluice_sim::live::{self, Extent, Keep, Listed};

use super::waiting::{first, later, wait};
use super::*;

/// The objects of a virtual cluster as they are read from a real one.
fn read_from(simulation: &Simulation) -> Manifests {
    let kinds: Vec<JobKind> = JobKind::jobs().collect();
    let list = |place: String, _selector: &'static str, keep: Keep| {
        let jobs = kinds.iter().copied().map(Kind::Job);
        let known = [Kind::ResourceFlavor, Kind::ClusterQueue, Kind::LocalQueue, Kind::Workload];
        let kind = known.into_iter().chain(jobs).find(|kind| kind.collection(kind.version(), None) == place);
        let found = kind.into_iter().flat_map(|kind| simulation.objects(kind));
        let kept: Vec<_> = found.filter_map(|(_, object)| keep(object.clone())).collect();
        std::future::ready(Ok::<Listed, ()>(kept.into()))
    };
    let reading = std::pin::pin!(live::read(Extent::All, &kinds, list));
    let Poll::Ready(read) = reading.poll(&mut Context::from_waker(Waker::noop())) else {
        unreachable!("nothing is waited for")
    };
    let read = read.unwrap();
    Manifests { objects: read.objects, observed: read.observed, ..Manifests::default() }
}

/// The answer about a Workload of a cluster that was read, as the manager gives it.
fn answer(simulation: &Simulation, workload: &Value) -> Explained {
    let mut manifests = read_from(simulation);
    manifests.subject = Some(Subject { workload: Some(workload.clone()), ..Subject::default() });
    let name = workload["metadata"]["name"].as_str().unwrap();
    let account = simulation.engine().account(Some(Kind::Workload), "a", name, 5);
    let (at, options) = (SignedDuration::ZERO, Options { start: simulation.now(), ..options() });
    Question { at, options, live: account.as_ref(), decides: true, ..question(&manifests, name) }
        .answer()
        .unwrap()
}

/// That it waits for the first one, which has an hour less ten seconds to go.
fn follows_the_first(explained: &Explained) {
    let text = explained.text();
    assert!(!explained.incomplete, "{text}");
    let forecast = explained.forecast.as_ref().unwrap_or_else(|| unreachable!("{text}"));
    let seconds = forecast.p50.unwrap();
    assert!((3_580..=3_600).contains(&seconds), "{text}");
}

#[test]
fn jobs_that_are_queued_below_a_jobset_that_is_not_are_read_and_follow_one_another() {
    let set = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: a, uid: set-uid}
spec:
  suspend: true
  replicatedJobs:
  - name: workers
    template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
";
    let owner = "ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: set, uid: set-uid, controller: true}]";
    let below = |job: &str| job.replace("  annotations: {", &format!("  {owner}\n  annotations: {{"));
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, set, &below(&first()), &below(&later(JOB, ""))].concat();
    let simulation = cluster(&world);
    let (subject, _) = asked_about(&simulation, "mine");
    follows_the_first(&answer(&simulation, &subject.workload.unwrap()));
}

#[test]
fn a_workload_whose_owner_is_of_a_kind_that_is_not_known_stands_for_itself_and_ends() {
    let workload = |name: &str, owner: &str, more: &str, pods: u32| {
        format!(
            "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  name: {name}
  namespace: a
  annotations: {{sluice.dev/run-seconds: \"3600\"{more}}}
  ownerReferences: [{{{owner}, name: {name}, uid: of-{name}, controller: true}}]
spec:
  queueName: main
  podSets:
  - name: main
    count: {pods}
    template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}}}
---
"
        )
    };
    for owner in ["apiVersion: example.com/v1, kind: Tour", "apiVersion: batch/v1, kind: CronJob"] {
        let first = workload("first", owner, "", 10);
        let mine = workload("mine", owner, ", sluice.dev/submit-after-seconds: \"5\"", 4);
        let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &first, &mine].concat();
        let mut simulation = cluster(&world);
        let own = ObjectRef::namespaced(Kind::Workload, "a", "mine");
        let value = simulation.object(&own).unwrap().clone();
        follows_the_first(&answer(&simulation, &value));
        assert!(!runs(&simulation), "{owner}");
        wait(&mut simulation, 3_700);
        assert!(runs(&simulation), "{owner}");
        wait(&mut simulation, 3_700);
        assert!(simulation.record().job_named("a/mine").unwrap().finished.is_some(), "{owner}");
    }
}
