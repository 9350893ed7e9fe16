//! The output of whole simulations: the scenarios of `examples/simulate` as text, as a page, and with their what-if.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

#[path = "../../sim/tests/worlds/mod.rs"]
mod worlds;

use sluice_ctl::{html, table};
use sluice_sim::{Manifests, Options, prepare, whatif};
use worlds::{example, options, report, run};

#[test]
fn a_small_world_reads_as_it_always_did() {
    let simulation = run("tpu-preemption.yaml");
    insta::assert_snapshot!(table::report(&report(&simulation), None));
}

#[test]
fn a_submitted_job_says_its_priority_and_queue() {
    let lines = serde_json::to_value(report(&run("tpu-preemption.yaml")).timeline).unwrap();
    let lines = lines.as_array().unwrap();
    let reported: Vec<_> = lines.iter().filter(|line| line["priority"].is_i64()).collect();
    assert!(
        reported.iter().all(|line| line["event"] == "submitted" && line["clusterQueue"] == "cluster-queue")
    );
    let mut priorities: Vec<_> = reported.iter().map(|line| line["priority"].as_i64().unwrap()).collect();
    priorities.sort_unstable();
    assert_eq!(priorities, [100, 1000], "{lines:?}");
}

#[test]
fn a_changed_quota_is_compared_with_the_future_without_it() {
    let (base, files) = example("arrivals.yaml");
    let mut changed = base.clone();
    let mut queue = base.objects.iter().find(|m| m.object["metadata"]["name"] == "team-b").unwrap().clone();
    let queue_object = base
        .objects
        .iter()
        .find(|m| m.object["kind"] == "ClusterQueue" && m.object["metadata"]["name"] == "team-b");
    queue.clone_from(queue_object.unwrap());
    queue.object["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 8.into();
    changed.objects = whatif::overlay(changed.objects, vec![queue]);
    let play = |manifests: &Manifests| {
        let options = Options { audit: false, ..options(manifests) };
        let mut simulation = prepare(manifests, &files, options).unwrap();
        simulation.run(|_| {}).unwrap();
        simulation
    };
    let (before, after) = (play(&base), play(&changed));
    let same = whatif::Difference::new(before.record(), before.lasted(), before.record(), before.lasted(), 0);
    assert!(same.moved.is_empty() && same.queues.is_empty() && same.flavors.is_empty());
    let difference =
        whatif::Difference::new(before.record(), before.lasted(), after.record(), after.lasted(), 0);
    let later = difference.moved.iter().filter(|m| m.job.starts_with("team-b/")).count();
    let text = table::difference(&difference);
    assert!(later > 0 && text.contains("later"), "{text}");
    let futures = [&before, &after].map(|one| (one.record(), one.lasted()));
    let page = html::compared(futures, &difference, 0).unwrap();
    assert_eq!(page.matches("data-schedule=\"").count(), 2);
    let words = difference.words();
    assert!(words.iter().any(|sentence| sentence.contains("later")), "{words:?}");
    assert!(words.iter().all(|sentence| page.contains(sentence)), "{words:?}");
}

#[test]
fn the_page_needs_no_network_and_stays_small() {
    let simulation = run("arrivals.yaml");
    let page =
        html::page(html::Subject::Simulation, simulation.record(), &report(&simulation), simulation.lasted())
            .unwrap();
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(page.contains("preempted") && page.contains("Queue depth"));
}
