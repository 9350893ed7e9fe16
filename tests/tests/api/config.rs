//! Kueue's configuration files with every field at its default: `sluice config check` accepts them in both versions and reports what it does not
//! support, and the manager starts with them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sluice_testkit::assets::workspace;
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::{Manager, Setup, binary, chart, shared};
use sluice_tests::place::DEADLINE;

use crate::bed::uncharted;

fn file(version: &str) -> PathBuf {
    workspace().join(format!("crates/api/tests/data/config/{version}.yaml"))
}

fn check(file: &Path, more: &[&str]) -> Output {
    Command::new(binary().unwrap()).args(["config", "check"]).arg(file).args(more).output().unwrap()
}

#[test]
fn config_check_prints_what_is_in_force_and_names_what_is_not_built() {
    for version in ["v1beta1", "v1beta2"] {
        let output = check(&file(version), &[]);
        let (stdout, stderr) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{version}: {stderr}");
        let effective: Value = serde_saphyr::from_str(&stdout).unwrap();
        assert_eq!(effective["apiVersion"], "config.kueue.x-k8s.io/v1beta2", "{version}");
        assert_eq!(effective["leaderElection"]["resourceName"], "c1f6bfd2.kueue.x-k8s.io");
        let gates = "these feature gates are on, but what they switch is not built yet: ";
        assert_eq!(stderr.matches(gates).count(), 1, "{version}: {stderr}");
        assert!(stderr.contains("MultiKueue"), "{version}: {stderr}");
        // What is in force can be checked again and stays as it is.
        let folder = tempfile::tempdir().unwrap();
        let again = folder.path().join("again.yaml");
        std::fs::write(&again, &stdout).unwrap();
        assert_eq!(String::from_utf8(check(&again, &[]).stdout).unwrap(), stdout, "{version}");
    }
}

#[test]
fn config_check_refuses_with_the_path_of_every_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.yaml");
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwebhook: {prot: 1}\n\
                multiKueue: {origin: here}\nclientConnection: {qps: fast}\n";
    std::fs::write(&wrong, text).unwrap();
    let output = check(&wrong, &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for path in ["webhook.prot", "multiKueue.origin: not built yet", "clientConnection.qps"] {
        assert!(stderr.contains(path), "{path}: {stderr}");
    }
    let unknown = check(&file("v1beta2"), &["--feature-gates", "NoSuchGate=true"]);
    assert!(!unknown.status.success());
    let stderr = String::from_utf8(unknown.stderr).unwrap();
    assert!(stderr.contains("unrecognized feature gate: NoSuchGate"), "{stderr}");
}

/// A configuration with these declarations, in a folder of its own.
fn declaring(declarations: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("declaring.yaml");
    let text = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  declared:\n{declarations}"
    );
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn config_check_says_what_it_understood_of_each_declared_kind() {
    let (_folder, path) = declaring(
        "  - {group: flow.example.com, version: v1, kind: Flow, plural: flowing, suspend: {path: spec.paused}, active: 'true',
     podSets: [{name: driver, template: spec.driver}, {name: workers, template: spec.workers, countPath: spec.count}]}
  - {group: serve.example.com, version: v2, kind: Serve, suspend: {gatesPods: true}, active: 'true',
     podSets: [{name: main, template: spec.template}]}
",
    );
    let output = check(&path, &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let reported: Vec<_> = stdout.lines().filter(|line| line.starts_with("# declared: ")).collect();
    assert_eq!(
        reported,
        [
            "# declared: flow.example.com/flow: flowing.flow.example.com of version v1, suspended by spec.paused, with the pod \
             sets driver, workers",
            "# declared: serve.example.com/serve: serves.serve.example.com of version v2, whose pods wait behind a gate, with \
             the pod sets main",
        ]
    );
}

#[test]
fn neither_config_check_nor_a_manager_takes_a_declaration_with_a_mistake() {
    let one = |more: &str| {
        format!(
            "  - {{group: flow.example.com, version: v1, kind: Flow, {more}, podSets: [{{name: main, template: spec.pod}}]}}\n"
        )
    };
    for (more, place) in [
        ("active: 'self.status.'", "integrations.declared[0].active: column"),
        ("active: 'true', ready: 'total(self)'", "integrations.declared[0].ready: there is no function"),
        ("active: 'true', suspend: {path: spec..x}", "integrations.declared[0].suspend.path: invalid value"),
        ("active: 'true', nothing: 1", "integrations.declared[0].nothing"),
    ] {
        let (_folder, path) = declaring(&one(more));
        let mut manager = Command::new(binary().unwrap());
        // It ends before it looks for a cluster: there is none.
        manager.args(["manager", "--kubeconfig", "/nonexistent", "--config"]).arg(&path);
        for output in [check(&path, &[]), manager.output().unwrap()] {
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{more}: {stderr}");
            assert!(stderr.contains(place), "{more}: {stderr}");
            assert!(stderr.contains("declaring.yaml"), "{more}: {stderr}");
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(binary().unwrap());
    let output = command.args(["config", "check"]).arg(file("v1beta2")).stdout(writer).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !stderr.contains("panicked"), "{stderr}");
}

#[test]
fn gates_lists_every_gate() {
    let output = Command::new(binary().unwrap()).arg("gates").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    for gate in sluice_api::gates::Gate::ALL {
        assert!(table.contains(&format!("\n{} ", gate.name())), "{}", gate.name());
    }
}

/// How many gates are on that have no effect.
const COUNTED: &str = "some enabled feature gates have no effect yet";
/// Which these are.
const LISTED: &str = "these feature gates are on, but what they switch is not built yet";

#[tokio::test]
async fn the_manager_starts_with_every_field_at_its_default() {
    let (_turn, plane) = uncharted().await;
    for version in ["v1beta1", "v1beta2"] {
        let setup = Setup::new(plane).unwrap();
        let text = std::fs::read_to_string(file(version)).unwrap();
        let configuration: Value = serde_saphyr::from_str(&text).unwrap();
        // Only where it listens is other than the default: more than one manager runs on this machine.
        let here = json!({
            "health": setup.configuration["health"],
            "metrics": setup.configuration["metrics"],
            "webhook": {"port": setup.webhook, "host": "127.0.0.1", "certDir": null},
        });
        let setup = Setup { configuration, ..setup }.with(&here);
        // The chart brings the admission policy that the default list of v1beta1 needs.
        let setup = chart::install(plane, setup, &json!({})).await.unwrap();
        let manager = Manager::start(plane, setup.clone()).await.unwrap();
        let log = manager.log().unwrap();
        assert_eq!(log.matches(COUNTED).count(), 1, "{log}");
        assert!(!log.contains(LISTED), "{log}");
        let refused = "objects of this kind that name a queue are refused";
        assert!(!log.contains(refused), "{version}: {log}");
        let (_, status) = manager.stop().await.unwrap();
        assert!(status.success(), "{version}");
        // As the chart starts it, and as a person does who wants to know more.
        for (before, verbosity) in ["--zap-log-level=2", "--v=1"].into_iter().enumerate() {
            let manager = Manager::start(plane, setup.clone().arg(verbosity)).await.unwrap();
            // One file has the logs of all three.
            let log = manager.log().unwrap();
            let listed: Vec<_> = log.lines().filter(|line| line.contains(LISTED)).collect();
            assert_eq!(listed.len(), before + 1, "{verbosity}: {log}");
            assert!(listed.iter().all(|line| line.contains("MultiKueue")), "{verbosity}: {log}");
            assert_eq!(log.matches(COUNTED).count(), 1, "{verbosity}: {log}");
            manager.stop().await.unwrap();
        }
    }
    chart::uninstall(plane).await.unwrap();
}

#[tokio::test]
async fn a_manager_that_has_not_seen_everything_in_time_ends_and_says_what_is_missing() {
    let plane = shared().await.unwrap();
    plane.make_namespace(chart::NAMESPACE).await.unwrap();
    // Here are none of the CRDs, so no kind of them can be listed.
    let limit = json!({"controller": {"cacheSyncTimeout": 1_000_000_000}});
    let mut manager = Manager::launch(plane, Setup::new(plane).unwrap().with(&limit)).await.unwrap();
    let status = eventually("the manager to end", DEADLINE, || {
        let ended = manager.ended();
        async move { Ok(ended.map_or_else(|| Progress::NotYet("it runs".to_owned()), Progress::Done)) }
    })
    .await
    .unwrap();
    let log = manager.log().unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("controller.cacheSyncTimeout of 1s is over, and not listed yet: "), "{log}");
    assert!(log.contains("clusterqueues"), "{log}");
}
