//! The rotator of the certificates, on a stand-in for the API server.

use std::sync::Mutex;

use axum::body::Bytes;
use axum::http::Uri;
use jiff::SignedDuration;

use super::*;
use crate::fake_api;

#[test]
fn what_is_packed_into_the_secret_comes_out_again() {
    let names = service_names("kueue-system", "kueue-webhook-service", "");
    let material = renew(&Material::default(), Renewal::RenewAll, &names, Timestamp::now()).unwrap();
    let data = pack(&material).into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    assert_eq!(unpack(Some(&data)), material);
    assert_eq!(unpack(None), Material::default());
}

#[test]
fn what_is_refused_is_asked_for_less_and_less_often_and_soon_again_after_a_success() {
    let mut failures = 0;
    let waits: Vec<u128> = (0..7).map(|_| pause_after(false, &mut failures).as_millis()).collect();
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    assert_eq!(pause_after(true, &mut failures), PERIOD);
    assert_eq!(pause_after(false, &mut failures).as_millis(), 500);
}

#[test]
fn what_is_wrong_is_said_once_until_it_changes() {
    let mut trouble = Trouble::default();
    let rounds = [Some("a"), Some("a"), Some("b"), Some("b"), None, None, Some("b"), Some("a")];
    let said: Vec<_> = rounds
        .map(|why| trouble.news(why.map(str::to_owned)).map(str::to_owned))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(said, ["a", "b", "b", "a"]);
}

#[test]
fn the_certificate_names_the_service_and_a_listening_host() {
    let names = service_names("ns", "svc", "10.1.2.3");
    assert!(names.contains("svc.ns.svc"));
    assert!(service_names("ns", "kueue-webhook-service", "").contains("kueue-visibility-server.ns.svc"));
    assert!(names.contains("10.1.2.3"));
    let metrics = "kueue-controller-manager-metrics-service.ns.svc";
    assert!(service_names("ns", "kueue-webhook-service", "").contains(metrics));
    let dashboard = in_cluster(&inject::dashboard_service("kueue-webhook-service"), "ns");
    assert_eq!(dashboard[0], "kueue-dashboard.ns.svc");
    assert!(!service_names("ns", "svc", "0.0.0.0").contains("0.0.0.0"));
}

#[tokio::test]
async fn what_is_served_stays_good_while_the_secret_cannot_be_read_or_made_again() {
    let names = service_names("ns", "svc", "");
    let made = renew(&Material::default(), Renewal::RenewAll, &names, Timestamp::now()).unwrap();
    let client = fake_api::client(|_: Method, _: Uri, _: Bytes| async { fake_api::failed(403, "Forbidden") });
    let serving = vec![Serving::provisional(TlsOptions::default()).unwrap()];
    let mut rotator = CertRotator::new(client, "ns", "svc", "secret", "", serving);
    rotator.served = made.clone();
    let now = Timestamp::now();
    assert!(rotator.round(Instant::now()).await.is_err());
    assert!(!rotator.goes_on(now), "no API server is known to trust it");
    rotator.trusted = true;
    assert!(rotator.round(Instant::now()).await.is_err());
    assert!(rotator.goes_on(now));
    assert!(!rotator.goes_on(now + SignedDuration::from_hours(24 * 366 * 20)), "it has expired");
    // A Secret that was emptied does not end the trust in what other replicas serve.
    let next = renew(&rotator.without_secret(), Renewal::RenewAll, &names, now).unwrap();
    assert!(next.ca_bundle.contains(&made.ca_bundle) && next.ca_bundle != made.ca_bundle);
}

/// The answers of an API server whose administrator forbids changes of one CRD, and the patches that it was sent, by object.
fn of_a_strict_administrator() -> (Client, Arc<Mutex<BTreeMap<String, usize>>>) {
    let patches: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let seen = Arc::clone(&patches);
    let client = fake_api::client(move |method: Method, uri: Uri, body: Bytes| {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        let mut spec = json!({"conversion": {"webhook": {"clientConfig": {}}}});
        let mut answer = None;
        if method == Method::PATCH || name == "events" {
            *seen.lock().unwrap().entry(name.clone()).or_default() += 1;
            spec = serde_json::from_slice::<Value>(&body).unwrap()["spec"].take();
            answer = name.starts_with("workloads").then(|| fake_api::failed(403, "Forbidden"));
        } else if name.ends_with("configuration") || uri.path().contains("apiservices") {
            answer = Some(fake_api::failed(404, "NotFound"));
        }
        let metadata = json!({"name": name, "uid": "u", "resourceVersion": "1"});
        let found = fake_api::found(&json!({"metadata": metadata, "spec": spec}));
        async move { answer.unwrap_or(found) }
    });
    (client, patches)
}

#[tokio::test]
async fn a_change_that_is_refused_is_repeated_less_and_less_often_and_the_others_are_made() {
    let (client, patches) = of_a_strict_administrator();
    let mut rotator =
        CertRotator::new(client, "ns", "svc", "secret", "", Vec::new()).reporting_as("sluice-0");
    let began = Instant::now();
    for round in 0..360 {
        let injector = &mut rotator.injector;
        injector.refresh().await.unwrap();
        let injected = injector.inject("ca", began + PERIOD * round).await;
        assert!(
            injected
                .is_err_and(|error| error.to_string().contains("workloads.kueue.x-k8s.io cannot be changed"))
        );
        rotator.report_refusals().await;
    }
    let patches = patches.lock().unwrap();
    let of = |name: &str| patches.get(name).copied().unwrap_or_default();
    assert!((10..=20).contains(&of("workloads.kueue.x-k8s.io")), "{patches:?}");
    assert_eq!((of("cohorts.kueue.x-k8s.io"), of("localqueues.kueue.x-k8s.io")), (1, 1));
    assert_eq!(of("events"), 1, "it says why");
}

#[tokio::test]
async fn files_are_served_again_when_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let names = BTreeSet::from(["localhost".to_owned()]);
    let serving = Serving::provisional(TlsOptions::default()).unwrap();
    let mut served = Default::default();
    let all = [serving.clone()];
    assert!(files(folder.path(), &all, &mut served).await.is_err());
    for _ in 0..2 {
        let before = serving.config.now();
        let made = renew(&Material::default(), Renewal::RenewAll, &names, Timestamp::now()).unwrap();
        std::fs::write(folder.path().join("tls.crt"), &made.cert).unwrap();
        std::fs::write(folder.path().join("tls.key"), &made.key).unwrap();
        assert!(files(folder.path(), &all, &mut served).await.unwrap());
        assert!(!std::sync::Arc::ptr_eq(&before, &serving.config.now()));
        let same = serving.config.now();
        assert!(!files(folder.path(), &all, &mut served).await.unwrap());
        assert!(std::sync::Arc::ptr_eq(&same, &serving.config.now()));
    }
}
