//! The marks of a schedule, as both pages draw them: the expected ones for the world of `marks.yaml`.

use std::process::Command;

use serde_json::Value;
use sluice_testkit::{assets, plugin};

/// What is marked for stopped queues, quota, capacity and an eviction, each with the texts that it shows, in the order of time.
const MARKED: [(&str, &str); 7] = [
    ("stop", "10m (08:10 UTC): "),
    ("resume", "20m (08:20 UTC): "),
    ("quota", "30m (08:30 UTC): "),
    ("nodes", "40m (08:40 UTC): nodes fail: n2"),
    ("nodes", "50m (08:50 UTC): nodes recover: n2"),
    ("nodes", "1h (09:00 UTC): nodes go: n2"),
    ("nodes", "1h10m (09:10 UTC): nodes come: n3"),
];
/// What is drawn of that: signs on the axis, lines through all rows, the time in which the queue is stopped, quota in its row, the words of
/// the key, and the job's row in words.
pub const DRAWN: &str = "(() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const [stop] = all('.row.queue .stopped:not(.some)');
    const lines = Object.fromEntries(['stop', 'resume'].map((kind) => [kind, all(`.over .moment.${kind}`).map((line) => parseFloat(line.getAttribute('x1')))]));
    const from = parseFloat(stop.getAttribute('x')), to = from + parseFloat(stop.getAttribute('width'));
    return {
        signs: all('.gantt .axis .sign').map((sign) => [sign.classList[1], sign.dataset.t]),
        lines: all('.over .moment').map((line) => line.classList[1]),
        stops: all('.row.queue .stopped').map((one) => one.dataset.t),
        fits: lines.stop.length === 1 && lines.resume.length === 1 && Math.abs(from - lines.stop[0]) < 0.01 && Math.abs(to - lines.resume[0]) < 0.01,
        quota: all('.row.queue .sign.quota').map((sign) => sign.dataset.t),
        evicted: all('.row .sign.evicted').map((sign) => sign.dataset.t),
        preempted: all('.row .sign.preempted').length,
        key: all('.gantt .key span').map((one) => one.textContent),
        says: all('.row .cell').map((cell) => cell.getAttribute('aria-label')),
    };
})()";

/// Whether all of it is drawn; `quota` is how the change of quota is said.
pub fn all_is_marked(drawn: &Value, quota: &str) {
    let texts = |of: &str| -> Vec<String> {
        drawn[of].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let signs = drawn["signs"].as_array().unwrap();
    let kinds: Vec<_> = signs.iter().map(|sign| sign[0].as_str().unwrap()).collect();
    assert_eq!(kinds, MARKED.map(|(kind, _)| kind), "{drawn}");
    for (sign, (_, begins)) in signs.iter().zip(MARKED) {
        assert!(sign[1].as_str().unwrap().starts_with(begins), "{sign} does not begin with {begins}");
    }
    assert_eq!(texts("lines"), MARKED.map(|(kind, _)| kind), "{drawn}");
    assert!(signs[2][1].as_str().unwrap().contains(quota), "{drawn}");
    let stops = texts("stops");
    let all_the_time = |stop: &str, queue: &str| stop.starts_with(&format!("{queue} is stopped\n0s – "));
    assert_eq!(stops.len(), 3, "{stops:?}");
    assert!(all_the_time(&stops[0], "default/later") && all_the_time(&stops[2], "unused"), "{stops:?}");
    assert_eq!(stops[1], "team is stopped\n10m – 20m (08:10 – 08:20 UTC)");
    assert_eq!(drawn["fits"], true, "the stop begins and ends where its lines are: {drawn}");
    assert!(matches!(&texts("quota")[..], [one] if one.contains(quota)), "{drawn}");
    let evicted = texts("evicted");
    assert!(
        matches!(&evicted[..], [one] if one.starts_with("default/train\nevicted at 10m (08:10 UTC) ClusterQueueStopped: ")),
        "{evicted:?}"
    );
    assert_eq!(drawn["preempted"], 0);
    let key = texts("key");
    for word in ["evicted", "a queue stops", "a queue continues", "quota changes", "nodes", "stopped queue"] {
        assert!(key.iter().any(|one| one == word), "{word}: {key:?}");
    }
    let says = texts("says").join("; ");
    for words in [
        "1 jobs, default/later stopped 0s – ",
        ", stopped 10m – 20m",
        "0 jobs, stopped 0s – ",
        "evicted after 0s to ",
    ] {
        assert!(says.contains(words), "{words}: {says}");
    }
}

/// What `kubectl kueue report` prints of the journal `day.jsonl`.
pub fn recorded(output: &str) -> String {
    let mut command = Command::new(plugin().unwrap());
    command.args(["report", "--output", output, "--journal"]);
    command.arg(assets::workspace().join("tests/tests/views/browser/day.jsonl"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is drawn of that day: the rows with their names and in words, the signs in them, when queues are stopped, and the story of the first job.
pub const DAY: &str = "(async () => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const jobs = all('.row:not(.queue)');
    jobs[0].click();
    for (const frame of [1, 2]) await new Promise(requestAnimationFrame);
    return {
        names: jobs.map((row) => row.querySelector('.name').textContent),
        says: jobs.map((row) => row.querySelector('.cell').getAttribute('aria-label')),
        bars: jobs.map((row) => row.querySelectorAll('.bar').length),
        signs: all('.row .sign').map((sign) => [sign.classList[1], sign.dataset.t]),
        stops: all('.row.queue .stopped').map((one) => one.dataset.t),
        story: all('.detail li').map((line) => line.textContent),
    };
})()";

/// Whether all of the day is drawn.
pub fn day_is_drawn(drawn: &Value) {
    let low = "vision/low-<script>window.ran=1</script>";
    assert_eq!(drawn["names"], serde_json::json!([low, "vision/high", "vision/checked"]), "{drawn}");
    assert_eq!(drawn["bars"], serde_json::json!([2, 1, 0]), "{drawn}");
    let begins = [
        "idle is stopped\n0s – ",
        "vision/held is stopped\n0s – ",
        "team is stopped\n1h40m – 1h50m (09:40 – 09:50 UTC)",
        "unused is stopped\n30m – ",
    ];
    let stops = drawn["stops"].as_array().unwrap();
    let is_drawn = |(stop, begins): (&Value, &str)| stop.as_str().unwrap().starts_with(begins);
    assert!(stops.len() == begins.len() && stops.iter().zip(begins).all(is_drawn), "{stops:?}");
    let says = drawn["says"][1].as_str().unwrap();
    assert_eq!(says, "priority 100, submitted at 30m, finished after 31m to 1h30m");
    let text = |list: &str, begins: &str| {
        let all = drawn[list].as_array().unwrap();
        let found = all.iter().any(|one| one.as_str().unwrap_or_default().contains(begins));
        assert!(found, "{begins}: {drawn}");
    };
    for line in [
        "0s (2026-01-05 08:00 UTC): submitted",
        "waits: Pending: couldn't assign flavors to pod set main",
        "10m (2026-01-05 08:10 UTC): gets ",
        "preempted by vision/high: InClusterQueue",
        "1h01m (2026-01-05 09:01 UTC): gets ",
        "1h20m (2026-01-05 09:20 UTC): evicted NodeFailures: Workload was evicted to leave unhealthy node(s): n1",
        "2h (2026-01-05 10:00 UTC): waits: Pending: no healthy nodes",
    ] {
        text("story", line);
    }
    let kinds: Vec<_> =
        drawn["signs"].as_array().unwrap().iter().map(|sign| sign[0].as_str().unwrap()).collect();
    assert_eq!(kinds, ["quota", "preempted", "evicted"], "{drawn}");
}
