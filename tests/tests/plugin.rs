//! The plugin `kubectl kueue` as people run it: the pods of a job as kubectl shows them, completion, and `explain` through a forwarded port.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::forwarding::{Answer, Forwarding};
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::{ControlPlane, plugin};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io";
const FORWARD: &str = "/api/v1/namespaces/kueue-system/pods/manager-1/portforward?&ports=8081";

async fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    args.push(format!("--kubeconfig={}", kubeconfig.display()));
    let command = move || Command::new(plugin().unwrap()).args(args).output().unwrap();
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
    let plane = ControlPlane::builder().start().await.unwrap();
    for namespace in ["team", "other"] {
        plane.make_namespace(namespace).await.unwrap();
        kubectl(&plane, &["create", "serviceaccount", "default", "-n", namespace]).await.unwrap();
    }
    let (job, jobset) = ("batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/jobset-name");
    let pods = [
        pod("a", "team", job, "train"),
        pod("b", "team", job, "train"),
        pod("c", "team", job, "eval"),
        pod("d", "team", jobset, "train"),
        pod("e", "other", job, "train"),
    ];
    apply(&plane, &pods.concat()).await.unwrap();
    let kubeconfig = plane.kubeconfig_path();
    let label = format!("{job}=train");
    for (more, of_kubectl) in [
        (vec!["-n", "team"], vec!["-n", "team"]),
        (vec!["-A"], vec!["-A"]),
        (vec!["-n", "team", "--no-headers"], vec!["-n", "team", "--no-headers"]),
        (vec!["-n", "team", "-o", "name"], vec!["-n", "team", "-o", "name"]),
    ] {
        let ours =
            printed(&run(&kubeconfig, &[&["list", "pods", "--for", "job/train"][..], &more].concat()).await);
        let theirs =
            kubectl(&plane, &[&["get", "pods", "-l", &label][..], &of_kubectl].concat()).await.unwrap();
        // An age may have become a second more between the two.
        let ageless = |text: &str| -> Vec<Vec<String>> {
            let is_age = |word: &&str| word.ends_with('s') && word[..word.len() - 1].parse::<u32>().is_ok();
            let line = |line: Vec<&str>| line.into_iter().filter(|w| !is_age(w)).map(str::to_owned).collect();
            words(text).into_iter().map(line).collect()
        };
        assert_eq!(ageless(&ours), ageless(&theirs), "{more:?}");
        assert!(theirs.lines().count() >= 2, "{theirs}");
    }
    let of_jobset =
        printed(&run(&kubeconfig, &["list", "pods", "--for", "jobset/train", "-n", "team"]).await);
    assert_eq!(words(&of_jobset)[1][..3], ["d", "0/1", "Pending"]);
    assert_eq!(words(&of_jobset).len(), 2);
    let narrowed = ["list", "pods", "--for", "job/train", "-n", "team", "-l", "tier=b", "-o", "json"];
    let narrowed: Value = serde_json::from_str(&printed(&run(&kubeconfig, &narrowed).await)).unwrap();
    assert_eq!(
        (narrowed["items"][0]["metadata"]["name"].as_str(), narrowed["items"][1].as_str()),
        (Some("b"), None)
    );
    assert_eq!(narrowed["items"][0]["kind"], "Pod");
    let nobody = run(&kubeconfig, &["list", "pods", "--for", "job/nobody", "-n", "team"]).await;
    assert_eq!(
        (printed(&nobody).as_str(), String::from_utf8_lossy(&nobody.stderr).trim()),
        ("", "No resources found")
    );
    plane.stop();
}

#[test]
fn bash_understands_what_completion_prints_and_completes() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("completion.bash");
    let printed = Command::new(plugin().unwrap()).args(["completion", "bash"]).output().unwrap();
    fs::write(&script, printed.stdout).unwrap();
    // What bash does when somebody presses the tabulator: it asks the function that was registered for the program.
    let ask = "source \"$1\"; how=$(complete -p kubectl-kueue | sed 's/.*-F \\([^ ]*\\) .*/\\1/'); COMP_WORDS=(kubectl-kueue $2); \
               COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \"$how\" kubectl-kueue \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; \
               echo \"${COMPREPLY[@]}\"";
    for (typed, meant) in [
        ("li", "list"),
        ("list w", "workload"),
        ("create clusterqueue --lend", "--lending-limit"),
        ("expl", "explain"),
    ] {
        let answer = Command::new("bash").args(["-c", ask, "bash"]).arg(&script).arg(typed).output().unwrap();
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

/// Asks a stand-in that answers so for the lease and for the port; what is printed, what is complained of, what was asked for.
async fn explained(lease: Answer, port: Answer) -> (bool, String, Vec<String>) {
    let forwarding = Forwarding::start(move |path| if path == LEASE { lease.clone() } else { port.clone() })
        .await
        .unwrap();
    let (_folder, kubeconfig) = kubeconfig_of(&forwarding);
    let output = run(&kubeconfig, &["explain", "job/train"]).await;
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap(), forwarding.asked())
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
    let request = tokio::time::timeout(Duration::from_secs(30), manager).await.unwrap().unwrap();
    assert!(
        request.starts_with("GET /debug/explain/team/train?kind=job&output=text&all=false HTTP/1.0\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn explain_says_why_the_manager_cannot_be_asked() {
    let held = || lease("sluice_manager-1_2f3a");
    let unused = || refusal(500, "InternalError", "not asked");
    let nobody = refusal(404, "NotFound", "leases \"c1f6bfd2.kueue.x-k8s.io\" not found");
    let cannot =
        refusal(403, "Forbidden", "leases is forbidden: User \"eve\" cannot get resource \"leases\"");
    let cases = [
        (nobody, unused(), 1, "nobody holds it: is the manager running"),
        (lease(""), unused(), 1, "nobody holds it"),
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
