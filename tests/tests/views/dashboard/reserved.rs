//! Quota that is held before the admission, in the view Report.

use serde_json::Value;
use sluice_testkit::assets;
use sluice_testkit::browser::{PATIENCE, PAUSE, Scheme};

use super::mock::{Fault, serve};
use super::{go, open_file, opened, shows};
use crate::browser::simulate;

/// Of each reservation that is drawn, the class of what comes after it in its row.
const RESERVED: &str = "(async () => {
    const until = performance.now() + PATIENCE;
    while (performance.now() < until && !document.querySelector('.row .reserved')) await PAUSE;
    return [...document.querySelectorAll('.row .reserved')].map((one) => one.nextElementSibling?.getAttribute('class') ?? null);
})()";

/// A job that has quota and waits for its checks is drawn so, as on the simulator's own page.
#[tokio::test]
async fn a_report_shows_who_has_quota_and_waits_for_checks() {
    let world = assets::workspace().join("examples/simulate/dws.yaml");
    let report: Value = serde_json::from_str(&simulate(&world, "json")).unwrap();
    let lines = report["timeline"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["event"] == "reserved"), "{report}");
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    go(&mut page, "report", "side by side").await;
    page.run(&open_file(&report)).await.unwrap();
    shows(&mut page, "jobs").await;
    // A reservation is drawn before each bar that waited for it, and its tip says when it began.
    let script = RESERVED.replace("PATIENCE", &PATIENCE.as_millis().to_string()).replace("PAUSE", PAUSE);
    let drawn = page.run(&script).await.unwrap();
    let drawn = drawn.as_array().unwrap();
    assert!(!drawn.is_empty(), "no reservation is drawn");
    for end in drawn {
        assert_ne!(
            *end,
            Value::Null,
            "after a reservation comes a bar, or a sign that it was lost: {drawn:?}"
        );
    }
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}
