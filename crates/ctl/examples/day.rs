//! A day of many jobs in many queues, to see how fast the simulator is: `cargo run --release -p sluice-ctl --example day`.
//!
//! Arguments: the number of jobs (100000) and of ClusterQueues (1000).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::{Value, json};
use sluice_ctl::html;
use sluice_sim::parts::{Progress, play};
use sluice_sim::{File, Manifests, Options, Report, settings};

/// As in the programs that simulate.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// ClusterQueues per cohort.
const PER_COHORT: usize = 20;

fn queue(number: usize) -> Vec<Value> {
    let flavors: Vec<_> = [("on-demand", "16"), ("spot", "16")]
        .iter()
        .map(|(name, quota)| {
            let resources = json!([
                {"name": "cpu", "nominalQuota": quota}, {"name": "memory", "nominalQuota": format!("{quota}0Gi")},
            ]);
            json!({"name": name, "resources": resources})
        })
        .collect();
    let (namespace, name) = (format!("team-{number}"), format!("queue-{number}"));
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {
                "cohortName": format!("cohort-{}", number / PER_COHORT), "namespaceSelector": {},
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
            },
        }),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": namespace}, "spec": {"clusterQueue": name},
        }),
    ]
}

fn arrivals(name: &str, priority: &str, jobs: usize, queues: usize) -> Value {
    let requests = json!({"cpu": "4", "memory": "8Gi"});
    let container = json!({"name": "main", "image": "train", "resources": {"requests": requests}});
    let every = format!("{}ms", 86_400_000 / jobs.max(1));
    json!({
        "name": name, "count": jobs, "every": {"exponential": {"mean": every}},
        "runTime": {"lognormal": {"p50": "20m", "p90": "2h"}},
        "queues": (0..queues).map(|n| json!({"namespace": format!("team-{n}"), "queue": "main"})).collect::<Vec<_>>(),
        "template": {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"labels": {"kueue.x-k8s.io/priority-class": priority}},
            "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        },
    })
}

fn world(jobs: usize, queues: usize) -> String {
    let mut documents: Vec<Value> = ["on-demand", "spot"]
        .iter()
        .map(|name| {
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}})
        })
        .collect();
    for (name, value) in [("low", 1), ("high", 100)] {
        documents.push(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value,
        }));
    }
    documents.extend((0..queues).flat_map(queue));
    let high = jobs / 10;
    let streams = [arrivals("batch", "low", jobs - high, queues), arrivals("urgent", "high", high, queues)];
    documents.push(json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": {"until": "24h", "seed": 1, "arrivals": streams},
    }));
    documents.iter().fold(String::new(), |text, document| text + "---\n" + &document.to_string() + "\n")
}

/// The most memory that the process had, as the kernel reports it.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or("VmHWM: unknown").to_owned()
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (jobs, queues) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(1000));
    let began = Instant::now();
    let file = File { name: "day".to_owned(), text: world(jobs, queues), named: true };
    let manifests = Manifests::read(&[file]).expect("the world made here is read");
    let mut options = Options::new(Options::default_configuration());
    settings(&mut options, &manifests.scenarios, false);
    let shown = Mutex::new(Instant::now());
    let progress = |progress: Progress| {
        if let Ok(mut shown) = shown.try_lock()
            && shown.elapsed().as_secs() >= 5
        {
            *shown = Instant::now();
            eprintln!("{} jobs, {} of {} parts done", progress.jobs, progress.done, progress.parts);
        }
    };
    let played = play(&manifests, &BTreeMap::new(), &options, &progress).expect("the engine comes to rest");
    eprintln!("simulated after {:?}, {} writes", began.elapsed(), played.writes);
    let report = Report::new(&played.record, played.lasted, 1, Vec::new());
    let page = html::page(html::Subject::Simulation, &played.record, &report, played.lasted)
        .expect("a report is JSON");
    println!("{:?}", report.totals);
    println!("{:?} in all, {}, page of {} kB", began.elapsed(), peak(), page.len() / 1024);
}
