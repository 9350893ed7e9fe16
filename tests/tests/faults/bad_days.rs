//! The manager dies, the API server goes away or refuses, an object cannot be handled, a certificate expires: the whole history of each run is
//! checked, not only its end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::similar_names, reason = "a place is on a plane")]

mod stuck_pods;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use rcgen::{CertificateParams, Issuer, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use sluice_testkit::kubectl::kubectl;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, FaultProxy, Limits, Manager, Setup, chart, crds, nodes, workloads};
use sluice_tests::history::{Account, History};
use sluice_tests::place::{DEADLINE, Place, create, job};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// A day with many Jobs may take longer than one thing.
const LONG: Duration = Duration::from_mins(6);
const SERVICE_ACCOUNT: &str = "kueue-controller-manager";
const HIGH: &str = "urgent";
const INJECT_PANIC: &str = "sluice.dev/inject-panic";

/// The plane and what a manager on it is started with.
struct Bed {
    plane: &'static ControlPlane,
    setup: Setup,
}

static BED: OnceCell<Bed> = OnceCell::const_new();
/// Faults hit every test on the plane: one day at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// One plane for all; like [`sluice_testkit::shared`], but its API server watches etcd itself: a cache that is young reports
/// nothing of what was before, and the history would have a hole.
async fn plane() -> &'static ControlPlane {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || async {
        ControlPlane::builder().complete().api_server_flag("--watch-cache=false").start().await.unwrap()
    };
    PLANE.get_or_init(start).await
}

async fn bed() -> (&'static Bed, MutexGuard<'static, ()>) {
    let guard = ONE_AT_A_TIME.lock().await;
    let bed = BED
        .get_or_init(|| async {
            let plane = plane().await;
            let client = plane.client().await.unwrap();
            nodes::pool("plain", 3).make(&client).await.unwrap();
            let setup = Setup::new(plane).unwrap().brief_leases().limited(Limits::CHART);
            let setup = chart::install(plane, setup, &json!({})).await.unwrap();
            let classes = workloads::all(&client, "WorkloadPriorityClass", "workloadpriorityclasses");
            create(&classes, json!({"metadata": {"name": HIGH}, "value": 1000})).await.unwrap();
            Bed { plane, setup }
        })
        .await;
    (bed, guard)
}

/// Starts a manager, and waits until the API server is done with the certificates that it puts into the CRDs.
async fn start(setup: Setup) -> Manager {
    let plane = plane().await;
    let manager = Manager::start(plane, setup).await.unwrap();
    manager.must_be_limited();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    manager
}

/// Numbers that look random and are the same in every run of the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// Makes Jobs of a second each that have to take turns; every third one is urgent, and pushes others out.
async fn make_jobs(place: &Place<'_>, names: std::ops::Range<usize>) {
    for number in names {
        let mut job = job(&format!("job-{number}"), "lq", 1, 1, 1);
        if number % 3 == 0 {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(HIGH);
        }
        // While the manager is away its webhooks do not answer, and a user tries again.
        eventually("a Job to be taken", DEADLINE, || async {
            let made = place.make_job_once(&job).await;
            let there = made.as_ref().is_err_and(|error| format!("{error:#}").contains("already exists"));
            Ok(progress(made.is_ok() || there, format!("{made:?}")))
        })
        .await
        .unwrap();
    }
}

/// A place where Jobs push each other out.
async fn busy_place(plane: &'static ControlPlane, name: &str, cpu: u32) -> Place<'static> {
    let place = Place::bare(plane, name).await.unwrap();
    place.flavor(name).await.unwrap();
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    place.cluster_queue(name, cpu, &preemption).await.unwrap();
    place.local_queue("lq", name).await.unwrap();
    place
}

/// Waits until all Jobs here are complete, and everything that was theirs is given back.
async fn wait_until_complete(place: &Place<'_>, jobs: usize) {
    eventually(&format!("{jobs} Jobs to be complete"), LONG, || async {
        let all = place.jobs().list(&kube::api::ListParams::default()).await?.items;
        let succeeded = |job: &k8s_openapi::api::batch::v1::Job| {
            job.status.as_ref().is_some_and(|status| status.completion_time.is_some())
        };
        let open: Vec<_> =
            all.iter().filter(|job| !succeeded(job)).map(kube::ResourceExt::name_any).collect();
        Ok(progress(all.len() == jobs && open.is_empty(), format!("{} of {jobs}; open: {open:?}", all.len())))
    })
    .await
    .unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    place.wait_for_reserved_cpu("0").await.unwrap();
}

async fn audit(manager: &Manager) {
    eventually("the audit to find nothing", DEADLINE, || async {
        let (status, text) = manager.health("/debug/audit?pause=true").await?;
        Ok(progress(status == 200 && text == "no differences\n", text))
    })
    .await
    .unwrap();
}

/// Checks the history, and that each Job was started by an admission of its own.
async fn account(history: &History, place: &Place<'_>, cpu: u64, jobs: usize) -> Account {
    let quota = BTreeMap::from([(place.name.clone(), cpu)]);
    let account = history.check(&quota, DEADLINE).await.unwrap();
    assert!(account.started >= jobs && account.admissions >= jobs, "{account:?}");
    assert!(account.admissions <= jobs + account.evictions, "{account:?}");
    account
}

#[tokio::test]
async fn killed_at_any_moment_it_admits_nothing_twice_and_leaks_nothing() {
    const JOBS: usize = 36;
    const CPU: u32 = 4;
    let (bed, _guard) = bed().await;
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(3);
    println!("SLUICE_SEED={seed}");
    let mut dice = Dice(seed);
    // Without an election, so that each start leads at once.
    let setup = bed.setup.clone().alone();
    let mut manager = start(setup).await;
    let place = busy_place(bed.plane, "killed", CPU).await;
    let history = History::start(place.client.clone(), &place.name).await.unwrap();
    make_jobs(&place, 0..JOBS / 2).await;
    for round in 0..16 {
        let lived = Duration::from_millis(50 + dice.below(1_200));
        tokio::time::sleep(lived).await;
        manager = Manager::launch(bed.plane, manager.kill()).await.unwrap();
        if round == 5 {
            make_jobs(&place, JOBS / 2..JOBS).await;
        }
    }
    manager.wait_until_ready().await.unwrap();
    wait_until_complete(&place, JOBS).await;
    audit(&manager).await;
    let account = account(&history, &place, u64::from(CPU), JOBS).await;
    println!("{account:?}");
    manager.stop().await.unwrap();
}

#[tokio::test]
async fn an_api_server_that_restarts_costs_nothing_but_time() {
    const JOBS: usize = 18;
    const CPU: u32 = 4;
    let (bed, _guard) = bed().await;
    let mut manager = start(bed.setup.clone()).await;
    let place = busy_place(bed.plane, "restarted", CPU).await;
    let history = History::start(place.client.clone(), &place.name).await.unwrap();
    make_jobs(&place, 0..JOBS / 2).await;
    // Longer than the lease lasts: leadership is lost, and won again. Managers of other tests have written into the log before.
    let before = manager.log().unwrap().len();
    bed.plane.stop_api_server();
    eventually("the manager to follow", DEADLINE, || async {
        let log = manager.log()?;
        let new = log.get(before..).unwrap_or_default();
        Ok(progress(new.contains("leadership is lost"), manager.log_tail(3)))
    })
    .await
    .unwrap();
    bed.plane.start_api_server().await.unwrap();
    make_jobs(&place, JOBS / 2..JOBS).await;
    wait_until_complete(&place, JOBS).await;
    assert_eq!(manager.ended(), None, "it is still the same process");
    audit(&manager).await;
    account(&history, &place, u64::from(CPU), JOBS).await;
    manager.stop().await.unwrap();
}

#[tokio::test]
async fn refusals_for_a_while_are_outlived() {
    const JOBS: usize = 24;
    const CPU: u32 = 4;
    let (bed, _guard) = bed().await;
    let proxy = FaultProxy::start(bed.plane).await.unwrap();
    let kubeconfig =
        bed.plane.kubeconfig_through(&proxy.url(), chart::NAMESPACE, SERVICE_ACCOUNT).await.unwrap();
    let mut manager = start(bed.setup.clone().acting_as(kubeconfig)).await;
    let place = busy_place(bed.plane, "refused", CPU).await;
    let history = History::start(place.client.clone(), &place.name).await.unwrap();
    for (round, status) in [429, 500, 503].into_iter().enumerate() {
        let (from, to) = (round * JOBS / 3, (round + 1) * JOBS / 3);
        let refused = proxy.refused();
        // Until the proxy is healed: on a busy machine the first request may come late.
        let period = if status == 503 {
            // Everything, for longer than the lease lasts.
            proxy.refuse(status, 2 * DEADLINE).unwrap();
            Duration::from_secs(4)
        } else {
            // Every write but those of the lease.
            proxy
                .refuse_matching(status, 2 * DEADLINE, |method, path| {
                    method != "GET" && !path.contains("/leases/")
                })
                .unwrap();
            Duration::from_secs(2)
        };
        let refusing = async {
            eventually("something to be refused", DEADLINE, || async {
                Ok(progress(proxy.refused() > refused, "nothing"))
            })
            .await
            .unwrap();
            tokio::time::sleep(period).await;
            proxy.heal();
        };
        tokio::join!(make_jobs(&place, from..to), refusing);
        proxy.drop_connections();
    }
    wait_until_complete(&place, JOBS).await;
    assert_eq!(manager.ended(), None);
    audit(&manager).await;
    account(&history, &place, u64::from(CPU), JOBS).await;
    manager.stop().await.unwrap();
}

#[tokio::test]
async fn a_poisonous_object_is_set_aside_and_the_others_continue() {
    let (bed, _guard) = bed().await;
    let setup = bed.setup.clone().arg("--inject-panics");
    let mut manager = start(setup).await;
    let place = Place::new(bed.plane, "poisoned", 7).await.unwrap();
    place.job("before", "lq", 1).await.unwrap();
    place.wait_until("before", true).await.unwrap();
    let mut poison = job("poison", "lq", 1, 1, 3_600);
    poison["metadata"]["labels"][INJECT_PANIC] = json!("now");
    place.make_job(&poison).await.unwrap();
    place.wait_for_event("Job/poison", "SetAside", "a panic was injected").await.unwrap();
    place.job("after", "lq", 1).await.unwrap();
    place.wait_until("after", true).await.unwrap();
    assert!(place.suspended("poison").await.unwrap());
    assert!(!place.suspended("before").await.unwrap(), "what ran continues");
    assert_eq!(manager.ended(), None);
    audit(&manager).await;
    // It is looked at again when it changes, and set aside again, however often: from the third time on after a pause.
    for change in 1..=4 {
        let name = format!("change-{change}");
        place.patch_job("poison", json!({"metadata": {"labels": {INJECT_PANIC: name}}})).await.unwrap();
        place.job(&name, "lq", 1).await.unwrap();
        place.wait_until(&name, true).await.unwrap();
        assert_eq!(manager.ended(), None);
    }
    // Also if it changes faster than everything can be listed.
    let started = AtomicBool::new(false);
    let others = async {
        place.job("meanwhile", "lq", 1).await.unwrap();
        place.wait_until("meanwhile", true).await.unwrap();
        started.store(true, Relaxed);
    };
    let changes = async {
        for change in 0_u32.. {
            if started.load(Relaxed) {
                break;
            }
            let labels = json!({(INJECT_PANIC): format!("fast-{change}")});
            place.patch_job("poison", json!({"metadata": {"labels": labels}})).await.unwrap();
        }
    };
    tokio::join!(others, changes);
    assert_eq!(manager.ended(), None);
    // If its user resumes it, it is suspended again.
    place.patch_job("poison", json!({"spec": {"suspend": false}})).await.unwrap();
    place.wait_until("poison", false).await.unwrap();
    assert_eq!(manager.ended(), None);
    place.delete_job("before").await.unwrap();
    let mended = json!({"metadata": {"labels": {INJECT_PANIC: null}}});
    place.patch_job("poison", mended).await.unwrap();
    place.wait_until("poison", true).await.unwrap();
    manager.stop().await.unwrap();
}

fn text(secret: &Secret, key: &str) -> String {
    let ByteString(bytes) = secret.data.as_ref().unwrap()[key].clone();
    String::from_utf8(bytes).unwrap()
}

/// A certificate for the same names by the same authority, over since the year 2001.
fn expired(secret: &Secret) -> (String, String) {
    let authority = KeyPair::from_pem(&text(secret, "ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&text(secret, "ca.crt"), authority).unwrap();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

const SECRET: &str = "kueue-webhook-server-cert";

#[tokio::test]
async fn an_expired_certificate_is_replaced_without_a_restart() {
    let (bed, _guard) = bed().await;
    let manager = start(bed.setup.clone()).await;
    let place = Place::new(bed.plane, "expired", 1).await.unwrap();
    let id = manager.id();
    let secrets: Api<Secret> = Api::namespaced(place.client.clone(), chart::NAMESPACE);
    let before = secrets.get(SECRET).await.unwrap();
    let (certificate, key) = expired(&before);
    let data: Value = json!({"data": {
        "tls.crt": ByteString(certificate.clone().into_bytes()),
        "tls.key": ByteString(key.into_bytes()),
    }});
    secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
    eventually("another certificate", DEADLINE, || async {
        let now = secrets.get(SECRET).await?;
        let replaced =
            text(&now, "tls.crt") != certificate && text(&now, "ca.crt") == text(&before, "ca.crt");
        Ok(progress(replaced, "the expired one"))
    })
    .await
    .unwrap();
    // Webhooks answer, and objects are converted.
    eventually("webhooks and conversion to work", DEADLINE, || async {
        if workloads::of_job(&place.client, &place.name, "signed").await?.is_none() {
            place.job("signed", "lq", 1).await?;
        }
        let queues =
            kubectl(bed.plane, &["get", "clusterqueues.v1beta1.kueue.x-k8s.io", &place.name]).await?;
        Ok(progress(queues.contains(&place.name), queues))
    })
    .await
    .unwrap();
    place.wait_until("signed", true).await.unwrap();
    assert_eq!(manager.id(), id);
    manager.stop().await.unwrap();
}
