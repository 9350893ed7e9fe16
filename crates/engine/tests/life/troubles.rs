//! How soon a user learns of a mistake, such as a queue that is missing, while very many others wait.

use serde_json::json;
use sluice_engine::Purpose;

use super::budget::{cluster, queued, writes};

#[test]
fn a_missing_queue_is_reported_soon_however_many_wait_for_quota() {
    let mut c = cluster("", "0", &json!({}));
    c.busy(true);
    for number in 0..300 {
        queued(&mut c, &format!("w{number:03}"), "lq", "1", 0);
    }
    c.advance(2);
    assert!(c.written(Purpose::Pend) + c.written(Purpose::Bypassed) <= 30, "ten in a second");
    let eve = queued(&mut c, "eve", "nowhere", "1", 0);
    c.advance(1);
    assert_eq!(writes(&c, &eve), [Purpose::Pend], "it does not stand behind those that have waited longer");
}

#[test]
fn reports_about_a_stopped_queue_do_not_delay_one_about_a_missing_queue() {
    let mut c = cluster("", "1", &json!({"stopPolicy": "Hold"}));
    c.busy(true);
    for number in 0..300 {
        queued(&mut c, &format!("w{number:03}"), "lq", "1", 0);
    }
    c.advance(3);
    let written = c.written(Purpose::Pend);
    assert!((30..=60).contains(&written), "{written}: 10 in a second, and as many beside these at first");
    let eve = queued(&mut c, "eve", "nowhere", "1", 0);
    c.advance(1);
    assert_eq!(writes(&c, &eve), [Purpose::Pend]);
}
