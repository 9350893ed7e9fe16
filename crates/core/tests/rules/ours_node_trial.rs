//! Nodes outside of a cycle (ours): a trial says what the placement of a cycle would, and changes nothing.

use crate::world::{World, cq, domains, job, key, n, node, q, topology};
use sluice_core::{HOSTNAME, PodsToPlace, RequestedLevel, Scheduler, SharedAssignment, TopologyRequest};

const RACK: &str = "rack";

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn small(&mut self, most: u64) -> i64 {
        i64::try_from(self.below(most)).unwrap()
    }
}

/// Racks of hosts with these numbers of GPUs.
fn world(racks: &[&[i64]]) -> World {
    let mut w = World::new();
    w.core.set_topology(&topology("t", &[RACK, HOSTNAME]));
    w.flavor("default", |spec| spec.topology = Some(n("t")));
    for (rack, hosts) in racks.iter().enumerate() {
        for (host, gpus) in hosts.iter().enumerate() {
            let name = format!("r{rack}h{host}");
            w.core.set_node(&node(&name, &[(RACK, &format!("r{rack}"))], &[("gpu", *gpus)]));
        }
    }
    w.cq(cq("a").quota(q(1_000)));
    w
}

fn submit(w: &mut World, name: &str, pods: i64, level: RequestedLevel) {
    w.submit(job(name, "a").gpu(1).pod(|set| {
        set.count = pods;
        set.topology = Some(TopologyRequest { level, slices: Vec::new() });
    }));
}

fn pods(count: i64) -> [PodsToPlace<'static>; 1] {
    [PodsToPlace { pod_set: 0, flavor: "default", count }]
}

fn shown(found: &[(usize, SharedAssignment)]) -> String {
    found.iter().map(|(_, assignment)| domains(assignment)).collect()
}

fn nodes(core: &Scheduler, name: &str) -> String {
    shown(&core.nodes(&key(name)))
}

#[test]
fn ours_node_trial_finds_the_nodes_that_a_cycle_finds_once_others_are_gone() {
    let mut dice = Dice(17);
    let (mut placed, mut refused) = (0, 0);
    for _ in 0..200 {
        let racks: Vec<Vec<i64>> =
            (0..=dice.below(3)).map(|_| (0..=dice.below(3)).map(|_| dice.small(5)).collect()).collect();
        let mut w = world(&racks.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let levels = [
            RequestedLevel::Required(n(RACK)),
            RequestedLevel::Preferred(n(RACK)),
            RequestedLevel::Unconstrained,
        ];
        let names: Vec<String> = (0..5).map(|one| format!("w{one}")).collect();
        for name in &names {
            let level = levels[usize::try_from(dice.below(3)).unwrap()].clone();
            submit(&mut w, name, 1 + dice.small(4), level);
            w.settle();
        }
        let held: Vec<&String> = names.iter().filter(|name| !w.core.nodes(&key(name)).is_empty()).collect();
        let gone: Vec<&String> = held.into_iter().filter(|_| dice.below(2) == 0).collect();
        let count = 1 + dice.small(8);
        submit(&mut w, "p", count, levels[usize::try_from(dice.below(3)).unwrap()].clone());
        let mut after = w.core.clone();
        let mut trial = w.core.node_trial();
        let before = trial.place(&key("p"), &pods(count)).is_ok();
        let mut trial_again = w.core.node_trial();
        let mark = trial_again.mark();
        for name in &gone {
            trial_again.release(&key(name));
        }
        let found = trial_again.place(&key("p"), &pods(count));
        trial_again.undo(mark);
        assert_eq!(
            trial_again.place(&key("p"), &pods(count)).is_ok(),
            before,
            "what was tried is taken back"
        );
        assert!(w.core.audit().is_ok() && nodes(&w.core, "p").is_empty());
        for name in ["w0", "w1", "w2", "w3", "w4"] {
            let waits = w.core.nodes(&key(name)).is_empty();
            if waits || gone.iter().any(|gone| *gone == name) {
                after.remove_workload(&key(name), w.now());
            }
        }
        w.core = after;
        w.settle();
        let expected = found.as_deref().map_or_else(|_| String::new(), shown);
        assert_eq!(nodes(&w.core, "p"), expected, "{racks:?}");
        *(if found.is_ok() { &mut placed } else { &mut refused }) += 1;
    }
    assert!(placed > 40 && refused > 40, "{placed} placed, {refused} refused");
}

#[test]
fn ours_node_trial_places_one_after_the_other_and_passes_over_closed_nodes() {
    let mut w = world(&[&[2, 2], &[2, 2]]);
    submit(&mut w, "p", 3, RequestedLevel::Required(n(RACK)));
    let mut trial = w.core.node_trial();
    let place = |trial: &mut sluice_core::NodeTrial<'_>| trial.place(&key("p"), &pods(3)).is_ok();
    assert!(place(&mut trial) && place(&mut trial) && !place(&mut trial), "a rack for each");
    let mut trial = w.core.node_trial();
    trial.close("r0h0");
    trial.close("nowhere");
    assert!(place(&mut trial) && !place(&mut trial));
    assert!(w.core.audit().is_ok());
    assert!(w.core.assigns_nodes("default") && !w.core.assigns_nodes("other"));
}

#[test]
fn ours_node_trial_frees_what_pods_take_that_nothing_placed() {
    let mut w = world(&[&[4]]);
    let taken = [(n("gpu"), sluice_core::Amount(3)), (n("pods"), sluice_core::Amount(1))];
    w.core.set_other_usage(&n("r0h0"), &taken);
    submit(&mut w, "p", 2, RequestedLevel::Unconstrained);
    let mut trial = w.core.node_trial();
    assert!(trial.place(&key("p"), &pods(2)).is_err());
    let mark = trial.mark();
    trial.pod_goes("r0h0", &taken, true);
    assert!(trial.place(&key("p"), &pods(2)).is_ok());
    trial.undo(mark);
    assert!(trial.place(&key("p"), &pods(2)).is_err());
    trial.pod_goes("r0h0", &taken, true);
    trial.pod_goes("r0h0", &taken, false);
    assert!(trial.place(&key("p"), &pods(2)).is_err());
}

#[test]
fn ours_node_trial_has_no_room_on_a_closed_node_for_what_leaves_it() {
    let mut w = world(&[&[4]]);
    let taken = [(n("gpu"), sluice_core::Amount(4)), (n("pods"), sluice_core::Amount(1))];
    w.core.set_other_usage(&n("r0h0"), &taken);
    submit(&mut w, "p", 1, RequestedLevel::Unconstrained);
    let mut trial = w.core.node_trial();
    trial.close("r0h0");
    let mark = trial.mark();
    trial.pod_goes("r0h0", &taken, true);
    assert!(trial.place(&key("p"), &pods(1)).is_err());
    trial.undo(mark);
    trial.pod_goes("r0h0", &taken, false);
    trial.pod_goes("r0h0", &taken, true);
    assert!(trial.place(&key("p"), &pods(1)).is_err());
}

#[test]
fn ours_node_trial_gives_nothing_to_what_is_not_known() {
    let w = world(&[&[4]]);
    let mut trial = w.core.node_trial();
    assert_eq!(trial.place(&key("unknown"), &pods(1)), Ok(Vec::new()));
    trial.release(&key("unknown"));
    let mut w = world(&[&[4]]);
    submit(&mut w, "p", 1, RequestedLevel::Unconstrained);
    let beyond = PodsToPlace { pod_set: 7, flavor: "default", count: 1 };
    assert_eq!(w.core.node_trial().place(&key("p"), &[beyond]), Ok(Vec::new()));
    assert!(w.core.node_trial().place(&key("p"), &pods(i64::MAX)).is_err());
}
