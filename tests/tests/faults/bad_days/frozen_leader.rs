//! A leader that stands still while another takes over, and comes back: it has not heard of that, and must not write what it decides now.

use std::time::Duration;

use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{Disruption, FaultProxy, Harm, Manager, chart};
use sluice_tests::place::{DEADLINE, Place};

use super::{SERVICE_ACCOUNT, audit, bed, start};

async fn leads(manager: &Manager) {
    eventually("the manager to lead", DEADLINE, || async {
        let (_, text) = manager.health("/readyz").await?;
        Ok(progress(text.contains("leadership ok (leading)"), text))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_leader_that_comes_back_writes_nothing_before_it_has_asked_whether_it_leads() {
    let (bed, _guard) = bed().await;
    let proxy = FaultProxy::start(bed.plane).await.unwrap();
    let kubeconfig =
        bed.plane.kubeconfig_through(&proxy.url(), chart::NAMESPACE, SERVICE_ACCOUNT).await.unwrap();
    // Webhooks are the other one's.
    let setup = bed.setup.replica().unwrap().acting_as(kubeconfig);
    let mut frozen = Manager::start(bed.plane, setup).await.unwrap();
    leads(&frozen).await;
    let awake = start(bed.setup.clone()).await;
    let place = Place::new(bed.plane, "frozen", 3).await.unwrap();
    place.job("before", "lq", 1).await.unwrap();
    place.wait_until("before", true).await.unwrap();
    audit(&frozen).await;

    // It is frozen while it renews its lease, so that the answer may be the first that it hears.
    let (slow, period) = (Harm::SlowLease(Duration::from_millis(600)), Duration::from_mins(3));
    proxy.disrupt(Disruption { harm: slow, one_in: 1, period });
    let renewals = proxy.harmed();
    while proxy.harmed() == renewals {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    frozen.pause().unwrap();
    leads(&awake).await;
    // What it will see first is work to do: it knows neither these Jobs nor that they have their Workloads.
    let names: Vec<_> = (0..8).map(|number| format!("meanwhile-{number}")).collect();
    for name in &names {
        place.job(name, "lq", 1).await.unwrap();
    }
    for name in &names[..2] {
        place.wait_until(name, true).await.unwrap();
    }
    let asked = proxy.asked();
    frozen.resume().unwrap();
    eventually("the manager to follow", DEADLINE, || async {
        let log = frozen.log()?;
        Ok(progress(log.contains("leadership is lost"), frozen.log_tail(3)))
    })
    .await
    .unwrap();
    proxy.heal();
    assert_eq!(proxy.asked() - asked, 0, "{}", frozen.log_tail(20));

    // It leads again when its turn has come, and writes.
    awake.stop().await.unwrap();
    leads(&frozen).await;
    for name in &names[..2] {
        place.delete_job(name).await.unwrap();
    }
    eventually("it to write", DEADLINE, || async { Ok(progress(proxy.asked() > asked, "nothing")) })
        .await
        .unwrap();
    frozen.stop().await.unwrap();
}
