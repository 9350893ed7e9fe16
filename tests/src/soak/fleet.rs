//! Two replicas of the manager behind one address, each with its own proxy to the API server; their resource usage, and whether they live.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{Balancer, ControlPlane, FaultProxy, Limits, Manager, Setup, chart, crds};
use tokio::task::JoinHandle;

use super::plan::Whom;

/// How often memory is looked at, and whether a process lives.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a replica may take to answer that it leads.
const ANSWER: Duration = Duration::from_millis(700);
/// How long there may be no leader.
const LEADERLESS: Duration = Duration::from_mins(3);

struct Replica {
    manager: Option<Manager>,
    setup: Setup,
}

/// What was seen of the replicas' processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// With queues, and without jobs.
    pub idle: u64,
    /// The most.
    pub peak: u64,
}

struct Shared {
    replicas: [Mutex<Replica>; 2],
    memory: Mutex<Memory>,
    idle: AtomicBool,
    /// How often a process ended that was not stopped.
    ended: AtomicUsize,
}

/// The replicas. Everything ends when this is dropped.
pub(super) struct Fleet {
    plane: Arc<ControlPlane>,
    shared: Arc<Shared>,
    pub proxies: [FaultProxy; 2],
    _balancer: Balancer,
    watching: JoinHandle<()>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// Installs the chart and starts both replicas.
    pub async fn start(plane: Arc<ControlPlane>) -> Result<Self> {
        let first = Setup::new(&plane)?.brief_leases().limited(Limits::CHART);
        let second = first.replica()?;
        let balancer = Balancer::start(&[first.webhook, second.webhook]).await?;
        let values = json!({"webhooks": {"urlBase": balancer.url()}});
        let first = chart::install(&plane, first, &values).await?;
        let proxies = [FaultProxy::start(&plane).await?, FaultProxy::start(&plane).await?];
        let mut replicas = Vec::new();
        for (setup, proxy) in [first, second].into_iter().zip(&proxies) {
            let account = (chart::NAMESPACE, chart::SERVICE_ACCOUNT);
            let kubeconfig = plane.kubeconfig_through(&proxy.url(), account.0, account.1).await?;
            let setup = setup.acting_as(kubeconfig);
            let manager = Manager::start(&plane, setup.clone()).await?;
            manager.must_be_limited();
            replicas.push(Mutex::new(Replica { manager: Some(manager), setup }));
        }
        crds::wait_until_converting(&plane.client().await?).await?;
        let replicas = <[_; 2]>::try_from(replicas).map_err(|_| anyhow::anyhow!("there are two replicas"))?;
        let memory = Mutex::default();
        let shared = Shared { replicas, memory, idle: AtomicBool::new(true), ended: AtomicUsize::default() };
        let shared = Arc::new(shared);
        let watching = tokio::spawn(watch(Arc::clone(&plane), Arc::clone(&shared)));
        Ok(Self { plane, shared, proxies, _balancer: balancer, watching })
    }

    /// The load begins: memory is compared with what it was until now.
    pub fn load_begins(&self) {
        self.shared.idle.store(false, Ordering::Relaxed);
    }

    pub fn memory(&self) -> Memory {
        *lock(&self.shared.memory)
    }

    /// Times that a process ended by itself.
    pub fn ended(&self) -> usize {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// The logs of both, of all their lives.
    pub fn logs(&self) -> Vec<PathBuf> {
        let path =
            |replica: &Mutex<Replica>| self.plane.log_path(&format!("sluice-{}", lock(replica).setup.health));
        self.shared.replicas.iter().map(path).collect()
    }

    /// Lines of the logs that a healthy process never writes.
    pub fn panics(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for path in self.logs() {
            let text = std::fs::read_to_string(&path).context("reading a log")?;
            found.extend(text.lines().filter(|line| reports_a_panic(line)).map(str::to_owned));
        }
        Ok(found)
    }

    /// The replica that leads now, if any does.
    pub async fn leader(&self) -> Option<usize> {
        for index in 0..2 {
            let health = lock(&self.shared.replicas[index]).setup.health;
            let asked = tokio::time::timeout(ANSWER, sluice_testkit::health(health, "/readyz"));
            if let Ok(Ok((_, text))) = asked.await
                && text.contains("leadership ok (leading)")
            {
                return Some(index);
            }
        }
        None
    }

    /// Waits for a leader that is not this one.
    pub async fn leader_but(&self, not: Option<usize>) -> Result<usize> {
        eventually("a leader", LEADERLESS, || async {
            let leader = self.leader().await.filter(|leader| Some(*leader) != not);
            Ok(leader.map_or_else(|| Progress::NotYet("none".to_owned()), Progress::Done))
        })
        .await
    }

    /// The replicas that are meant now.
    pub async fn indexes(&self, whom: Whom) -> Result<Vec<usize>> {
        Ok(match whom {
            Whom::Both => vec![0, 1],
            Whom::Leader => vec![self.leader_but(None).await?],
            Whom::Follower => vec![1 - self.leader_but(None).await?],
        })
    }

    /// SIGKILL.
    pub fn kill(&self, index: usize) {
        let manager = lock(&self.shared.replicas[index]).manager.take();
        drop(manager.map(Manager::kill));
    }

    /// SIGTERM, and waits for the end, which must be a good one.
    pub async fn stop(&self, index: usize) -> Result<()> {
        let manager = lock(&self.shared.replicas[index]).manager.take();
        let Some(manager) = manager else { return Ok(()) };
        let log = manager.log_tail(5);
        let (_, status) = manager.stop().await?;
        ensure!(status.success(), "a manager that received SIGTERM ended with {status}:\n{log}");
        Ok(())
    }

    /// Starts a replica that does not run.
    pub async fn launch(&self, index: usize) -> Result<()> {
        let setup = lock(&self.shared.replicas[index]).setup.clone();
        let manager = Manager::launch(&self.plane, setup).await?;
        lock(&self.shared.replicas[index]).manager = Some(manager);
        Ok(())
    }

    pub fn pause(&self, index: usize) -> Result<()> {
        lock(&self.shared.replicas[index]).manager.as_mut().map_or(Ok(()), Manager::pause)
    }

    pub fn resume(&self, index: usize) -> Result<()> {
        lock(&self.shared.replicas[index]).manager.as_mut().map_or(Ok(()), Manager::resume)
    }

    /// Waits until both are ready and one of them leads, and the state that each keeps equals what the objects say.
    pub async fn settle(&self) -> Result<()> {
        self.leader_but(None).await?;
        for replica in &self.shared.replicas {
            let health = lock(replica).setup.health;
            eventually("the audit to find nothing", LEADERLESS, || async {
                let (status, text) = sluice_testkit::health(health, "/debug/audit?pause=true").await?;
                Ok(progress(status == 200 && text == "no differences\n", text))
            })
            .await?;
        }
        Ok(())
    }
}

/// Whether a line of a log is one that a healthy process never writes. Panics of the engine and of single objects are survived, and have words
/// of their own.
fn reports_a_panic(line: &str) -> bool {
    let said = [
        "panicked",
        "panic in the engine",
        "the engine failed",
        "the manager failed on this object",
        "the write panicked",
    ];
    said.iter().any(|said| line.contains(said))
}

/// Notes what the processes use, and starts them again when they end by themselves, as a kubelet would.
async fn watch(plane: Arc<ControlPlane>, shared: Arc<Shared>) {
    loop {
        for replica in &shared.replicas {
            let mut gone = None;
            {
                let mut replica = lock(replica);
                let used = replica.manager.as_ref().and_then(|manager| manager.anonymous_memory().ok());
                let mut memory = lock(&shared.memory);
                let used = used.unwrap_or_default();
                if shared.idle.load(Ordering::Relaxed) {
                    memory.idle = memory.idle.max(used);
                }
                memory.peak = memory.peak.max(used);
                if replica.manager.as_mut().is_some_and(|manager| manager.ended().is_some()) {
                    replica.manager = None;
                    gone = Some(replica.setup.clone());
                }
            }
            if let Some(setup) = gone {
                shared.ended.fetch_add(1, Ordering::Relaxed);
                let again = Manager::launch(&plane, setup).await;
                lock(replica).manager = again.ok();
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panic_is_read_from_a_log() {
        for line in [
            "thread 'tokio-runtime-worker' panicked at crates/manager/src/lib.rs:1:1:",
            r#"2026-01-01T00:00:00Z ERROR sluice: panic in the engine at=Some("crates/engine/src/lib.rs:1:1")"#,
            "ERROR sluice: the engine failed, and no object explains it cause=Unknown why=\"a bug\"",
            "ERROR sluice: the engine failed on this object: it is set aside until it changes object=Job/ns/j",
            "ERROR sluice: the manager failed on this object: it is set aside until it changes object=Job/ns/j",
            "WARN sluice: a write was refused why=\"the write panicked: a bug in a write\"",
        ] {
            assert!(reports_a_panic(line), "{line}");
        }
        for line in ["INFO sluice: leading", "WARN sluice: late reservation revoked object=Workload/ns/w"] {
            assert!(!reports_a_panic(line), "{line}");
        }
    }
}
