//! Makes the faults of a plan happen, one after the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams};
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::{ControlPlane, Disruption};
use tokio::task::JoinSet;

use super::dice::Dice;
use super::fleet::Fleet;
use super::plan::{self, Fault, Whom};
use super::recorder::FaultLog;
use super::report::Size;
use super::world;
use crate::place::DEADLINE;

/// How long a disruption waits for a request that it is for.
const HARM_WITHIN: Duration = Duration::from_mins(1);

/// What has happened to the managers and the control plane, by kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    /// How often each kind of fault was played.
    pub faults: BTreeMap<String, usize>,
    /// How many requests each kind of harm hit, of those that were played while jobs were made.
    pub harmed: BTreeMap<String, usize>,
}

/// Plays every kind of fault at least once, and continues until the load is over. Notes what there was, and writes it into the recording.
pub(super) async fn play(
    size: Size,
    plane: &ControlPlane,
    fleet: &Fleet,
    log: FaultLog,
    load_is_over: &AtomicBool,
    played: &Mutex<Played>,
) -> Result<()> {
    let mut dice = Dice::new(size.seed, 2);
    let mut nodes = Nodes { client: plane.client().await?, scale: size.scale, log, away: JoinSet::new() };
    let lock = || played.lock().unwrap_or_else(PoisonError::into_inner);
    // A kind that is never played is to be seen.
    lock().faults = plan::faults(&mut dice.clone()).into_iter().map(|fault| (fault.kind(), 0)).collect();
    'day: for round in 0.. {
        for fault in plan::faults(&mut dice) {
            if round > 0 && load_is_over.load(Ordering::Relaxed) {
                break 'day;
            }
            tokio::time::sleep(plan::pause(&mut dice) * size.pauses).await;
            println!("fault: {fault:?}");
            let number = nodes.log.begins(fault.recorded())?;
            let harmed = cause(fault, number, plane, fleet, &mut nodes).await;
            let harmed = harmed.with_context(|| format!("playing {fault:?}"))?;
            if !matches!(fault, Fault::LoseNode(..)) {
                nodes.log.ends(number)?;
            }
            let loaded = !load_is_over.load(Ordering::Relaxed);
            let mut played = lock();
            *played.faults.entry(fault.kind()).or_default() += 1;
            if let Fault::Disrupt(_, Disruption { harm, .. }) = fault
                && (loaded || harmed > 0)
            {
                *played.harmed.entry(plan::harm_kind(harm)).or_default() += harmed;
            }
        }
    }
    while let Some(back) = nodes.away.join_next().await {
        back??;
    }
    Ok(())
}

/// The nodes that go and come back.
struct Nodes {
    client: Client,
    scale: u32,
    log: FaultLog,
    /// Those that are away.
    away: JoinSet<Result<()>>,
}

/// A node is deleted, and made again after this time; an outage of the API server is waited out.
async fn lose_node(client: Client, node: &'static str, period: Duration, scale: u32) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    eventually(&format!("{node} to be deleted"), DEADLINE, || async {
        Ok(match nodes.delete(node, &DeleteParams::default()).await {
            Ok(_) => Progress::Done(()),
            // A fault before this one may have it deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => Progress::Done(()),
            Err(error) => Progress::NotYet(error.to_string()),
        })
    })
    .await?;
    tokio::time::sleep(period).await;
    eventually(&format!("{node} to be back"), DEADLINE, || async {
        Ok(match world::placed_nodes(&client, scale).await {
            Ok(()) => Progress::Done(()),
            Err(error) => Progress::NotYet(format!("{error:#}")),
        })
    })
    .await
}

/// Harms requests for a while, and until there was one to harm. How many there were.
async fn disrupt(whom: Whom, disruption: Disruption, fleet: &Fleet) -> Result<usize> {
    let harmed = || -> usize { fleet.proxies.iter().map(sluice_testkit::FaultProxy::harmed).sum() };
    let (before, began) = (harmed(), Instant::now());
    while harmed() == before && began.elapsed() < HARM_WITHIN {
        // Another may lead by now.
        for index in fleet.indexes(whom).await? {
            fleet.proxies[index].disrupt(disruption);
        }
        if disruption.harm.is_for_watches() {
            // Watches that are open would not notice.
            for proxy in &fleet.proxies {
                proxy.drop_connections();
            }
        }
        tokio::time::sleep(disruption.period).await;
    }
    Ok(harmed() - before)
}

/// Makes the fault of this number happen. How many requests it harmed.
async fn cause(
    fault: Fault,
    number: usize,
    plane: &ControlPlane,
    fleet: &Fleet,
    nodes: &mut Nodes,
) -> Result<usize> {
    match fault {
        // Other faults happen meanwhile.
        Fault::LoseNode(node, period) => {
            let lost = lose_node(nodes.client.clone(), node, period, nodes.scale);
            let log = nodes.log.clone();
            nodes.away.spawn(async move {
                lost.await?;
                log.ends(number)
            });
        }
        Fault::Kill(whom, down) => {
            let killed = fleet.indexes(whom).await?;
            for index in &killed {
                fleet.kill(*index);
            }
            tokio::time::sleep(down).await;
            for index in killed {
                fleet.launch(index).await?;
            }
        }
        Fault::Restart(whom) => {
            for index in fleet.indexes(whom).await? {
                fleet.stop(index).await?;
                fleet.launch(index).await?;
            }
        }
        Fault::FreezeLeader => {
            let leader = fleet.leader_but(None).await?;
            fleet.pause(leader)?;
            let other = fleet.leader_but(Some(leader)).await;
            fleet.resume(leader)?;
            other?;
        }
        Fault::CutLeader => {
            let leader = fleet.leader_but(None).await?;
            fleet.proxies[leader].cut();
            let other = fleet.leader_but(Some(leader)).await;
            fleet.proxies[leader].heal();
            other?;
        }
        Fault::Freeze(part, period) => {
            plane.pause(part)?;
            tokio::time::sleep(period).await;
            plane.resume(part)?;
        }
        Fault::Replace(sluice_testkit::Part::ApiServer) => plane.restart_api_server().await?,
        Fault::Replace(sluice_testkit::Part::Etcd) => plane.restart_etcd().await?,
        Fault::Disrupt(whom, disruption) => return disrupt(whom, disruption, fleet).await,
        Fault::DropConnections => {
            for index in fleet.indexes(Whom::Both).await? {
                fleet.proxies[index].drop_connections();
            }
        }
    }
    Ok(0)
}
