//! The plugin `kubectl kueue` as users run it: the pods of a job as kubectl shows them, completion, `explain` through a forwarded port, what is
//! deleted for a Workload, and how a cluster is found.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod delete;
mod reached;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sluice_testkit::assets::{self, Tool};
use sluice_testkit::forwarding::{Answer, Forwarding};
use sluice_testkit::kubectl::{apply, kubectl, try_kubectl};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, crds, plugin};
use sluice_tests::place::DEADLINE;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, RwLock};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io";
const FORWARD: &str = "/api/v1/namespaces/kueue-system/pods/manager-1/portforward?&ports=8081";

async fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    args.push(format!("--kubeconfig={}", kubeconfig.display()));
    // A cache of discovery of another plane, which had the same port, would mislead kubectl.
    let home = kubeconfig.parent().unwrap().to_owned();
    let kubectl = assets::path(Tool::Kubectl).unwrap();
    let command = move || {
        let mut command = Command::new(plugin().unwrap());
        command.args(args).env("HOME", home).env("KUBECTL", kubectl).stdin(Stdio::null()).output().unwrap()
    };
    tokio::task::spawn_blocking(command).await.unwrap()
}

/// What a successful run printed.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Words, line by line: widths of columns are a matter of taste.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

fn pod(name: &str, namespace: &str, label: &str, job: &str) -> String {
    let labels = json!({label: job, "tier": name});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "train"}], "automountServiceAccountToken": false},
    });
    format!("{pod}\n---\n")
}

#[tokio::test]
async fn the_pods_of_a_job_are_listed_as_kubectl_does() {
    let plane = plane().await;
    let namespaces = ["pods", "pods-other"];
    for namespace in namespaces {
        plane.make_namespace(namespace).await.unwrap();
        kubectl(plane, &["create", "serviceaccount", "default", "-n", namespace]).await.unwrap();
    }
    let [team, other] = namespaces;
    let (job, jobset) = ("batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/jobset-name");
    let pods = [
        pod("a", team, job, "train"),
        pod("b", team, job, "train"),
        pod("c", team, job, "eval"),
        pod("d", team, jobset, "train"),
        pod("e", other, job, "train"),
    ];
    apply(plane, &pods.concat()).await.unwrap();
    let kubeconfig = plane.kubeconfig_path();
    let label = format!("{job}=train");
    for (more, of_kubectl) in [
        (vec!["-n", team], vec!["-n", team]),
        (vec!["-A"], vec!["-A"]),
        (vec!["-n", team, "--no-headers"], vec!["-n", team, "--no-headers"]),
        (vec!["-n", team, "-o", "name"], vec!["-n", team, "-o", "name"]),
    ] {
        let ours =
            printed(&run(&kubeconfig, &[&["list", "pods", "--for", "job/train"][..], &more].concat()).await);
        let theirs =
            kubectl(plane, &[&["get", "pods", "-l", &label][..], &of_kubectl].concat()).await.unwrap();
        // An age may have become a second more between the two: it is the last cell, so all else stays in its place.
        let ageless = |text: &str| -> Vec<String> {
            let is_age = |word: &str| word.strip_suffix('s').is_some_and(|age| age.parse::<u32>().is_ok());
            let line = |line: &str| match line.rsplit_once(' ') {
                Some((rest, last)) if is_age(last) => rest.to_owned(),
                _ => line.to_owned(),
            };
            text.lines().map(line).collect()
        };
        assert_eq!(ageless(&ours), ageless(&theirs), "{more:?}");
        assert!(theirs.lines().count() >= 2, "{theirs}");
    }
    let of_jobset = printed(&run(&kubeconfig, &["list", "pods", "--for", "jobset/train", "-n", team]).await);
    assert_eq!(words(&of_jobset)[1][..3], ["d", "0/1", "Pending"]);
    assert_eq!(words(&of_jobset).len(), 2);
    let narrowed = ["list", "pods", "--for", "job/train", "-n", team, "-l", "tier=b", "-o", "json"];
    let narrowed: Value = serde_json::from_str(&printed(&run(&kubeconfig, &narrowed).await)).unwrap();
    assert_eq!(
        (narrowed["items"][0]["metadata"]["name"].as_str(), narrowed["items"][1].as_str()),
        (Some("b"), None)
    );
    assert_eq!(narrowed["items"][0]["kind"], "Pod");
    let missing = run(&kubeconfig, &["list", "pods", "--for", "job/missing", "-n", team]).await;
    assert_eq!(
        (printed(&missing).as_str(), String::from_utf8_lossy(&missing.stderr).trim()),
        ("", "No resources found in pods namespace.")
    );
}

const QUEUES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: big}
spec: {cohortName: all, namespaceSelector: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: small}
spec: {namespaceSelector: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
";

/// A queue to one of them.
const QUEUE: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: TEAM}
spec: {clusterQueue: big}
";

/// Two Jobs that nothing runs.
const JOBS: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: first, namespace: TEAM}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: second, namespace: TEAM}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}
";

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
/// For those who compare ClusterQueues, beside those who change one.
static COMPARING: RwLock<()> = RwLock::const_new(());

/// The plane of these tests, since all ClusterQueues are listed: with the kinds, two of them and a flavor. Without controllers: pods stay as they are
/// made, and Workloads outlive their owners.
async fn plane() -> &'static ControlPlane {
    let make = async || {
        let plane = ControlPlane::builder().start().await.unwrap();
        crds::install(&plane.client().await.unwrap(), None).await.unwrap();
        apply(&plane, QUEUES).await.unwrap();
        plane
    };
    PLANE.get_or_init(make).await
}

/// The plane, with two namespaces of the test's own: in the first is a LocalQueue, and the second is empty.
async fn queues(namespaces: [&str; 2]) -> &'static ControlPlane {
    let plane = plane().await;
    for namespace in namespaces {
        plane.make_namespace(namespace).await.unwrap();
    }
    apply(plane, &QUEUE.replace("TEAM", namespaces[0])).await.unwrap();
    plane
}

/// What prints the same as kubectl, and ends with the same code.
const LIKE_KUBECTL: &[(&str, &str)] = &[
    (
        "list cq -o jsonpath={.items[*].metadata.name}",
        "get clusterqueues -o jsonpath={.items[*].metadata.name}",
    ),
    (
        "list cq -o jsonpath-as-json={.items[*].spec}",
        "get clusterqueues -o jsonpath-as-json={.items[*].spec}",
    ),
    ("list cq -o json --show-managed-fields", "get clusterqueues -o json --show-managed-fields"),
    ("list queues -n formats -o json", "get localqueues -n formats -o json"),
    ("list cq -o go-template={{len(.items)}}", "get clusterqueues -o go-template={{len(.items)}}"),
    ("list cq -o custom-columns=N:.metadata.name", "get clusterqueues -o custom-columns=N:.metadata.name"),
    ("get cq big --as eve -o name", "get clusterqueues big --as eve -o name"),
    ("list lq -n formats-empty", "get localqueues -n formats-empty"),
    ("list cq -l no=such", "get clusterqueues -l no=such"),
    ("list cq --as eve --as-group writers", "get clusterqueues --as eve --as-group writers"),
    ("stop cq none", "patch clusterqueues.kueue.x-k8s.io none --type=merge -p {}"),
];

/// What is refused, and a part of the message.
const REFUSED: &[(&str, &str)] = &[
    ("list cq --nonsense", "unexpected argument '--nonsense'"),
    (
        "stop cq big --as eve",
        "Error from server (Forbidden): clusterqueues.kueue.x-k8s.io \"big\" is forbidden: User \"eve\" cannot patch",
    ),
    ("list cq --context none", "context \"none\" does not exist"),
    ("list lq -c big -o go-template={{.kind}}", "--clusterqueue cannot be combined with this output format"),
    // kubectl ends with 1 and these words, too, and prints the whole template and list besides.
    (
        "list lq -n formats-empty -o jsonpath={.items[0].metadata.name}",
        "error executing jsonpath: array index out of bounds: index 0, length 0",
    ),
    ("list wl -n formats --for jbo/train", "the server doesn't have a resource type \"jbo\""),
];

#[tokio::test]
async fn formats_refusals_and_exit_codes_are_those_of_kubectl() {
    let plane = queues(["formats", "formats-empty"]).await;
    let _comparing = COMPARING.read().await;
    let kubeconfig = plane.kubeconfig_path();
    let said = |stdout: &[u8], stderr: &[u8], well: bool| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(stdout), text(stderr), well)
    };
    for &(ours, theirs) in LIKE_KUBECTL {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let own: Vec<_> = ours.split(' ').collect();
        let own = run(&kubeconfig, &own).await;
        let kubectl = try_kubectl(&kubeconfig, &words(theirs), None).await.unwrap();
        let expected = said(kubectl.stdout.as_bytes(), kubectl.stderr.as_bytes(), kubectl.success);
        assert_eq!(said(&own.stdout, &own.stderr, own.status.success()), expected, "{ours}");
        assert!(!expected.0.is_empty() || !expected.1.is_empty(), "{ours}");
    }
    for &(line, expected) in REFUSED {
        let output = run(&kubeconfig, &line.split(' ').collect::<Vec<_>>()).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && stderr.contains(expected), "{line}: {stderr}");
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_says_what_would_change() {
    let plane = queues(["dry", "dry-empty"]).await;
    let _comparing = COMPARING.write().await;
    let kubeconfig = plane.kubeconfig_path();
    let workload = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {name: alone, namespace: dry}\nspec: {queueName: main, \
        podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}]}\n";
    apply(plane, workload).await.unwrap();
    let ours = async |line: &str| printed(&run(&kubeconfig, &line.split(' ').collect::<Vec<_>>()).await);
    let state = async || {
        let of = |resource: &'static str, path: &'static str| vec!["get", resource, "-n", "dry", "-o", path];
        let policies =
            kubectl(plane, &of("clusterqueues", "jsonpath={.items[*].spec.stopPolicy}")).await.unwrap();
        let active = kubectl(plane, &of("workloads.kueue.x-k8s.io", "jsonpath={.items[*].spec.active}"))
            .await
            .unwrap();
        (policies, active)
    };
    let before = state().await;
    assert_eq!(before, ("None None".to_owned(), "true".to_owned()));
    let policy = "jsonpath={.spec.stopPolicy}";
    for (line, expected) in [
        ("stop cq big --dry-run=client", "clusterqueue.kueue.x-k8s.io/big stopped (dry run)\n"),
        ("stop cq big --dry-run=server", "clusterqueue.kueue.x-k8s.io/big stopped (server dry run)\n"),
        (&format!("stop cq big --dry-run=client -o {policy}"), "HoldAndDrain"),
        (&format!("stop cq big --dry-run=server --keep-already-running -o {policy}"), "Hold"),
        ("stop kwl alone -n dry --dry-run=server -o jsonpath={.spec.active}", "false"),
        ("create lq new -c big -i --dry-run=client -o jsonpath={.metadata.namespace}", "default"),
        ("create lq new -c big -n dry --dry-run=server -o name", "localqueue.kueue.x-k8s.io/new\n"),
        (
            "delete wl alone -n dry --dry-run=server",
            "workload.kueue.x-k8s.io \"alone\" deleted from dry namespace (server dry run)\n",
        ),
        ("delete wl alone -n dry --dry-run=client -o name", "workload.kueue.x-k8s.io/alone\n"),
        ("delete wl --all -n dry --dry-run=server -o jsonpath={.metadata.name}", "alone"),
    ] {
        assert_eq!(ours(line).await, expected, "{line}");
        assert_eq!(state().await, before, "{line}");
    }
    for line in ["stop cq big", "resume cq big", "delete wl alone -n dry -y", "create lq new -c big -n dry"] {
        let words = format!("{line} --template={{{{.kind}}}}");
        let refused = run(&kubeconfig, &words.split(' ').collect::<Vec<_>>()).await;
        let why = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(1) && why.contains("-o go-template: this command prints name"),
            "{why}"
        );
        assert_eq!(state().await, before, "{words}");
    }
    assert_eq!(ours("stop cq small -o name").await, "clusterqueue.kueue.x-k8s.io/small\n");
    assert_eq!(ours("stop wl alone -n dry -o jsonpath={.spec.active}").await, "false");
    assert_eq!(state().await, ("None HoldAndDrain".to_owned(), "false".to_owned()));
    assert_eq!(ours("resume cq small").await, "clusterqueue.kueue.x-k8s.io/small resumed\n");
    assert_eq!(ours(&format!("resume cq small -o {policy}")).await, "None");
    // Without an answer nothing is deleted, and with --yes none is needed.
    let asked = run(&kubeconfig, &["delete", "wl", "alone", "-n", "dry"]).await;
    assert!(!asked.status.success() && asked.stdout.is_empty(), "{asked:?}");
    assert_eq!(ours("delete wl alone -n dry -y -o jsonpath={.metadata.name}").await, "alone");
    let rest = run(&kubeconfig, &["delete", "wl", "--all", "-n", "dry", "-y"]).await;
    assert_eq!(String::from_utf8_lossy(&rest.stderr), "No resources found in dry namespace.\n");
}

#[tokio::test]
async fn names_are_completed_from_the_cluster() {
    let plane = queues(["named", "named-empty"]).await;
    apply(plane, &JOBS.replace("TEAM", "named")).await.unwrap();
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig_path().display());
    let folder = tempfile::tempdir().unwrap();
    // kubectl asks the program of this name.
    let program = folder.path().join("kubectl_complete-kueue");
    std::os::unix::fs::symlink(plugin().unwrap(), &program).unwrap();
    for (line, expected) in [
        ("stop cq ", "big small"),
        ("stop cq s", "small"),
        ("resume localqueue -n named m", "main"),
        ("list wl -c b", "big"),
        ("list wl -n named-e", "named-empty"),
        ("get cq b", "big"),
        ("get cq/b", "cq/big"),
        ("delete cq sm", "small"),
        ("create cq x --nominal-quota sp", "spot:"),
        ("create cq x --nominal-quota tpu:cpu=1,sp", "tpu:cpu=1,spot:"),
        ("list pods -n named --for job/", "job/first job/second"),
        ("list wl -n named --for jobs.batch/se", "jobs.batch/second"),
        ("explain -n named job/fi", "job/first"),
        ("explain -n named job ", "first second"),
    ] {
        let directive = if expected.ends_with(':') { ":6" } else { ":4" };
        // It gives up after some seconds: a person presses the key again.
        eventually(&format!("{line:?} to be completed with {expected:?}"), DEADLINE, || async {
            let words = std::iter::once(kubeconfig.as_str()).chain(line.split(' '));
            let output = Command::new(&program).args(words).output()?;
            let text = String::from_utf8(output.stdout)?;
            let names: Vec<_> = text.lines().filter(|line| !line.starts_with(['-', ':'])).collect();
            Ok(progress(names.join(" ") == expected && text.lines().last() == Some(directive), text))
        })
        .await
        .unwrap();
    }
}

#[test]
fn bash_understands_what_completion_prints_and_completes() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("completion.bash");
    let printed = Command::new(plugin().unwrap()).args(["completion", "bash"]).output().unwrap();
    fs::write(&script, printed.stdout).unwrap();
    // What bash does for the tabulator key: it asks the function that was registered for the program.
    let ask = "source \"$1\"; how=$(complete -p kubectl-kueue | sed 's/.*-F \\([^ ]*\\) .*/\\1/'); COMP_WORDS=(kubectl-kueue $2); \
               COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \"$how\" kubectl-kueue \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; \
               echo \"${COMPREPLY[@]}\"";
    for (typed, meant) in [
        ("li", "list"),
        ("list wo", "workload"),
        ("create clusterqueue --lend", "--lending-limit"),
        ("expl", "explain"),
        ("list workload --as-g", "--as-group"),
        ("stop cq a --dry-run cl", "client"),
        ("list kueueworkl", "kueueworkload"),
        ("simulate compl", "completion.bash"),
    ] {
        let mut bash = Command::new("bash");
        let path =
            format!("{}:{}", plugin().unwrap().parent().unwrap().display(), std::env::var("PATH").unwrap());
        bash.current_dir(folder.path()).env("PATH", path).args(["-c", ask, "bash"]).arg(&script).arg(typed);
        let answer = bash.output().unwrap();
        let said = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert_eq!(said.trim(), meant, "{typed}: {answer:?}");
    }
}

/// A kubeconfig of the stand-in.
fn kubeconfig_of(forwarding: &Forwarding) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": forwarding.url()}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    });
    fs::write(&file, config.to_string()).unwrap();
    (folder, file)
}

fn lease(holder: &str) -> Answer {
    let metadata = json!({"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"});
    Answer::Document(
        200,
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
               "spec": {"holderIdentity": holder}}),
    )
}

fn refusal(code: u16, reason: &str, message: &str) -> Answer {
    Answer::Document(
        code,
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
               "message": message, "metadata": {}}),
    )
}

const BY_API: &str = "/apis/visibility.sluice.dev/v1alpha1/namespaces/team/workloads/train/explain";

/// Asks a stand-in that answers so for the lease and for the port; what is printed, what is complained of, what was asked for.
async fn explained(lease: Answer, port: Answer) -> (bool, String, Vec<String>) {
    // A cluster without the aggregated API, which is asked first.
    let missing = refusal(404, "NotFound", "the server could not find the requested resource");
    let answers = move |path: &str| match path {
        LEASE => lease.clone(),
        path if path.starts_with(BY_API) => missing.clone(),
        _ => port.clone(),
    };
    let forwarding = Forwarding::start(answers).await.unwrap();
    let (_folder, kubeconfig) = kubeconfig_of(&forwarding);
    let output = run(&kubeconfig, &["explain", "job/train"]).await;
    let said = [output.stdout, output.stderr].concat();
    let mut asked = forwarding.asked();
    assert!(asked.remove(0).starts_with(BY_API));
    (output.status.success(), String::from_utf8(said).unwrap(), asked)
}

#[tokio::test]
async fn explain_asks_the_leading_manager_through_a_forwarded_port() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let long = "because\n".repeat(20_000);
    let body = long.clone();
    let manager = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 1024];
        let read = stream.read(&mut request).await.unwrap();
        stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let (well, said, asked) = explained(lease("sluice_manager-1_2f3a"), Answer::Forward(address)).await;
    assert!(well && said == long, "{} bytes: {:.200}", said.len(), said);
    assert_eq!(asked, [LEASE, FORWARD]);
    let request = tokio::time::timeout(DEADLINE, manager).await.unwrap().unwrap();
    assert!(
        request.starts_with("GET /debug/explain/team/train?kind=job&output=text&all=false HTTP/1.0\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn explain_says_why_the_manager_cannot_be_asked() {
    let held = || lease("sluice_manager-1_2f3a");
    let unused = || refusal(500, "InternalError", "not asked");
    let no_lease = refusal(404, "NotFound", "leases \"c1f6bfd2.kueue.x-k8s.io\" not found");
    let cannot =
        refusal(403, "Forbidden", "leases is forbidden: User \"eve\" cannot get resource \"leases\"");
    let cases = [
        (no_lease, unused(), 1, "it has no holder: check that the manager runs"),
        (lease(""), unused(), 1, "it has no holder"),
        (lease("kueue-controller-manager-1_2f3a"), unused(), 1, "is not Sluice"),
        (cannot, unused(), 1, "User \"eve\" cannot get resource \"leases\""),
        (
            held(),
            refusal(403, "Forbidden", "no"),
            2,
            "the right to create pods/portforward in the namespace kueue-system",
        ),
        (held(), refusal(404, "NotFound", "no"), 2, "the pod is gone"),
        (
            held(),
            Answer::Fail("dial tcp4 127.0.0.1:8081: connection refused".to_owned()),
            2,
            "connection refused",
        ),
    ];
    for (lease, port, requests, expected) in cases {
        let (well, said, asked) = explained(lease, port).await;
        assert!(!well && said.contains(expected), "{expected}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert_eq!(asked.len(), requests, "{asked:?}");
    }
}
