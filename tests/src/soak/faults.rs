//! Makes the faults of a plan happen, one after the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use sluice_testkit::ControlPlane;

use super::dice::Dice;
use super::fleet::Fleet;
use super::plan::{self, Fault, Whom};
use super::run::Size;

/// Plays every kind of fault at least once, and goes on until the load is over. How many there were.
pub(super) async fn play(
    size: Size,
    plane: &ControlPlane,
    fleet: &Fleet,
    load_is_over: &AtomicBool,
    count: &AtomicUsize,
) -> Result<()> {
    let mut dice = Dice::new(size.seed, 2);
    for round in 0.. {
        for fault in plan::faults(&mut dice) {
            if round > 0 && load_is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            tokio::time::sleep(plan::pause(&mut dice) * size.pauses).await;
            println!("fault: {fault:?}");
            happen(fault, plane, fleet).await.with_context(|| format!("playing {fault:?}"))?;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

async fn happen(fault: Fault, plane: &ControlPlane, fleet: &Fleet) -> Result<()> {
    match fault {
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
        Fault::Disrupt(whom, disruption) => {
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
        Fault::DropConnections => {
            for index in fleet.indexes(Whom::Both).await? {
                fleet.proxies[index].drop_connections();
            }
        }
    }
    Ok(())
}
