//! Requests that no honest job has.

use serde_json::{Value, json};

use super::bed::{OWN, SHARED, attack, refused, tenant};

/// What a container asks for, and what becomes of a job of three such pods in a queue of two processors.
const CASES: [(&str, &str, End); 12] = [
    ("most", "9223372036854775807", End::NeverRuns),
    ("most-in-thousandths", "9223372036854775807m", End::NeverRuns),
    ("half", "4611686018427387904", End::NeverRuns),
    ("exa", "9E", End::NeverRuns),
    ("exponent", "1e30", End::NeverRuns),
    ("binary", "8Ei", End::NeverRuns),
    ("negative", "-1", End::Refused),
    ("garbage", "1x", End::Refused),
    ("nothing", "0", End::Runs),
    ("nano", "1n", End::Runs),
    ("tenth-of-a-thousandth", "0.1m", End::Runs),
    ("not-a-whole-thousandth", "100.5m", End::Runs),
];

#[derive(Clone, Copy, PartialEq)]
enum End {
    Refused,
    NeverRuns,
    Runs,
}

fn job(name: &str, queue: &str, request: &Value) -> Value {
    let mut job = attack(name, queue);
    job["spec"]["parallelism"] = json!(3);
    job["spec"]["completions"] = json!(3);
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": request}});
    job
}

pub async fn odd_quantities_are_refused_or_wait_or_count() {
    let tenant = tenant("quantities").await;
    for (name, request, end) in CASES {
        let made = tenant.make(&job(name, OWN, &json!(request))).await;
        if end == End::Refused {
            assert!(refused(made), "{name}");
            continue;
        }
        // The API server itself may think that it is too much.
        if refused(made) {
            assert!(end == End::NeverRuns, "{name}");
            continue;
        }
        if end == End::Runs {
            tenant.place.wait_until(name, true).await.unwrap();
        } else {
            // It says why it waits, and nothing is tried without end.
            tenant.place.wait_for_condition(name, "QuotaReserved", "False").await.unwrap();
            drop(tenant.patch(name, json!({"spec": {"suspend": false}})).await);
        }
    }
    // Whatever is asked for, a pod in a full queue waits.
    let mut shared = job("shared", SHARED, &json!("1n"));
    shared["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1n"});
    tenant.make(&shared).await.unwrap();
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
}
