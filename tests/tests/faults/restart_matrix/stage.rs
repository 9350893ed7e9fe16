//! The plane, the manager behind its proxy, and the runs on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use serde_json::json;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{
    ControlPlane, Fault, FaultProxy, Manager, Setup, autoscaler, chart, crds, jobset, nodes, workloads,
};
use sluice_tests::history::History;
use sluice_tests::place::{DEADLINE, Place, create};

use super::PATIENCE;
use super::outcome::{self, Outcome};
use super::protocol::{HIGH, Protocol};

/// What a manager is started on.
pub struct Bed {
    plane: ControlPlane,
    _controllers: (autoscaler::StandIn, jobset::Controller),
    setup: Setup,
}

/// A bed of its own. It is never dropped; the watchdog stops everything when the test process ends.
pub async fn bed() -> &'static Bed {
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    let served = autoscaler::Served::Both;
    let autoscaler = autoscaler::StandIn::start(&plane.kubeconfig_path(), served).await.unwrap();
    let jobsets = jobset::Controller::start(&plane).await.unwrap();
    let client = plane.client().await.unwrap();
    nodes::pool("plain", 8).make(&client).await.unwrap();
    // Without an election, so that each start leads at once.
    let setup = Setup::new(&plane).unwrap().alone();
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let classes = workloads::all(&client, "WorkloadPriorityClass", "workloadpriorityclasses");
    create(&classes, json!({"metadata": {"name": HIGH}, "value": 1000})).await.unwrap();
    Box::leak(Box::new(Bed { plane, _controllers: (autoscaler, jobsets), setup }))
}

/// A manager behind a proxy.
pub struct Stage {
    bed: &'static Bed,
    pub proxy: Arc<FaultProxy>,
    manager: Manager,
}

impl Stage {
    pub async fn new(bed: &'static Bed) -> Self {
        let proxy = Arc::new(FaultProxy::start(&bed.plane).await.unwrap());
        let account = (chart::NAMESPACE, chart::SERVICE_ACCOUNT);
        let kubeconfig = bed.plane.kubeconfig_through(&proxy.url(), account.0, account.1).await.unwrap();
        let setup = bed.setup.clone().acting_as(kubeconfig);
        let manager = Manager::start(&bed.plane, setup).await.unwrap();
        crds::wait_until_converting(&bed.plane.client().await.unwrap()).await.unwrap();
        Self { bed, proxy, manager }
    }

    /// SIGKILL, and a new start for which everything of these plays gets through.
    async fn restart(self, plays: &[Play]) -> Self {
        let Self { bed, proxy, manager } = self;
        let setup = manager.kill();
        for play in plays {
            proxy.heal_scope(&play.place.name);
        }
        let manager = Manager::start(&bed.plane, setup).await.unwrap();
        Self { bed, proxy, manager }
    }

    /// The incremental state of the manager equals what the objects say.
    pub async fn audit(&self) {
        eventually("the audit to find nothing", DEADLINE, || async {
            let (status, text) = self.manager.health("/debug/audit?pause=true").await?;
            Ok(progress(status == 200 && text == "no differences\n", text))
        })
        .await
        .unwrap();
    }

    /// Plays all of them at once; the manager is killed and started again when every play is cut, or over, if any fault is for good.
    pub async fn play(self, plays: &[Play]) -> (Self, Vec<Result<(), String>>) {
        let proxy = Arc::clone(&self.proxy);
        let over = std::sync::Mutex::new(BTreeSet::new());
        let acts = join_all(plays.iter().map(|play| async {
            let played = play.act(&proxy).await;
            over.lock().unwrap().insert(play.place.name.clone());
            played
        }));
        let director = async {
            if !plays.iter().any(|play| play.fault.as_ref().is_some_and(|fault| fault.for_good)) {
                return self;
            }
            eventually("every play to be cut", PATIENCE, || async {
                let over = over.lock().unwrap().clone();
                let names = plays.iter().map(|play| &play.place.name);
                let open: Vec<_> =
                    names.filter(|name| !over.contains(*name) && !proxy.scope(name).struck).collect();
                Ok(progress(open.is_empty(), format!("{open:?}")))
            })
            .await
            .unwrap();
            self.restart(plays).await
        };
        tokio::join!(director, acts)
    }
}

/// A play that is set up and watched.
pub struct Play {
    pub protocol: Protocol,
    pub fault: Option<Fault>,
    pub place: Place<'static>,
    history: History,
}

impl Play {
    /// Makes its namespace, `name`, its queues, and what is there before the play.
    pub async fn prepare(bed: &'static Bed, protocol: Protocol, fault: Option<Fault>, name: &str) -> Self {
        let place = Place::bare(&bed.plane, name).await.unwrap();
        protocol.prepare(&place).await.unwrap();
        let history = protocol.begin(&place).await.unwrap();
        Self { protocol, fault, place, history }
    }

    async fn act(&self, proxy: &FaultProxy) -> Result<(), String> {
        proxy.begin_scope(&self.place.name, self.fault.clone());
        let played = self.protocol.play(&self.place, &self.history).await;
        // What is put away last comes after what users wait for. If it never comes, the verdict is that the cut was not reached.
        if self.fault.as_ref().is_some_and(|fault| !fault.at.by_chance) {
            let struck = eventually("the cut", DEADLINE, || async {
                Ok(progress(proxy.scope(&self.place.name).struck, "not yet".to_owned()))
            });
            drop(struck.await);
        }
        played.map_err(|error| format!("{error:#}"))
    }

    /// What it has come to, once it rests.
    pub async fn outcome(&self, wanted: Option<&Outcome>) -> Result<Outcome, String> {
        outcome::of(self.protocol, &self.place, &self.history, wanted)
            .await
            .map_err(|error| format!("{error:#}"))
    }
}
