//! Asks the manager of the shared plane about a job, and follows its advice.

use sluice_testkit::workloads;
use sluice_tests::place::Place;

use super::*;
use crate::bed::bed;

/// The answer about a Job, once it has these findings and no others, in the order of their names.
pub async fn found(place: &Place<'_>, job: &str, codes: &[&str]) -> Value {
    found_and(place, job, codes, "").await
}

/// The same once it says that somewhere.
pub async fn found_and(place: &Place<'_>, job: &str, codes: &[&str], said: &str) -> Value {
    let path = format!("/debug/explain/{}/{job}?kind=job&output=json", place.name);
    let found = std::sync::Mutex::new(Value::Null);
    eventually(&format!("{}/{job} to be found {codes:?}", place.name), DEADLINE, || async {
        let (_, page) = bed().await.manager.health(&path).await?;
        let answer: Value = serde_json::from_str(&page).unwrap_or_default();
        let mut seen: Vec<&str> =
            answer["findings"].as_array().into_iter().flatten().filter_map(|f| f["code"].as_str()).collect();
        seen.sort_unstable();
        let there = answer["findings"].is_array() && seen == codes && page.contains(said);
        *found.lock().unwrap() = answer;
        Ok(progress(there, page))
    })
    .await
    .unwrap();
    found.into_inner().unwrap()
}

/// The remedy of an answer that begins so.
pub fn remedy<'a>(answer: &'a Value, begins: &str) -> &'a Value {
    let mut all = answer["remedies"].as_array().into_iter().flatten();
    let one = all.find(|remedy| remedy["text"].as_str().is_some_and(|text| text.starts_with(begins)));
    one.unwrap_or_else(|| unreachable!("no remedy begins with {begins:?}: {answer:#}"))
}

/// Runs the command of a remedy as a user would; what it prints. The plugin asks the manager of the plane.
pub async fn follow(place: &Place<'_>, remedy: &Value) -> String {
    let command = remedy["command"].as_str().unwrap_or_else(|| unreachable!("no command: {remedy}"));
    let mut printed = String::new();
    for one in command.split(" && ") {
        let words: Vec<&str> = one.split(' ').collect();
        printed += &match words[..] {
            ["kubectl", "kueue", "explain", ..] => {
                let url = format!("http://127.0.0.1:{}", bed().await.manager.setup().health);
                ask(place, &[&words[2..], &["-o", "json", "--manager-url", &url]].concat()).await
            }
            ["kubectl", "kueue", ..] => ask(place, &words[2..]).await,
            ["kubectl", ..] => kubectl(place.plane, &words[1..]).await.unwrap(),
            _ => unreachable!("a command for another program: {command}"),
        };
    }
    printed
}

async fn ask(place: &Place<'_>, args: &[&str]) -> String {
    let kubeconfig = place.plane.kubeconfig_path().display().to_string();
    let args: Vec<String> =
        args.iter().copied().chain(["--kubeconfig", &kubeconfig]).map(str::to_owned).collect();
    let ran = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        text(&run(&plugin().unwrap(), &args))
    });
    ran.await.unwrap()
}

/// Waits until `count` pods of a Job run.
pub async fn wait_for_pods(place: &Place<'_>, job: &str, count: usize) {
    eventually(&format!("{count} pods of {}/{job} to run", place.name), DEADLINE, || async {
        let pods = place.pods_with(&format!("batch.kubernetes.io/job-name={job}")).await?;
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        let reported = workloads::of_job(&place.client, &place.name, job).await?.unwrap_or_default();
        Ok(progress(running == count, format!("{running} run; {}", reported["status"]["conditions"])))
    })
    .await
    .unwrap();
}
