//! Answers of a simulated cluster, in the form that the dashboard's page reads. Each object is a function of its number.

use serde_json::{Value, json};

/// The ClusterQueues.
pub const QUEUES: usize = 1000;
/// The Workloads.
pub const WORKLOADS: usize = 20_000;
/// The nodes.
pub const NODES: usize = 3000;
/// The Workloads that lost nodes.
pub const DISPLACED: usize = 700;
/// A name that would run if it became HTML.
pub const HOSTILE: &str = "<script>alert(1)</script>";
/// A message that would.
pub const MESSAGE: &str = "<img src=x onerror=alert(2)> couldn't assign flavors to pod set main: insufficient unused quota for cpu in \
                           flavor default, 3 more needed";

const EVENTS: [&str; 5] = ["admitted", "preempted", "evicted", "finished", "pending"];

/// The time that is `seconds` seconds after the beginning of the made-up cluster.
fn at(seconds: usize) -> String {
    format!(
        "2026-11-{:02}T{:02}:{:02}:{:02}Z",
        1 + seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

fn name(number: usize) -> String {
    if number == 3 { HOSTILE.to_owned() } else { format!("job-train-model-{number}") }
}

/// The policy that the manager sends.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                          connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A refusal.
pub fn refusal(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "", "code": code})
}

/// `/api/who`.
pub fn who() -> Value {
    json!({"user": "alice", "all": true, "namespaces": [], "unasked": 0})
}

/// A Workload as a search finds it.
pub fn found(number: usize) -> Value {
    let mut item = item(number);
    item["clusterQueue"] = format!("team-{}", number % QUEUES).into();
    item
}

/// A Workload as the list of a queue has it.
pub fn item(number: usize) -> Value {
    let hidden = number % 11 == 10;
    let state = ["admitted", "pending", "reserved"][number % 3];
    json!({
        "position": (state == "pending").then_some(number),
        "namespace": (!hidden).then(|| format!("team-{}", number % QUEUES)),
        "workload": (!hidden).then(|| name(number)),
        "job": (!hidden).then(|| name(number)),
        "localQueue": (!hidden).then_some("main"),
        "priority": number % 5 * 100,
        "created": at(number),
        "requests": {"cpu": "4", "nvidia.com/gpu": "8"},
        "reason": if state == "pending" { "Pending" } else { "" },
        "message": if state == "pending" { MESSAGE } else { "" },
        "state": state,
    })
}

fn resource(name: &str, unit: f64, suffix: &str, used: u8) -> Value {
    let borrowed = used.saturating_sub(16);
    let lent = if used < 4 { 2 } else { 0 };
    json!({
        "resource": name, "nominal": 16.0 * unit, "used": f64::from(used) * unit, "borrowed": f64::from(borrowed) * unit, "lent": f64::from(lent) * unit,
        "lendingLimit": null, "borrowingLimit": null,
        "shown": {"nominal": format!("16{suffix}"), "used": format!("{used}{suffix}"), "borrowed": format!("{borrowed}{suffix}"), "lent": format!("{lent}{suffix}"), "lendingLimit": null, "borrowingLimit": null},
    })
}

fn queue(number: usize) -> Value {
    let used = |salt: usize| u8::try_from((number * 7 + salt) % 22).unwrap_or(0);
    let flavor = |name: &str, salt: usize| {
        let resources =
            [resource("cpu", 1.0, "", used(salt)), resource("memory", 1_073_741_824.0, "Gi", used(salt + 5))];
        json!({"flavor": name, "resources": resources})
    };
    let stopped = number % 97 == 5;
    json!({
        "name": format!("team-{number}"),
        "cohort": (number % 10 != 9).then(|| format!("cohort-{}", number % 40)),
        "state": if stopped { "stopped" } else { "active" }, "reason": if stopped { "Stopped" } else { "Ready" }, "message": "",
        "pending": number % 30, "admitted": number % 7, "reserving": number % 7,
        "flavors": [flavor("spot", 0), flavor("on-demand", 3)],
    })
}

/// `/api/now`, after `more` more admissions.
pub fn now(more: usize) -> Value {
    let own = |n: usize| match n {
        0 => json!([{"flavor": "spot", "resources": [resource("cpu", 1.0, "", 3)]}]),
        _ => json!([]),
    };
    let cohorts = (0..40).map(|n| {
        let parent = (n > 3).then(|| format!("cohort-{}", n % 4));
        json!({"name": format!("cohort-{n}"), "parent": parent, "flavors": own(n)})
    });
    let event = |n: usize| {
        let hidden = n % 11 == 10;
        json!({
            "at": at(80_000 - n), "what": EVENTS[n % EVENTS.len()],
            "namespace": (!hidden).then(|| format!("team-{n}")), "workload": (!hidden).then(|| name(n)),
            "clusterQueue": format!("team-{n}"), "reason": "InCohortReclamation", "message": MESSAGE,
        })
    };
    let new = |n: usize| {
        json!({
            "at": at(80_000 + n), "what": "admitted", "namespace": "team-1", "workload": format!("new-{n}"),
            "clusterQueue": "team-1", "reason": "Admitted", "message": "",
        })
    };
    let recent = (0..more).rev().map(new).chain((0..200 - more).map(event));
    json!({
        "at": at(80_000), "live": true, "revision": 7, "cohorts": cohorts.collect::<Vec<_>>(),
        "clusterQueues": (0..QUEUES).map(queue).collect::<Vec<_>>(), "others": null, "recent": recent.collect::<Vec<_>>(),
    })
}

/// `/api/nodes`, from an offset on.
pub fn nodes(offset: usize, limit: usize) -> Value {
    let node = |n: usize| {
        let well = n % 50 != 3;
        json!({
            "name": format!("node-{n}"), "flavors": ["spot"], "healthy": well, "why": (!well).then_some("NotReady"),
            "levels": {"cloud.example.com/rack": format!("r{}", n % 40)}, "used": {"cpu": "3"}, "capacity": {"cpu": "4"},
        })
    };
    let shown: Vec<_> = (offset..NODES.min(offset + limit)).map(node).collect();
    json!({"flavors": [{"name": "spot", "labels": {"pool": HOSTILE}, "nodes": NODES, "healthy": 2940, "topology": "default"}],
        "nodes": shown, "total": NODES})
}

/// `/api/displaced`, from an offset on.
pub fn displaced(offset: usize, limit: usize) -> Value {
    let item = |n: usize| {
        let mut item = found(n);
        let seen = !item["workload"].is_null();
        let evicted = item["state"] == "pending";
        item["since"] = (n != 4).then(|| at(70_000 + n)).into();
        item["lost"] = json!({
            "count": if evicted { 0 } else { 2 },
            "nodes": seen.then(|| if evicted { vec![] } else { vec![format!("node-{n}"), HOSTILE.to_owned()] }),
            "message": (evicted && seen).then_some(MESSAGE),
        });
        item
    };
    let shown: Vec<_> = (offset..DISPLACED.min(offset + limit)).map(item).collect();
    json!({"total": DISPLACED, "items": shown})
}

/// `/api/workloads/NAMESPACE/NAME`.
pub fn workload(namespace: &str, name: &str) -> Value {
    let mut item = found(4);
    (item["namespace"], item["workload"]) = (namespace.into(), name.into());
    let life = ["queued", "reserved", "admitted", "started", "evicted"].iter().enumerate();
    json!({
        "item": item, "job": {"kind": "Job", "name": name},
        "life": life.map(|(n, what)| json!({"at": at(n * n * 60), "what": what, "reason": "Reason", "message": MESSAGE})).collect::<Vec<_>>(),
        "podSets": [{"name": "main", "count": 3, "flavors": {"cpu": "spot"}, "nodeCount": 2, "nodes": ["node-1", "node-2"]}],
        "checks": [{"name": "prov", "state": "Pending", "message": "ETA 3m"}],
    })
}

/// `/api/queues/NAME/starts` and `/api/workloads/NAMESPACE/NAME/start`: of the Workloads with these numbers.
pub fn starts(numbers: &[usize]) -> Value {
    let shown = numbers.iter().map(|&n| item(n)).filter(|item| !item["workload"].is_null());
    let start = |item: Value| {
        let early = (item["position"].as_u64() != Some(7)).then(|| at(90_000));
        json!({
            "namespace": item["namespace"], "workload": item["workload"], "early": early, "expected": at(90_900), "late": at(94_000),
            "starts": 20, "preempts": ["team-9/low"], "others": 2,
        })
    };
    json!({
        "name": "team-1", "at": at(80_000), "whyNot": null, "futures": 20, "complete": true, "basis": "run times of jobs: 7 by annotation",
        "hours": 72, "waiting": WORKLOADS, "first": 100, "items": shown.map(start).collect::<Vec<_>>(),
    })
}

/// `/api/topologies`.
pub fn topologies() -> Value {
    let fit = |level: &str, pods: u32| json!({"flavor": "spot", "level": level, "resource": "nvidia.com/gpu", "perPod": 8, "pods": pods});
    let levels = ["cloud.example.com/block", "cloud.example.com/rack", "kubernetes.io/hostname"];
    let waits = |level: &str, pods: u32| json!({"flavor": "spot", "level": level, "shape": "cpu=4,memory=16Gi", "pods": pods});
    let shapes = [waits(levels[0], 90), waits(levels[1], 12), waits(levels[2], 2)];
    json!({"topologies": [{"name": "default", "levels": levels, "flavors": ["spot"], "fits": [fit(levels[0], 40), fit(levels[1], 8), fit(levels[2], 1)], "shapes": shapes}], "hidden": false})
}

/// `/api/topologies/NAME/…`: 12,500 hosts in 40 blocks, of which one has 900 racks.
pub fn domains(path: &[&str], offset: usize, limit: usize) -> Value {
    let (name, total, nodes) = match path {
        [] => ("block", 40, 320),
        ["block-1"] => ("rack", 900, 1),
        [_] => ("rack", 20, 16),
        _ => ("host", 16, 1),
    };
    let domain = |n: usize| {
        let used = u32::try_from(n * 7 % (nodes + 1)).unwrap_or(0);
        let down = usize::from(n % 9 == 4);
        json!({
            "name": format!("{name}-{n}"), "nodes": nodes, "healthy": nodes - down,
            "resources": [{"resource": "nvidia.com/gpu", "used": used, "capacity": nodes, "shown": {"used": used.to_string(), "capacity": nodes.to_string()}}],
            "jobs": [{"namespace": "team-3", "workload": HOSTILE, "pods": 8}], "more": 0, "others": 2,
        })
    };
    let shown: Vec<_> = (offset..total.min(offset + limit)).map(domain).collect();
    json!({"name": "default", "levels": ["cloud.example.com/block", "cloud.example.com/rack", "kubernetes.io/hostname"], "path": path, "total": total, "domains": shown, "hidden": false})
}

/// A simulation of all Workloads, as `kubectl kueue simulate --output json` prints it.
pub fn report() -> Value {
    report_of(WORKLOADS)
}

/// The same of `workloads` Workloads.
pub fn report_of(workloads: usize) -> Value {
    let mut lines = vec![
        json!({"at": 9000, "event": "scenario", "message": "nodes fail: node-1, node-2"}),
        json!({"at": 20_000, "event": "scenario", "message": "patch ClusterQueue team-1: {\"spec\":{\"stopPolicy\":\"Hold\"}}"}),
        json!({"at": 40_000, "event": "scenario", "message": "patch ClusterQueue team-1: {\"spec\":{\"stopPolicy\":\"None\"}}"}),
    ];
    for n in 0..workloads {
        let (queue, submitted) = (format!("team-{}", n % QUEUES), n * 4);
        let job = format!("{queue}/{}", name(n));
        let start = submitted + 60 + n % 300;
        lines.push(json!({"at": submitted, "job": job, "event": "submitted", "priority": n % 9 * 10, "clusterQueue": queue}));
        lines.push(json!({"at": submitted + 1, "job": job, "event": "waiting", "reason": "Pending", "message": MESSAGE}));
        lines.push(
            json!({"at": start, "job": job, "event": "admitted", "queue": queue, "flavors": "cpu=spot (4)"}),
        );
        lines.push(match n % 50 {
            7 => json!({"at": start + 400, "job": job, "event": "preempted", "by": null, "reason": "InClusterQueue", "message": ""}),
            9 => json!({"at": start + 300, "job": job, "event": "evicted", "reason": "NodeFailures", "message": MESSAGE}),
            _ => json!({"at": start + 600 + n % 500, "job": job, "event": "finished", "success": n % 31 != 0}),
        });
    }
    lines.sort_by_key(|line| line["at"].as_u64());
    json!({
        "seed": 0, "start": at(0), "seconds": 86_400.0,
        "totals": {"submitted": workloads, "admitted": workloads, "finished": 1, "failed": 1, "running": 0, "waiting": 0, "unmanaged": 0, "refused": 0, "preemptions": 400},
        "queues": [], "flavors": [{"flavor": "spot", "resource": "cpu", "nominal": "100", "utilisation": 80.5, "borrowedHours": 0.0, "mostUsed": "99"}], "timeline": lines, "places": [places()],
        "stops": [{"queue": "team-1", "from": 20_000.0, "to": 40_000.0}, {"queue": "team-2", "from": 0.0}],
    })
}

/// 32 hosts in 8 racks of 4 blocks, of which one fails after half of the day, and a pod of each of 2,000 jobs for an hour, two of a job that is
/// not named among them.
fn places() -> Value {
    let (day, hour) = (86_400_000, 3_600_000);
    let leaf = |n: usize| [format!("block-{}", n / 8), format!("rack-{}", n / 4), format!("host-{n}")];
    let leaves: Vec<_> = (0..32).map(leaf).collect();
    let mut nodes: Vec<_> =
        (0..32).map(|n| [0, if n == 5 { day / 2 } else { day }, 1, n, 8, 64_000]).collect();
    nodes.push([day / 2, day, 0, 5, 8, 64_000]);
    let jobs: Vec<Option<String>> =
        (0..2000).map(|n| (n != 2).then(|| format!("team-{}/{}", n % QUEUES, name(n)))).collect();
    let pods: Vec<_> = (0..2000)
        .map(|n| [n * 40_000, n * 40_000 + hour, n, n * 7 % 32, 0, if n == 2 { 2 } else { 1 }])
        .collect();
    json!({
        "name": "default", "levels": ["cloud.example.com/block", "cloud.example.com/rack", "kubernetes.io/hostname"],
        "resources": ["nvidia.com/gpu", "cpu"], "leaves": leaves, "nodes": nodes, "sizes": [[2, 4000]], "jobs": jobs, "pods": pods, "cut": false,
    })
}
