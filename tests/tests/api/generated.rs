//! Thousands of generated Workloads, valid and broken, in both versions, through a real API server and the manager's webhooks: the valid ones are
//! accepted, each broken one is refused with a message that names the error.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod workloads;

use std::fmt::Write as _;

use futures::StreamExt as _;
use http::Request;
use kube::{Client, Error};
use serde_json::Value;
use sluice_api::conversion::{Version, convert};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{Manager, crds};
use sluice_tests::place::DEADLINE;

use crate::bed::reviewed;
use workloads::{BREAKERS, Random, valid};

/// How many of each sort.
const COUNT: u64 = 1_000;

struct Case {
    seed: u64,
    object: Value,
    /// What the refusal names; nothing is refused without.
    names: Option<&'static str>,
}

/// Every other one in v1beta1, where that can say it.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for seed in 0..COUNT {
        let object = valid(&mut Random(seed));
        cases.push(Case { seed, object: in_version(object, seed % 2 == 0), names: None });
        let breaker = &BREAKERS[usize::try_from(seed).unwrap() % BREAKERS.len()];
        let older = breaker.older && (seed / BREAKERS.len() as u64).is_multiple_of(2);
        let mut object = in_version(valid(&mut Random(!seed)), older);
        (breaker.apply)(&mut object);
        cases.push(Case { seed, object, names: Some(breaker.names) });
    }
    cases
}

fn in_version(mut object: Value, older: bool) -> Value {
    if older {
        convert(&mut object, Version::V1beta1).unwrap();
    }
    object
}

/// Creates strictly, as kubectl does, without keeping anything.
async fn create(client: &Client, object: &Value) -> kube::Result<Value> {
    let version = object["apiVersion"].as_str().unwrap();
    let uri = format!("/apis/{version}/namespaces/default/workloads?dryRun=All&fieldValidation=Strict");
    let request = Request::post(uri).header("content-type", "application/json");
    client.request(request.body(object.to_string().into_bytes()).unwrap()).await
}

/// What is wrong with the answer, if anything.
async fn verdict(client: &Client, case: &Case) -> Option<String> {
    let what = format!("seed {} of {}", case.seed, case.object["apiVersion"]);
    match (create(client, &case.object).await, case.names) {
        (Ok(_), None) => None,
        (Ok(_), Some(names)) => Some(format!("{what}: should be refused: {names}: {}", case.object)),
        (Err(Error::Api(status)), Some(names)) if [400, 403, 422].contains(&status.code) => {
            (!status.message.contains(names))
                .then(|| format!("{what}: does not say {names:?}: {}", status.message))
        }
        (Err(error), _) => Some(format!("{what}: {error}: {}", case.object)),
    }
}

#[tokio::test]
async fn generated_workloads_are_accepted_and_broken_ones_get_the_error() {
    let (_turn, plane, setup) = reviewed().await;
    let manager = Manager::start(plane, setup).await.unwrap();
    let client = plane.client().await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    let sample = in_version(valid(&mut Random(0)), true);
    eventually("the webhooks to answer", DEADLINE, || async {
        let answer = create(&client, &sample).await;
        Ok(progress(answer.is_ok(), format!("{answer:?}")))
    })
    .await
    .unwrap();

    let cases = cases();
    let mut verdicts = futures::stream::iter(&cases).map(|case| verdict(&client, case)).buffer_unordered(8);
    let (mut report, mut wrong) = (String::new(), 0);
    while let Some(verdict) = verdicts.next().await {
        if let Some(verdict) = verdict {
            wrong += 1;
            if wrong <= 20 {
                writeln!(report, "{verdict}").unwrap();
            }
        }
    }
    println!("{} Workloads", cases.len());
    assert_eq!(wrong, 0, "{report}");
    drop(verdicts);
    manager.stop().await.unwrap();
}
