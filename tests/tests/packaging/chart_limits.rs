//! The limits of the manager's container in the chart.

use serde_json::json;
use sluice_testkit::Limits;

use crate::chart::objects;

#[test]
fn tests_under_the_charts_memory_limit_have_that_of_the_chart() {
    let deployment = &objects(&[])["Deployment/kueue-controller-manager"];
    let limit = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"];
    assert_eq!(limit, &json!(format!("{}Mi", Limits::CHART.memory >> 20)));
}
