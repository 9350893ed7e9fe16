//! The page with 20,000 jobs of 1,000 queues, compared with the same page with few.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sluice_testkit::browser::{Page, Scheme};
use tempfile::TempDir;

use super::outcome::amount;
use super::{can_be_read_in, write_page};
use crate::smooth::{Pace, TABLE, first_paint, is_painted_as_soon, is_soon, scrolled, tries_again};

/// Each width, and each colour scheme: neither changes what the other one does, and smaller pages are looked at in all of both.
const LOOKS: [(u32, Scheme); 3] = [(390, Scheme::Dark), (800, Scheme::Dark), (1280, Scheme::Light)];
/// The most megabytes that scripts hold after a garbage collection.
const MOST_MEGABYTES: f64 = 30.0;

/// `jobs` jobs of `queues` queues.
fn world(queues: usize, jobs: usize) -> String {
    let mut text = String::new();
    for flavor in 0..12 {
        writeln!(text, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: flavor-{flavor}}}\n---").unwrap();
    }
    for queue in 0..queues {
        let flavor = queue % 12;
        writeln!(
            text,
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: team-{queue}}}\n\
             spec: {{cohortName: cohort-{flavor}, namespaceSelector: {{}}, resourceGroups: [{{coveredResources: [cpu], flavors: [\
             {{name: flavor-{flavor}, resources: [{{name: cpu, nominalQuota: 4}}]}}]}}]}}\n---\n\
             apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\n\
             metadata: {{name: main, namespace: team-{queue}}}\nspec: {{clusterQueue: team-{queue}}}\n---"
        )
        .unwrap();
    }
    let queues: Vec<_> =
        (0..queues).map(|queue| format!("{{namespace: team-{queue}, queue: main}}")).collect();
    let container = "{name: main, image: train, resources: {requests: {cpu: 4}}}";
    writeln!(
        text,
        "apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: large}}\nspec:\n  until: 12h\n  arrivals:\n  - name: train\n    \
         every: {{exponential: {{mean: 2s}}}}\n    count: {jobs}\n    runTime: {{uniform: {{min: 2h, max: 5h}}}}\n    queues: [{}]\n    \
         template: {{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{}}, spec: {{podSets: [{{name: main, count: 1, \
         template: {{spec: {{restartPolicy: Never, containers: [{container}]}}}}}}]}}}}",
        queues.join(", ")
    )
    .unwrap();
    text
}

fn page_of(folder: &TempDir, queues: usize, jobs: usize) -> PathBuf {
    let file = folder.path().join("world.yaml");
    fs::write(&file, world(queues, jobs)).unwrap();
    write_page(&file, folder)
}

/// When the page is drawn first, at each try, and how smooth it is.
type Looked = (Vec<f64>, Pace);

/// Looks at a page; again while that is slow beside the page with `little`, if that is known.
async fn looked_at(page: &mut Page, file: &Path, name: &str, little: Option<&Looked>) -> Looked {
    let mut paints = Vec::new();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    while tries_again(paints.len(), little.is_none_or(|(little, _)| is_soon(&paints, little))) {
        page.open(file).await.unwrap();
        paints.push(first_paint(page).await);
    }
    (paints, scrolled(page, name, TABLE, little.map(|(_, pace)| *pace)).await)
}

#[tokio::test]
async fn twenty_thousand_workloads_stay_usable() {
    let folder = tempfile::tempdir().unwrap();
    let mut page = Page::start().await.unwrap();
    let little = page_of(&folder, 10, 100);
    let little = looked_at(&mut page, &little, "little", None).await;
    // More work than a page can draw singly: most of it waits.
    let file = page_of(&folder, 1000, 20_000);
    let seen = can_be_read_in(&LOOKS, &mut page, &file, "large").await;
    let tile = |what: &str| seen.tiles[what].parse::<usize>().unwrap();
    assert_eq!(tile("submitted"), 20_000);
    assert!(tile("admitted") > 500 && tile("waiting at the end") > 10_000, "{:?}", seen.tiles);
    let colours: std::collections::BTreeSet<_> = seen.legend.values().collect();
    assert_eq!((seen.legend.len(), colours.len()), (12, 12));
    // Only the rows that can be seen exist.
    let bars: usize = seen.pictures.iter().map(|picture| picture.bars.len()).sum();
    assert!((1..200).contains(&bars) && seen.elements < 60_000, "{bars} bars, {} elements", seen.elements);
    let much = looked_at(&mut page, &file, "large", Some(&little)).await;
    is_painted_as_soon(&much.0, &little.0, "simulator's page");
    much.1.is_as_smooth_as(little.1, "simulator's page");
    let megabytes = page.figure("JSHeapUsedSize").await.unwrap() / 1e6;
    println!("{} elements, {megabytes:.0} MB of scripts' memory", seen.elements);
    assert!(megabytes < MOST_MEGABYTES, "{megabytes} MB of scripts' memory");
    let depths: Vec<_> = seen.pictures.iter().filter(|picture| picture.title == "Queue depth").collect();
    assert!(depths.len() >= 20, "{}", depths.len());
    for picture in depths {
        // All queues get the same number of jobs, so that at the end most of them wait.
        let most = amount(&picture.labels[0]).0;
        assert!((12..=20).contains(&most), "{}: {most}", picture.queue);
        assert!(!picture.depth.is_empty());
    }
}
