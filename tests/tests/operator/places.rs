//! A waiting job starts where its user allows it at that time.

use serde_json::json;
use sluice_tests::place::{job, reported};

use crate::flavors::{POOL, flavors, of_flavor, of_nodes, two_flavors};

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_that_its_user_sends_to_another_flavor_starts_there() {
    let place = two_flavors("places", [0, 4]).await;
    let [old, new] = flavors("places");
    let mut waiting = job("first", "lq", 1, 1, 600);
    waiting["spec"]["template"]["spec"]["nodeSelector"] = json!({POOL: old});
    place.make_job(&waiting).await.unwrap();
    place.wait_for_condition("first", "QuotaReserved", "False").await.unwrap();
    assert!(place.suspended("first").await.unwrap());
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {POOL: new}}}}});
    place.patch_job("first", selector).await.unwrap();
    place.wait_until("first", true).await.unwrap();
    let started = place.jobs().get("first").await.unwrap();
    assert_eq!(of_nodes(started.spec.unwrap().template.spec.unwrap()), of_flavor(Some(&new)));
    let workload = place.workload("first").await.unwrap();
    assert!(reported(&workload, "Admitted").starts_with("True"), "{workload}");
    assert_eq!(reported(&workload, "Finished"), "nothing");
}
