//! The simulator, what-if and explain support every kind of jobs in the registry, and declared kinds.
#![expect(clippy::disallowed_methods, reason = "a test reads its files")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::job::JobKind;
use sluice_sim::explain::{Advice, Patience, Question, Remedy, State};
use sluice_sim::{File, JobRecord, Kind, Manifests, Options, Simulation, prepare, settings, whatif};

/// The processors that every job may use.
const ENOUGH: u32 = 64;

/// A job `a` that runs for a minute.
fn job(kind: JobKind) -> Value {
    let mut job = example(kind);
    job["metadata"] = json!({"name": "a", "namespace": "t", "labels": {"kueue.x-k8s.io/queue-name": "main"},
        "annotations": {"sluice.dev/run-seconds": "60"}});
    job
}

/// The job of a kind, as small as it can be, that is in the folder of its adapter.
fn example(kind: JobKind) -> Value {
    let name = format!("{}.yaml", kind.integration().controller);
    let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/src")).unwrap();
    let text = folders
        .into_iter()
        .find_map(|folder| std::fs::read_to_string(folder.unwrap().path().join(&name)).ok());
    let text = text.ok_or_else(|| format!("{name}: write a job of the kind beside its adapter"));
    let example: Value = serde_saphyr::from_str(&text.unwrap()).unwrap();
    assert_eq!(example["apiVersion"], kind.api_version(), "{name}");
    assert_eq!(example["kind"], kind.kind(), "{name}");
    example
}

/// A file of an example of a declared kind.
fn declared_file(folder: &str, name: &str) -> Value {
    let all = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/integrations");
    serde_saphyr::from_str(&std::fs::read_to_string(format!("{all}/{folder}/{name}")).unwrap()).unwrap()
}

/// A job of each kind that nothing but a configuration knows, of those that are shipped.
fn declared() -> [(JobKind, Value); 3] {
    let folders = ["argo-workflow", "cloneset", "virtualmachine"];
    let declarations = folders.map(|folder| declared_file(folder, "declaration.yaml"));
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job"], "declared": declarations},
    });
    let (configuration, _) = Configuration::parse(&configuration.to_string()).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    folders.map(|folder| {
        let mut object = declared_file(folder, "object.yaml");
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        let kind = JobKind::from_owner(&text("apiVersion"), &text("kind")).unwrap();
        object["metadata"] = job(JobKind::JOB)["metadata"].clone();
        (kind, object)
    })
}

fn all() -> Vec<(JobKind, Value)> {
    JobKind::ALL.into_iter().map(|kind| (kind, job(kind))).chain(declared()).collect()
}

fn read(text: String) -> Manifests {
    Manifests::read(&[File { name: "world".to_owned(), text, named: true }]).unwrap()
}

fn queue(cpus: u32) -> String {
    format!(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: q}}\nspec: {{namespaceSelector: {{}}, \
         preemption: {{withinClusterQueue: LowerPriority}}, resourceGroups: [{{coveredResources: [cpu, memory, nvidia.com/gpu], \
         flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: {cpus}}}, {{name: memory, nominalQuota: 100Gi}}, \
         {{name: nvidia.com/gpu, nominalQuota: 8}}]}}]}}]}}\n"
    )
}

/// A queue with this many processors, and one job.
fn world(cpus: u32, job: &Value) -> Manifests {
    let runtime = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": {"name": "plain"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [{
            "name": "node",
            "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}},
            },
        }]}}},
    });
    let mut text = format!(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: f}}\n---\n{}---\n\
         apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: main, namespace: t}}\nspec: {{clusterQueue: q}}\n",
        queue(cpus)
    );
    for document in [&runtime, job].into_iter().filter(|document| !document.is_null()) {
        let _ = write!(text, "---\n{document}\n");
    }
    read(text)
}

fn of(manifests: &Manifests) -> Options {
    let mut options = Options::new(Options::default_configuration());
    settings(&mut options, &manifests.scenarios, false);
    options.audit = true;
    options.until = Some(SignedDuration::from_hours(1));
    // Declared kinds are queued like the others.
    options.configuration.integrations.frameworks.extend(
        JobKind::all().iter().filter(|kind| kind.is_declared()).map(|kind| kind.framework().to_owned()),
    );
    options
}

fn played(manifests: &Manifests) -> Simulation {
    let mut simulation = prepare(manifests, &BTreeMap::new(), of(manifests)).unwrap();
    simulation.run(|_| {}).unwrap();
    simulation
}

/// A question about a job of namespace `t`, after ten seconds.
fn question<'a>(manifests: &'a Manifests, kind: JobKind, name: &'a str) -> Question<'a> {
    static NO_FILES: BTreeMap<String, String> = BTreeMap::new();
    Question {
        manifests,
        files: &NO_FILES,
        // What comes of changes is checked, not the books.
        options: Options { audit: false, ..of(manifests) },
        at: SignedDuration::from_secs(10),
        namespace: "t",
        kind: Some(Kind::Job(kind)),
        name,
        all_namespaces: false,
        names_nodes: false,
        names_queues: true,
        live: None,
        decides: false,
        patience: Patience::ENDLESS,
    }
}

fn only(simulation: &Simulation) -> &JobRecord {
    let jobs = &simulation.record().jobs;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    &jobs[0]
}

#[test]
fn a_job_of_every_kind_is_admitted_runs_and_ends() {
    for (kind, object) in all() {
        let simulation = played(&world(ENOUGH, &object));
        let job = only(&simulation);
        assert_eq!(
            (job.managed, job.admitted),
            (true, Some(0)),
            "{kind:?}: {:#?}",
            simulation.record().entries
        );
        let ended = sluice_jobs::ends(kind, &object).then_some(60_000);
        assert_eq!(job.finished, ended, "{kind:?}: {:#?}", simulation.record().entries);
    }
}

/// The nodes of [`placed_world`].
const NODES: [&str; 2] = ["n0", "n1"];

/// The same world, where the nodes of the flavor have a topology.
fn placed_world(job: &Value) -> Manifests {
    let mut text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: racks}\n\
         spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}\n---\n\
         apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}\n\
         spec: {topologyName: racks, nodeLabels: {pool: f}}\n"
        .to_owned();
    for name in NODES {
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{pool: f, rack: r, kubernetes.io/os: linux, kubernetes.io/hostname: {name}}}}}\n\
             status: {{allocatable: {{cpu: {ENOUGH}, memory: 100Gi, nvidia.com/gpu: 8, pods: 110}}, \
             conditions: [{{type: Ready, status: \"True\"}}]}}\n"
        );
    }
    let mut manifests = world(ENOUGH, job);
    manifests.objects = whatif::overlay(manifests.objects, read(text).objects);
    manifests
}

#[test]
fn a_job_of_every_kind_gets_nodes_of_its_topology() {
    for (kind, object) in all().into_iter().filter(|(kind, _)| kind.integration().ungated.is_empty()) {
        let simulation = played(&placed_world(&object));
        let (job, record) = (only(&simulation), simulation.record());
        assert_eq!(job.admitted, Some(0), "{kind:?}: {:#?}", record.entries);
        let sets: Vec<_> = record.places.iter().flat_map(|change| change.sets.iter()).collect();
        let is_node = |values: &[String]| values.last().is_some_and(|node| NODES.contains(&node.as_str()));
        let placed = |set: &&sluice_sim::PlacedSet| {
            !set.domains.is_empty() && set.domains.iter().all(|(values, pods)| is_node(values) && *pods > 0)
        };
        assert!(!sets.is_empty() && sets.iter().all(placed), "{kind:?}: {:#?}", record.places);
        let ended = sluice_jobs::ends(kind, &object).then_some(60_000);
        assert_eq!(job.finished, ended, "{kind:?}: its pods run on these nodes: {:#?}", record.entries);
    }
}

#[test]
fn a_job_whose_pods_no_gate_holds_back_runs_when_its_flavor_has_no_topology() {
    let mut waiting = Vec::new();
    for (kind, object) in all().into_iter().filter(|(kind, _)| !kind.integration().ungated.is_empty()) {
        let manifests = placed_world(&object);
        let simulation = played(&manifests);
        assert_eq!(only(&simulation).admitted, None, "{kind:?}: {:#?}", simulation.record().entries);
        let answer = question(&manifests, kind, "a").answer().unwrap();
        assert_eq!(answer.state, State::Waiting, "{kind:?}: {}", answer.text());
        let why = "nothing holds the pods of pod set main back until they have their nodes";
        assert!(answer.text().contains(why), "{kind:?}: {}", answer.text());
        let advice = "give the queue a flavor without a topology";
        let is_advised = |remedy: &Remedy| {
            remedy.text.starts_with(advice) && remedy.advice == [Advice::UseFlavorWithoutTopology]
        };
        assert!(answer.remedies.iter().any(is_advised), "{kind:?}: {}", answer.text());
        let mut simulation = prepare(&manifests, &BTreeMap::new(), of(&manifests)).unwrap();
        simulation.advance(SignedDuration::from_secs(10)).unwrap();
        let plain = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: plain}\n";
        simulation.apply(&read(plain.to_owned()).objects[0]).unwrap();
        let queue = read(queue(ENOUGH).replace("{name: f,", "{name: plain,"));
        let groups = &queue.objects[0].object["spec"]["resourceGroups"];
        let change = json!({"spec": {"resourceGroups": groups}});
        simulation.patch("ClusterQueue", None, "q", &change).unwrap();
        simulation.advance(SignedDuration::from_secs(10)).unwrap();
        assert!(only(&simulation).admitted.is_some(), "{kind:?}: {:#?}", simulation.record().entries);
        waiting.push(kind.framework());
    }
    assert_eq!(waiting, ["argoproj.io/workflow", "kubevirt.io/virtualmachine"]);
}

/// A job of a kind that is declared in this group, with its pods like that.
fn errand(group: &str, pods: &Value) -> (JobKind, Value) {
    let declaration = json!({
        "group": group, "version": "v1", "kind": "Errand", "suspend": {"path": "spec.suspend"}, "podSets": [pods],
        "active": "self.status.phase == 'Running'",
        "finished": "self.status.phase in ['Done', 'Failed']", "success": "self.status.phase == 'Done'",
        "states": {"running": {"phase": "Running"}, "succeeded": {"phase": "Done"}, "failed": {"phase": "Failed"}},
    });
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "integrations": {"declared": [declaration]},
    });
    let (configuration, _) = Configuration::parse(&configuration.to_string()).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    let kind = JobKind::named(&format!("{group}/errand")).unwrap();
    let mut object = job(JobKind::JOB);
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind());
    object["spec"]["suspend"] = json!(true);
    (kind, object)
}

#[test]
fn a_job_whose_pods_no_gate_holds_back_gets_nodes_when_its_kind_declares_its_template() {
    let inject = json!({"nodeSelector": "spec.nodeSelector", "tolerations": "spec.tolerations"});
    let pods = json!({"name": "main", "templateExpression": "self.spec.template", "inject": inject});
    let (kind, object) = errand("expression.sim.example.com", &pods);
    let manifests = placed_world(&object);
    assert_eq!(only(&played(&manifests)).admitted, None);
    let answer = question(&manifests, kind, "a").answer().unwrap();
    let advice = "or the declaration of the kind the template of its pods (template)";
    assert!(answer.remedies.iter().any(|remedy| remedy.text.ends_with(advice)), "{}", answer.text());
    let (_, object) =
        errand("template.sim.example.com", &json!({"name": "main", "template": "spec.template"}));
    let simulation = played(&placed_world(&object));
    assert_eq!(only(&simulation).admitted, Some(0), "{:#?}", simulation.record().entries);
    assert!(!simulation.record().places.is_empty());
}

#[test]
fn a_job_of_every_kind_is_preempted_by_one_that_matters_more_and_runs_again() {
    let class = class();
    let mut urgent = job(JobKind::JOB);
    urgent["metadata"]["name"] = json!("urgent");
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    urgent["metadata"]["annotations"]["sluice.dev/submit-after-seconds"] = json!("10");
    let container = &mut urgent["spec"]["template"]["spec"]["containers"][0];
    container["resources"] = json!({"requests": {"cpu": ENOUGH.to_string()}});
    for (kind, object) in all() {
        let mut manifests = world(ENOUGH, &object);
        manifests.objects.extend(read(format!("{class}\n---\n{urgent}\n")).objects);
        let simulation = played(&manifests);
        let (urgent, own): (Vec<_>, Vec<_>) =
            simulation.record().jobs.iter().partition(|job| &*job.name == "urgent");
        let [urgent] = urgent[..] else { unreachable!("{kind:?}: {urgent:?}") };
        assert_eq!(urgent.preempts, 1, "{kind:?}: {:#?}", simulation.record().entries);
        assert!(urgent.admitted.is_some_and(|at| at >= 10_000) && urgent.success, "{kind:?}: {urgent:?}");
        let preempted: u32 = own.iter().map(|job| job.preempted).sum();
        let held: usize = own.iter().map(|job| job.holds.len()).sum();
        // What is a pod by itself is deleted, and its user alone makes another.
        let is_pod = kind == JobKind::POD;
        assert_eq!(
            (preempted, held),
            (1, if is_pod { 1 } else { 2 }),
            "{kind:?}: {:#?}",
            simulation.record().entries
        );
        let ended = own.iter().filter_map(|job| job.finished).max();
        let ends = sluice_jobs::ends(kind, &object) && !is_pod;
        assert_eq!(ended > urgent.finished, ends, "{kind:?}: {:#?}", simulation.record().entries);
    }
}

#[test]
fn a_job_of_every_kind_that_waits_is_explained_by_its_own_name() {
    for (kind, object) in all() {
        let manifests = world(0, &object);
        let answer =
            question(&manifests, kind, "a").answer().unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert_eq!(answer.state, State::Waiting, "{kind:?}: {}", answer.text());
        assert!(answer.text().contains("quota"), "{kind:?}: {}", answer.text());
    }
}

#[test]
fn a_change_of_quota_moves_a_job_of_every_kind() {
    for (kind, object) in all() {
        let before = world(0, &object);
        let mut after = before.clone();
        after.objects = whatif::overlay(after.objects, read(queue(ENOUGH)).objects);
        let (before, after) = (played(&before), played(&after));
        let difference =
            whatif::Difference::new(before.record(), before.lasted(), after.record(), after.lasted(), 0);
        let moved: Vec<_> = difference.moved.iter().map(|moved| &*moved.job).collect();
        let key = only(&after).key();
        assert_eq!(moved, [&key], "{kind:?}");
    }
}

/// A class of priority above that of other jobs.
fn class() -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"},
        "value": 1000,
    })
}

/// A Job of all processors, for which others are preempted.
fn large() -> Value {
    let mut large = job(JobKind::JOB);
    large["metadata"]["name"] = json!("large");
    large["metadata"]["annotations"]["sluice.dev/run-seconds"] = json!("3600");
    let container = &mut large["spec"]["template"]["spec"]["containers"][0];
    container["resources"] = json!({"requests": {"cpu": ENOUGH.to_string()}});
    large
}

#[test]
fn a_job_of_every_kind_starts_with_the_priority_that_a_change_gives_it() {
    let merge = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}});
    for (kind, mut object) in all() {
        object["metadata"]["annotations"]["sluice.dev/submit-after-seconds"] = json!("5");
        let mut manifests = world(ENOUGH, &object);
        manifests.objects.extend(read(format!("{}\n---\n{}\n", class(), large())).objects);
        // Each pod of a Deployment is a job, and stands for it.
        let pods = kind.integration().pods_are_jobs;
        let (asked, name) = if pods { (JobKind::POD, "a-0") } else { (kind, "a") };
        let changed = question(&manifests, kind, "a").what_if(&merge);
        let changed = changed.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert!(!changed.before.starts_now, "{kind:?}: {}", changed.text());
        assert!(changed.after.starts_now, "{kind:?}: {}", changed.text());
        assert_eq!(changed.after.preempts, ["t/large"], "{kind:?}");
        assert_eq!((&*changed.change.kind, &*changed.change.name), (asked.kind(), name), "{kind:?}");
        // The same is offered.
        let explained = question(&manifests, kind, "a").answer().unwrap();
        let offered =
            explained.remedies.iter().any(|remedy| remedy.text.contains("WorkloadPriorityClass high"));
        assert!(offered, "{kind:?}: {}", explained.text());
    }
}

#[test]
fn a_change_of_a_group_of_pods_is_one_of_all_its_pods() {
    let mut text = format!("{}\n---\n{}\n---\n", class(), large());
    for name in ["g-0", "g-1"] {
        let mut pod = job(JobKind::POD);
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("g");
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("2");
        pod["metadata"]["annotations"]["sluice.dev/submit-after-seconds"] = json!("5");
        let _ = write!(text, "{pod}\n---\n");
    }
    let mut manifests = world(ENOUGH, &Value::Null);
    manifests.objects.extend(read(text).objects);
    let merge = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}});
    let changed = question(&manifests, JobKind::POD, "g").what_if(&merge).unwrap();
    let mut patched: Vec<&str> =
        [&changed.change].into_iter().chain(&changed.also).map(|patch| &*patch.name).collect();
    patched.sort_unstable();
    assert_eq!(patched, ["g-0", "g-1"], "{}", changed.text());
    assert!(!changed.before.starts_now && changed.after.starts_now, "{}", changed.text());
}

#[test]
fn of_a_job_of_every_kind_without_a_queue_it_is_said_whether_it_runs() {
    for (kind, mut object) in all() {
        object["metadata"]["labels"] = json!({});
        let facts = kind.integration();
        let path = sluice_jobs::suspend_path(kind);
        for suspended in [true, false].into_iter().filter(|suspended| !(*suspended && facts.suspends_pods)) {
            let mut object = object.clone();
            if !facts.suspends_pods {
                let (field, parents) = path.split_last().unwrap();
                let parent = parents.iter().fold(&mut object, |at, part| &mut at[*part]);
                if facts.of_pods {
                    let gates = json!([{"name": "kueue.x-k8s.io/admission"}]);
                    parent[*field] = if suspended { gates } else { json!([]) };
                } else if suspended {
                    parent[*field] = sluice_jobs::suspended_value(kind);
                } else if let Some(fields) = parent.as_object_mut() {
                    fields.remove(*field);
                }
                assert_eq!(sluice_jobs::is_suspended(kind, &object), suspended, "{kind:?}: {object}");
            }
            let manifests = world(ENOUGH, &object);
            let answer = question(&manifests, kind, "a").answer().unwrap();
            let said = answer.text();
            assert_eq!(answer.state, State::NotQueued, "{kind:?}: {said}");
            assert_eq!(said.contains("runs at once"), !suspended, "{kind:?}: {said}");
            assert_eq!(said.contains(&format!("({})", path.join("."))), suspended, "{kind:?}: {said}");
            // The label does nothing on a pod that is there.
            let again = said.contains("create it again with the label kueue.x-k8s.io/queue-name=main");
            assert_eq!(
                (again, said.contains("kubectl label")),
                (facts.of_pods, !facts.of_pods),
                "{kind:?}: {said}"
            );
        }
    }
}

/// Pods of one group have one Workload, which all of them own.
#[test]
fn a_group_of_pods_is_explained_by_its_name_and_by_those_of_its_pods() {
    let mut text = String::new();
    for name in ["g-0", "g-1"] {
        let mut pod = job(JobKind::POD);
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("g");
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("2");
        let _ = write!(text, "{pod}\n---\n");
    }
    let base = world(1, &Value::Null);
    let mut manifests = base.clone();
    manifests.objects.extend(read(text).objects);
    for name in ["g", "g-0", "g-1"] {
        let answer = question(&manifests, JobKind::POD, name)
            .answer()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(answer.state, State::Waiting, "{name}: {}", answer.text());
    }
}

/// A MiniCluster is no job, and its user writes none: the Flux operator makes it.
#[test]
fn a_mini_cluster_runs_as_the_job_that_its_operator_makes_of_it() {
    let cluster = |size: u32| {
        json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": {"name": "a", "namespace": "t", "annotations": {"sluice.dev/run-seconds": "60"}},
            "spec": {
                "size": size, "jobLabels": {"kueue.x-k8s.io/queue-name": "main"},
                "containers": [{"image": "i", "resources": {"requests": {"cpu": 3}}}, {"image": "j"}],
            },
        })
    };
    let manifests = placed_world(&cluster(4));
    assert!(manifests.skipped.is_empty(), "{:?}", manifests.skipped);
    let simulation = played(&manifests);
    let (made, record) = (only(&simulation), simulation.record());
    assert_eq!(
        (made.managed, made.admitted, made.finished),
        (true, Some(0), Some(60_000)),
        "{:#?}",
        record.entries
    );
    let pods = record.places.iter().flat_map(|change| change.sets.iter()).flat_map(|set| &set.domains);
    assert_eq!(pods.map(|(_, pods)| *pods).sum::<i64>(), 4, "{:#?}", record.places);
    let made = manifests.objects.iter().find(|one| one.kind == Kind::Job(JobKind::JOB)).unwrap();
    assert_eq!(made.object["metadata"]["ownerReferences"][0]["kind"], "MiniCluster");
    let waits = question(&world(11, &cluster(4)), JobKind::JOB, "a").answer().unwrap();
    assert_eq!(waits.state, State::Waiting, "{}", waits.text());
    assert!(waits.text().contains("12"), "four pods of three processors: {}", waits.text());
    // Where its Job is there, too, as in what was read of a cluster, it is that; without pods it has none.
    let mut own = job(JobKind::JOB);
    own["spec"]["parallelism"] = json!(3);
    let both = read(format!("{}\n---\n{own}\n", cluster(4)));
    assert_eq!(both.objects.iter().map(|one| &one.object).collect::<Vec<_>>(), [&own]);
    assert!(read(cluster(0).to_string()).objects.is_empty());
}
