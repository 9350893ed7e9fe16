//! The chart's monitoring with a real Prometheus: it scrapes a manager (and the API server) according to the chart's ServiceMonitor, every alert rule
//! is valid and fires when it should, every query of the dashboard has an answer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::assets::{self, Tool};
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::prometheus::{Prometheus, check_rules, scrape_job};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, nodes};
use sluice_tests::place::{DEADLINE, Place, create, job, patch, quota};

const MONITORING: &str = "monitoring";
const READER: &str = "prometheus-k8s";

/// What the chart makes for monitoring with these values, by kind.
pub(super) fn rendered(values: &[&str]) -> BTreeMap<String, Vec<Value>> {
    let mut command = Command::new(assets::path(Tool::Helm).unwrap());
    command.args(["template", "sluice", "--namespace", chart::NAMESPACE]);
    command.arg(assets::workspace().join("charts/sluice"));
    for value in [
        "crds.enabled=false",
        "enablePrometheus=true",
        "metrics.prometheusNamespace=monitoring",
        "metrics.prometheusRule.enabled=true",
        "metrics.grafanaDashboard.enabled=true",
    ]
    .iter()
    .chain(values)
    {
        command.args(["--set", value]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut objects = BTreeMap::<String, Vec<Value>>::new();
    for document in text.split("\n---\n").filter(|text| text.lines().any(|line| line.starts_with("kind:"))) {
        let object: Value = serde_saphyr::from_str(document.trim_start_matches("---")).unwrap();
        objects.entry(object["kind"].as_str().unwrap().to_owned()).or_default().push(object);
    }
    objects
}

/// The rights that the chart gives to Prometheus, and its token in a file.
async fn reader(plane: &ControlPlane, objects: &BTreeMap<String, Vec<Value>>) -> PathBuf {
    plane.make_namespace(MONITORING).await.unwrap();
    kubectl(plane, &["create", "serviceaccount", READER, "-n", MONITORING]).await.unwrap();
    let bindings = objects["ClusterRoleBinding"].iter().filter(|binding| {
        let subjects = binding["subjects"].as_array().unwrap();
        subjects.iter().any(|subject| subject["name"] == READER && subject["namespace"] == MONITORING)
    });
    let bindings: Vec<_> = bindings.collect();
    assert_eq!(bindings.len(), 1);
    apply(plane, &bindings[0].to_string()).await.unwrap();
    let token = plane.token_of_service_account(MONITORING, READER).await.unwrap();
    let file = plane.folder().join("prometheus.token");
    fs::write(&file, token).unwrap();
    file
}

/// The chart's rules as a file that promtool has checked; then the same with little patience, for a test that has little.
fn rules(plane: &ControlPlane, objects: &BTreeMap<String, Vec<Value>>) -> (PathBuf, Vec<String>) {
    let mut groups = objects["PrometheusRule"][0]["spec"].clone();
    let file = plane.folder().join("rules.yml");
    fs::write(&file, groups.to_string()).unwrap();
    let said = check_rules(&file).unwrap();
    assert!(said.contains("SUCCESS: 18 rules found"), "{said}");
    let all = groups["groups"][0]["rules"].as_array_mut().unwrap();
    for rule in all.iter_mut() {
        // An admission takes an instant in which work waits and quota is free.
        let queues = rule["expr"].as_str().unwrap().contains("free_quota");
        rule["for"] = json!(if queues { "10s" } else { "0s" });
        // What was reserved before counts as lately for a moment only.
        let total = "kueue_quota_reserved_workloads_total";
        let moment = |text: &str| {
            text.replace(&format!("{total}[5m]"), &format!("{total}[15s]")).replace("offset 5m", "offset 15s")
        };
        rule["expr"] = json!(moment(rule["expr"].as_str().unwrap()));
    }
    let groups_all =
        groups["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let name = |rule: &Value| rule["alert"].as_str().or(rule["record"].as_str()).unwrap().to_owned();
    let names = groups_all.map(name).collect();
    fs::write(&file, groups.to_string()).unwrap();
    (file, names)
}

/// The alert about webhooks names each one that must answer.
fn every_webhook_is_watched(objects: &BTreeMap<String, Vec<Value>>) {
    let configurations = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    let all = configurations.iter().flat_map(|kind| &objects[*kind]).filter_map(|c| c["webhooks"].as_array());
    let needed = all.flatten().filter(|webhook| webhook["failurePolicy"] == "Fail");
    let kinds: BTreeSet<_> = needed
        .map(|webhook| webhook["name"].as_str().unwrap()[1..].trim_end_matches(".kb.io").to_owned())
        .collect();
    let rules = objects["PrometheusRule"][0]["spec"].to_string();
    let (_, pattern) = rules.split_once("[mv](").unwrap();
    let (pattern, _) = pattern.split_once(")[.]kb[.]io").unwrap();
    let watched: Vec<_> = pattern.split('|').map(str::to_owned).collect();
    assert_eq!(watched.len(), kinds.len(), "{pattern}");
    assert_eq!(watched.into_iter().collect::<BTreeSet<_>>(), kinds);
}

/// Settings of TLS with which a scrape verifies the manager's certificate: the CA of the Secret, and the name of the metrics Service.
async fn verifying(plane: &ControlPlane) -> Value {
    let secret = Api::<Secret>::namespaced(plane.client().await.unwrap(), chart::NAMESPACE);
    let data = secret.get("kueue-webhook-server-cert").await.unwrap().data.unwrap();
    let file = plane.folder().join("metrics-ca.crt");
    fs::write(&file, &data["ca.crt"].0).unwrap();
    json!({"ca_file": file, "server_name": format!("kueue-controller-manager-metrics-service.{}.svc", chart::NAMESPACE)})
}

/// Waits until Prometheus reaches all its targets.
async fn targets_are_up(prometheus: &Prometheus) {
    eventually("all targets to be up", DEADLINE, || async {
        let targets = prometheus.api("/api/v1/targets").await?["activeTargets"].clone();
        let all = targets.as_array().cloned().unwrap_or_default();
        let up = all.len() == 2 && all.iter().all(|target| target["health"] == "up");
        Ok(progress(up, targets))
    })
    .await
    .unwrap();
}

/// Waits until an alert has fired, for the objects that these labels name.
async fn fires(prometheus: &Prometheus, alert: &str, labels: &str) {
    eventually(&format!("{alert} to fire"), DEADLINE, || async {
        // ALERTS keeps that it fired also when it is over by now.
        let query =
            format!("last_over_time(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\",{labels}}}[10m])");
        let found = prometheus.query(&query).await?;
        Ok(progress(!found.is_empty(), prometheus.query("ALERTS").await?.len()))
    })
    .await
    .unwrap();
}

/// Every rule was evaluated, and none with an error.
async fn rules_are_healthy(prometheus: &Prometheus, names: &[String]) {
    eventually("every rule to be evaluated", DEADLINE, || async {
        let groups = prometheus.api("/api/v1/rules").await?["groups"].clone();
        let groups = groups.as_array().cloned().unwrap_or_default();
        let all: Vec<_> = groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
        let healthy = all.iter().filter(|rule| rule["health"] == "ok").count();
        Ok(progress(healthy == names.len(), format!("{healthy} of {}: {groups:?}", names.len())))
    })
    .await
    .unwrap();
}

/// The queries of the dashboards, as Grafana would ask them for all queues.
pub(super) fn queries(objects: &BTreeMap<String, Vec<Value>>) -> BTreeSet<String> {
    queries_for(objects, ".*")
}

fn queries_for(objects: &BTreeMap<String, Vec<Value>>, namespace: &str) -> BTreeSet<String> {
    let boards = objects["ConfigMap"].iter().filter_map(|map| map["data"].as_object()).flatten();
    let boards = boards.filter(|(name, _)| name.starts_with("sluice")).filter_map(|(_, text)| text.as_str());
    let mut queries = BTreeSet::new();
    for board in boards {
        let board: Value = serde_json::from_str(board).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let query = target["expr"].as_str().unwrap();
                let query = query.replace("$namespace", namespace);
                let query = query.replace("$queue", ".*").replace("$clusterqueue", ".*");
                queries.insert(query.replace("$__rate_interval", "5m"));
            }
        }
    }
    assert!(queries.len() >= 35, "{queries:?}");
    assert!(queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    queries
}

/// The filter of a team's board, for one team of several.
async fn a_team_is_shown_its_own_namespace(prometheus: &Prometheus, objects: &BTreeMap<String, Vec<Value>>) {
    for team in ["stuck", "drained"] {
        let mut seen = BTreeSet::new();
        for query in queries_for(objects, team) {
            let found = prometheus.query(&query).await.unwrap();
            seen.extend(
                found.iter().filter_map(|one| one["metric"]["namespace"].as_str().map(str::to_owned)),
            );
        }
        assert_eq!(seen, BTreeSet::from([team.to_owned()]));
    }
}

/// Cuts a queue's quota below what it uses.
async fn overdraw(place: &Place<'_>) {
    place.job("runs", "lq", 2).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    let cut = json!({"spec": {"resourceGroups": [quota(&place.name, 1)]}});
    patch(&place.cluster_queues(), &place.name, cut).await.unwrap();
}

/// A job is admitted after a check: only those that had one have a wait for it.
async fn waits_for_a_check(plane: &ControlPlane) {
    let here = Place::bare(plane, "checked").await.unwrap();
    here.flavor("checked").await.unwrap();
    let checks = here.global("AdmissionCheck", "admissionchecks");
    let check = json!({"metadata": {"name": "checked"}, "spec": {"controllerName": "example.com/checker"}});
    create(&checks, check).await.unwrap();
    let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let active = Patch::Merge(json!({"status": {"conditions": [condition("Active", "Active")]}}));
    checks.patch_status("checked", &PatchParams::default(), &active).await.unwrap();
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "checked"}]}});
    here.cluster_queue("checked", 1, &strategy).await.unwrap();
    here.local_queue("lq", "checked").await.unwrap();
    here.job("runs", "lq", 1).await.unwrap();
    here.wait_for_condition("runs", "QuotaReserved", "True/QuotaReserved").await.unwrap();
    let workload = here.workload("runs").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let ready = json!({"name": "checked", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let ready = Patch::Merge(json!({"status": {"admissionChecks": [ready]}}));
    here.workloads().patch_status(name, &PatchParams::default(), &ready).await.unwrap();
    here.wait_until("runs", true).await.unwrap();
}

/// A job whose pods are ready is preempted.
async fn is_preempted(plane: &ControlPlane) {
    let here = Place::bare(plane, "preempts").await.unwrap();
    here.flavor("preempts").await.unwrap();
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    here.cluster_queue("preempts", 1, &preempts).await.unwrap();
    here.local_queue("lq", "preempts").await.unwrap();
    here.job("runs", "lq", 1).await.unwrap();
    here.wait_for_condition("runs", "PodsReady", "True").await.unwrap();
    here.make_urgent("urgent", 1).await.unwrap();
    here.wait_until("urgent", true).await.unwrap();
}

#[tokio::test]
async fn a_real_prometheus_scrapes_alerts_and_draws() {
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    nodes::pool("plain", 2).make(&plane.client().await.unwrap()).await.unwrap();
    let shares = json!({"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]});
    let measured = json!({
        "metrics": {"enableClusterQueueResources": true}, "fairSharing": shares,
        "waitForPodsReady": {"timeout": "10m", "blockAdmission": false},
    });
    let setup = Setup::new(&plane).unwrap().with(&measured);
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let objects = rendered(&[]);
    let endpoint = &objects["ServiceMonitor"][0]["spec"]["endpoints"][0];
    assert_eq!((&endpoint["scheme"], &endpoint["path"]), (&json!("https"), &json!("/metrics")));
    assert_eq!(endpoint["tlsConfig"], json!({"insecureSkipVerify": true}));
    every_webhook_is_watched(&objects);
    let token = reader(&plane, &objects).await;
    let (rules, names) = rules(&plane, &objects);
    let manager_address = format!("127.0.0.1:{}", setup.metrics);
    let url = plane.url();
    let api_server = url.trim_start_matches("https://");
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    // A scrape fails when it takes longer than the interval, and that of the API server takes longest.
    let every = json!({"scrape_interval": "3s", "evaluation_interval": "1s"});
    let mut jobs =
        json!([scrape_job("sluice", &manager_address, &token), scrape_job("api", api_server, &token)]);
    jobs[0]["tls_config"] = verifying(&plane).await;
    jobs[1]["scrape_interval"] = json!("5s");
    let configuration = json!({"global": every, "rule_files": [rules], "scrape_configs": jobs});
    let prometheus = Prometheus::start(&plane, &configuration).await.unwrap();
    targets_are_up(&prometheus).await;

    // A queue in which something runs beside work that asks for too much, one that is drained, one that lacks its flavor.
    let stuck = Place::new(&plane, "stuck", 2).await.unwrap();
    stuck.job("runs", "lq", 1).await.unwrap();
    stuck.wait_until("runs", true).await.unwrap();
    stuck.job("huge", "lq", 9).await.unwrap();
    // One that is stopped while work waits in it, and one that is used up.
    let stopped = Place::new(&plane, "stopped", 1).await.unwrap();
    patch(&stopped.cluster_queues(), "stopped", json!({"spec": {"stopPolicy": "Hold"}})).await.unwrap();
    stopped.job("held", "lq", 1).await.unwrap();
    let full = Place::new(&plane, "full", 1).await.unwrap();
    full.job("runs", "lq", 1).await.unwrap();
    full.wait_until("runs", true).await.unwrap();
    full.job("waits", "lq", 1).await.unwrap();
    let drained = Place::new(&plane, "drained", 1).await.unwrap();
    drained.job("runs", "lq", 1).await.unwrap();
    let incomplete = Place::bare(&plane, "incomplete").await.unwrap();
    incomplete.cluster_queue("incomplete", 1, &json!({})).await.unwrap();
    // Jobs that take turns.
    let slow = Place::new(&plane, "slow", 1).await.unwrap();
    for name in ["first", "second", "third", "fourth"] {
        slow.make_job(&job(name, "lq", 1, 1, 4)).await.unwrap();
    }
    fires(&prometheus, "SluiceNothingAdmitted", "cluster_queue=\"stuck\"").await;
    drained.wait_until("runs", true).await.unwrap();
    let stop = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    for round in [1, 2] {
        // The first eviction makes the series; a rate needs one more.
        patch(&drained.cluster_queues(), "drained", stop("HoldAndDrain")).await.unwrap();
        drained.wait_until("runs", false).await.unwrap();
        let count = format!("sum(kueue_evicted_workloads_total{{cluster_queue=\"drained\"}}) == {round}");
        eventually("the eviction to be scraped", DEADLINE, || async {
            let found = prometheus.query(&count).await?;
            Ok(progress(!found.is_empty(), "not yet"))
        })
        .await
        .unwrap();
        patch(&drained.cluster_queues(), "drained", stop("None")).await.unwrap();
        drained.wait_until("runs", true).await.unwrap();
    }

    // More is in use than there is, in a queue and in a cohort.
    let alone = Place::new(&plane, "alone", 2).await.unwrap();
    overdraw(&alone).await;
    let together = Place::bare(&plane, "together").await.unwrap();
    together.flavor("together").await.unwrap();
    together.cluster_queue("together", 2, &json!({"cohortName": "team"})).await.unwrap();
    together.local_queue("lq", "together").await.unwrap();
    overdraw(&together).await;
    // In this cohort a queue uses what it does not lend: all of its own quota, and more than the cohort can share.
    let apart = Place::bare(&plane, "apart").await.unwrap();
    apart.flavor("apart").await.unwrap();
    let mut kept = quota("apart", 2);
    kept["flavors"][0]["resources"][0]["lendingLimit"] = json!("0");
    let keeps = json!({"cohortName": "lends-nothing", "resourceGroups": [kept]});
    apart.cluster_queue("apart", 2, &keeps).await.unwrap();
    apart.local_queue("lq", "apart").await.unwrap();
    apart.job("runs", "lq", 2).await.unwrap();
    apart.wait_until("runs", true).await.unwrap();
    fires(&prometheus, "SluiceQuotaExceeded", "cluster_queue=\"alone\",resource=\"cpu\"").await;
    fires(&prometheus, "SluiceCohortQuotaExceeded", "cohort=\"team\",resource=\"cpu\"").await;
    fires(&prometheus, "SluiceWorkloadsWaitLong", "cluster_queue=\"stuck\"").await;

    waits_for_a_check(&plane).await;
    is_preempted(&plane).await;
    for query in queries(&objects) {
        eventually(&format!("an answer to {query}"), DEADLINE, || async {
            let found = prometheus.query(&query).await?;
            Ok(progress(!found.is_empty(), "nothing"))
        })
        .await
        .unwrap();
    }
    a_team_is_shown_its_own_namespace(&prometheus, &objects).await;
    rules_are_healthy(&prometheus, &names).await;
    let firing = prometheus.query("last_over_time(ALERTS{alertstate=\"firing\"}[10m])").await.unwrap();
    let wrong: Vec<_> = firing
        .iter()
        .map(|alert| &alert["metric"])
        .filter(|alert| {
            let by_design = alert["cluster_queue"] == "stopped" || alert["cluster_queue"] == "full";
            by_design || alert["cohort"] == "lends-nothing" || alert["alertname"] == "SluiceWebhookFailing"
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    // Without a manager there is no leader, and the webhooks do not answer.
    manager.stop().await.unwrap();
    fires(&prometheus, "SluiceLeaderMissing", "severity=\"critical\"").await;
    eventually("SluiceWebhookFailing to fire", DEADLINE, || async {
        let refused = stuck.make_job_once(&job("late", "lq", 1, 1, 1)).await;
        assert!(refused.is_err(), "the webhook is called");
        let found = prometheus.query("ALERTS{alertname=\"SluiceWebhookFailing\"}").await?;
        Ok(progress(!found.is_empty(), "not yet"))
    })
    .await
    .unwrap();
}
