//! What is asked about the nodes of a large topology is answered page by page, too: no page passes over all nodes more than once.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use sluice_api::job::JobView;
use sluice_engine::metrics::{SCRAPE_PAGE, Scrape};
use sluice_engine::{Accounting, FitSearch, Kind, LargestFits};

use crate::contract::submit;
use crate::model::Cluster;
use crate::topology::{HOSTNAME, bed, in_rack};

const NODES: usize = 2_000;
/// The looks of one pass over them: 32 hosts are one.
const PASS: usize = NODES.div_ceil(32);
/// Shapes that wait, of which each takes a pass.
const SHAPES: i64 = 8;

/// Pods that ask for a rack, and for so much cpu each.
pub fn asking(cpu: i64) -> impl FnOnce(&mut JobView) {
    move |view| {
        in_rack(view);
        let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
        let container = &mut template.spec.as_mut().unwrap().containers[0];
        let requests = container.resources.as_mut().unwrap().requests.as_mut().unwrap();
        requests.insert("cpu".to_owned(), Quantity(cpu.to_string()));
        let spec = template.spec.clone().unwrap();
        view.pod_sets[0].containers_hash = sluice_api::names::containers_hash(&spec);
        view.pod_sets[0].requests_hash = sluice_api::names::requests_hash(&spec);
    }
}

/// Nodes of one cpu and one GPU, and jobs of other shapes that wait for larger ones.
fn large() -> Cluster {
    let mut c = bed(&[]);
    c.checked = false;
    for number in 0..NODES {
        let name = format!("n{number:04}");
        let labels = json!({"pool": "tas", "rack": format!("r{}", number / 50), HOSTNAME: name});
        let ready =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let allocatable = json!({"cpu": "1", "pods": "110", "nvidia.com/gpu": "1"});
        let status = json!({"allocatable": allocatable, "conditions": ready});
        c.api.put(Kind::Node, json!({"metadata": {"name": name, "labels": labels}, "status": status}));
    }
    for shape in 0..SHAPES {
        submit(&mut c, &format!("wide-{shape}"), "lq", 1, asking(2 + shape));
    }
    c
}

#[test]
fn a_page_about_a_large_topology_makes_one_pass_over_its_nodes_at_most() {
    let c = large();
    let most = SCRAPE_PAGE + PASS + 8;
    let mut scrape = Scrape::default();
    let mut pages = 1;
    while !c.engine.scrape(&mut scrape, SCRAPE_PAGE) {
        pages += 1;
    }
    let largest = scrape.largest_page();
    assert!((PASS..=most).contains(&largest), "{largest} looks for a page, {pages} pages");
    let series = |metric: &str| {
        let mut all: Vec<_> = c.engine.metrics_snapshot();
        all.retain(|gauge| gauge.metric == metric);
        all
    };
    let shapes = series("sluice_topology_largest_fit_of_shape");
    assert_eq!((shapes.len(), series("sluice_topology_largest_fit").len()), (8 * 2, 2));
    let gauges: Vec<_> = scrape.into_values().collect();
    assert!(shapes.iter().all(|gauge| gauges.contains(gauge)), "one page says what all say");

    let mut search = FitSearch::new("tas".into());
    let mut steps = 0;
    while !c.engine.search_fits(&mut search) {
        steps += 1;
    }
    assert_eq!(search.largest_step(), PASS, "one pass");
    let (flavor, LargestFits { sizes, shapes }) = search.into_found();
    assert_eq!((&*flavor, sizes.len(), shapes.len()), ("tas", 2, 8 * 2));
    assert_eq!(steps, 8 + 2, "the sizes, what waits, and each shape");
}

#[test]
fn a_page_of_an_account_counts_the_nodes_that_it_looks_at() {
    let c = large();
    let mut accounting = Accounting::new(None, "team-a", "wide-3");
    let mut pages = 1;
    while !c.engine.account_page(&mut accounting, 4) {
        pages += 1;
    }
    assert_eq!((pages, accounting.largest_page()), (3, PASS), "the queue, and a pass over the nodes");
    let account = accounting.into_account(9).unwrap();
    assert_eq!((account.fits.len(), account.fits[0].count), (1, 1));
    assert_eq!(Some(account), c.engine.account(None, "team-a", "wide-3", 9));
}
