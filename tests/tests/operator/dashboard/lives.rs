//! The life of a Workload in a real browser: of attempts that are over, too, of which its object says nothing any more.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_testkit::ControlPlane;
use sluice_testkit::browser::{PAUSE, Page, Scheme};
use sluice_testkit::wait::{Progress, eventually};
use sluice_tests::place::{DEADLINE, Place};

use super::page::{go, is_own_and_quiet};

/// A job whose pods were ready is preempted, and runs again: its life has both.
pub async fn an_attempt_that_is_over(address: &str, token: &str, plane: &ControlPlane) {
    let team = Place::bare(plane, "dash-p").await.unwrap();
    team.flavor("dash-p").await.unwrap();
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    team.cluster_queue("dash-p", 1, &preempts).await.unwrap();
    team.local_queue("lq", "dash-p").await.unwrap();
    team.job("first", "lq", 1).await.unwrap();
    runs(&team).await;
    team.make_urgent("dash-urgent", 1).await.unwrap();
    team.wait_until("urgent", true).await.unwrap();
    team.wait_for_condition("first", "PodsReady", "False").await.unwrap();
    team.wait_for_condition("first", "QuotaReserved", "False").await.unwrap();

    let workload = team.workload("first").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let mut page = Page::start().await.unwrap();
    page.take_any_certificate().await.unwrap();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    page.visit(&format!("{address}/#key={token}")).await.unwrap();
    page.wait_for_text("live").await.unwrap();
    go(&mut page, &format!("workload/dash-p/{name}"), &["Its life", "preempted", "waiting"]).await;
    let steps = lived(&mut page).await;
    let first = ["queued", "reserved", "admitted", "started", "preempted"];
    assert_eq!(steps.iter().filter(|step| first.contains(&step.as_str())).collect::<Vec<_>>(), first);

    team.delete_job("urgent").await.unwrap();
    runs(&team).await;
    // The page hears of it without being touched.
    let both = "(async () => {
        const until = performance.now() + 180000;
        while ([...document.querySelectorAll('ol.events .what')].filter((one) => one.textContent === 'started').length < 2) {
            if (performance.now() > until) return document.body.innerText.slice(0, 2000);
            await PAUSE;
        }
        return true;
    })()";
    assert_eq!(page.run(&both.replace("PAUSE", PAUSE)).await.unwrap(), true);
    let steps = lived(&mut page).await;
    let again = [&first[..], &first[1..4]].concat();
    assert_eq!(steps.iter().filter(|step| first.contains(&step.as_str())).collect::<Vec<_>>(), again);
    is_own_and_quiet(&page, address);
}

/// Says of the pod of the job what a kubelet would, once there is one.
async fn runs(team: &Place<'_>) {
    team.wait_until("first", true).await.unwrap();
    let pod = eventually("the pod of the job", DEADLINE, || async {
        let pods = team.pods_with("job-name=first").await?;
        let pod = pods.into_iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pod.map_or_else(|| Progress::NotYet("none".to_owned()), Progress::Done))
    });
    let pod = pod.await.unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let name = pod["metadata"]["name"].as_str().unwrap();
    team.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    team.wait_for_condition("first", "PodsReady", "True").await.unwrap();
}

/// The words of the life that is shown.
async fn lived(page: &mut Page) -> Vec<String> {
    let words = page.run("[...document.querySelectorAll('ol.events .what')].map((one) => one.textContent)");
    serde_json::from_value(words.await.unwrap()).unwrap()
}
