//! Slices that move as a whole because they lost a node (not in Kueue).

use super::fixture::{LEVELS, Pods, World, node, pods, show, world, world_of};
use super::random::Random;
use crate::fixtures::n;
use crate::topology::request::Placement;
use crate::topology::{HOSTNAME, NodeSpec, SliceMoves};

/// Two blocks of three racks of two nodes with one cpu each: `a0` and `a1` are in the rack `a`.
fn racks() -> World {
    allowing(world(&[
        ("b0", "a", "a0", 1),
        ("b0", "a", "a1", 1),
        ("b0", "b", "b0", 1),
        ("b0", "b", "b1", 1),
        ("b0", "c", "c0", 1),
        ("b0", "c", "c1", 1),
        ("b1", "d", "d0", 1),
        ("b1", "d", "d1", 1),
        ("b1", "e", "e0", 1),
        ("b1", "e", "e1", 1),
        ("b1", "f", "f0", 1),
        ("b1", "f", "f1", 1),
    ]))
}

fn allowing(mut world: World) -> World {
    world.slice_moves = SliceMoves::Allowed;
    world
}

/// What a lost node makes of pods that run; what their slice has against it.
fn lose(world: &mut World, set: &Pods, running: &[(&str, i64)], lost: &str) -> (String, String) {
    lose_all(world, set, running, &[lost])
}

/// The same for several.
fn lose_all(world: &mut World, set: &Pods, running: &[(&str, i64)], lost: &[&str]) -> (String, String) {
    let used = world.resolve(running);
    world.usage.add(&used);
    let placed = world.place_with(&[set.clone().previous(running)], false, &[], lost);
    world.usage.remove(&used);
    let slice = placed.as_ref().err().and_then(|failure| failure.slice()).unwrap_or_default();
    (show(&placed), slice.to_owned())
}

fn moved(world: &mut World, set: &Pods, running: &[(&str, i64)], lost: &str) -> String {
    let (placed, slice) = lose(world, set, running, lost);
    assert_eq!(slice, "", "{placed}");
    placed
}

/// Slices of two pods in the racks a and b.
const AB: [(&str, i64); 4] = [("a0", 1), ("a1", 1), ("b0", 1), ("b1", 1)];

fn two_slices() -> Pods {
    pods(4).unconstrained().slice("rack", 2)
}

#[test]
fn the_slice_alone_moves_to_another_rack_at_its_ranks() {
    assert_eq!(moved(&mut racks(), &two_slices(), &AB, "a1"), "c0=1 c1=1 b0=1 b1=1");
    assert_eq!(moved(&mut racks(), &two_slices(), &AB, "b0"), "a0=1 a1=1 c0=1 c1=1");
    let mut gone = racks();
    gone.topologies.remove_node(&mut gone.usage, "a1");
    assert_eq!(moved(&mut gone, &two_slices(), &AB, "a1"), "c0=1 c1=1 b0=1 b1=1");
}

#[test]
fn only_the_slice_that_moves_takes_room_from_later_pod_sets() {
    let mut world = racks();
    let used = world.resolve(&AB);
    world.usage.add(&used);
    let placed = world.place_with(&[two_slices().previous(&AB)], false, &[], &["a1"]).expect("it moves");
    let moved = world.resolve(&[("c0", 1), ("c1", 1)]);
    assert_eq!(placed[0].taken(), &moved);
}

#[test]
fn a_slice_that_lost_several_nodes_or_all_moves_alone() {
    let triple = |rack: &str| [0, 1, 2].map(|at| ("b".to_owned(), rack.to_owned(), format!("{rack}{at}"), 1));
    let nodes: Vec<_> = ["a", "b", "c", "d"].iter().flat_map(|rack| triple(rack)).collect();
    let nodes: Vec<_> = nodes.iter().map(|(b, r, n, cpu)| (&**b, &**r, &**n, *cpu)).collect();
    let running = [("a0", 1), ("a1", 1), ("a2", 1), ("b0", 1), ("b1", 1), ("b2", 1)];
    // With five pods the last slice is not whole.
    for count in [6, 5] {
        let set = pods(count).unconstrained().slice("rack", 3);
        let running = &running[..usize::try_from(count).expect("few")];
        let rest = if count == 6 { "b0=1 b1=1 b2=1" } else { "b0=1 b1=1" };
        for lost in [&["a0", "a1"][..], &["a0", "a2"], &["a0", "a1", "a2"]] {
            let (placed, slice) = lose_all(&mut allowing(world(&nodes)), &set, running, lost);
            assert_eq!((placed, slice), (format!("c0=1 c1=1 c2=1 {rest}"), String::new()), "{lost:?}");
        }
    }
}

#[test]
fn where_the_last_slice_is_not_whole_the_others_move_and_it_stays_the_last() {
    let set = pods(3).unconstrained().slice("rack", 2);
    let running = &AB[..3];
    assert_eq!(moved(&mut racks(), &set, running, "a1"), "c0=1 c1=1 b0=1");
    assert!(moved(&mut racks(), &set, running, "b0").starts_with("a0=1 a1=1 "));
    let mut full = racks();
    for node in ["c0", "d0", "e0", "f0"] {
        full.other(node, 1, 1);
    }
    let (_, why) = lose(&mut full, &set, running, "a1");
    assert!(why.contains("doesn't allow to fit any of 1 slice(s)"), "{why}");
}

#[test]
fn the_nearest_domain_with_room_is_taken() {
    let mut world = racks();
    world.other("c0", 1, 1);
    assert_eq!(moved(&mut world, &two_slices(), &AB, "a1"), "d0=1 d1=1 b0=1 b1=1");
}

#[test]
fn a_node_in_the_rack_of_the_slice_comes_first_and_keeps_the_ranks() {
    let mut world = racks();
    world.node(&node("b0", "a", "a9", &[("cpu", 1)]));
    assert_eq!(moved(&mut world, &two_slices(), &AB, "a0"), "a9=1 a1=1 b0=1 b1=1");
    world.slice_moves = SliceMoves::Off;
    assert_eq!(moved(&mut world, &two_slices(), &AB, "a0"), "a1=1 a9=1 b0=1 b1=1", "as Kueue sorts them");
}

#[test]
fn without_leave_nothing_moves() {
    let mut world = racks();
    world.slice_moves = SliceMoves::Off;
    let text = "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 12; excluded: resource \"cpu\": 3, \
                topologyDomain: 9";
    let kueue = |text: &str| text.split(". ").next().unwrap_or_default().to_owned();
    let (placed, slice) = lose(&mut world, &two_slices(), &AB, "a1");
    assert_eq!((kueue(&placed), slice.as_str()), (kueue(text), ""));
    world.slice_moves = SliceMoves::Refused(n("for a reason"));
    let (refused, slice) = lose(&mut world, &two_slices(), &AB, "a1");
    assert_eq!((refused, slice.as_str()), (placed, "for a reason"));
}

#[test]
fn the_required_domain_of_the_job_is_kept() {
    let set = pods(4).required("block").slice("rack", 2);
    assert_eq!(moved(&mut racks(), &set, &AB, "a1"), "c0=1 c1=1 b0=1 b1=1");
    let mut full = racks();
    full.other("c0", 1, 1);
    let (_, slice) = lose(&mut full, &set, &AB, "a1");
    assert!(slice.starts_with("topology \"default\" doesn't allow to fit any of 1 slice(s)"), "{slice}");
    let set = pods(2).required("rack").slice("rack", 2);
    let (_, slice) = lose(&mut racks(), &set, &AB[..2], "a1");
    assert_eq!(slice, "it has to stay in its domain of the level rack");
}

#[test]
fn only_slices_that_the_loss_leaves_incomplete_move_and_nothing_without_slices_does() {
    let (_, slice) = lose(&mut racks(), &pods(2).required("rack"), &AB[..2], "a1");
    assert_eq!(slice, "");
    // The lost node had a whole slice: that is placed again as ever.
    let set = pods(2).unconstrained().slice(HOSTNAME, 1);
    assert_eq!(moved(&mut racks(), &set, &[("a0", 1), ("b0", 1)], "a0"), "a1=1 b0=1");
}

#[test]
fn pod_sets_that_are_placed_together_stay_together() {
    let grouped = |set: Pods| set.with(|spec| spec.group = Some(n("g")));
    let (_, slice) = lose(&mut racks(), &grouped(two_slices()), &AB, "a1");
    assert_eq!(slice, "its pod set is placed together with another one");
    let set = grouped(pods(4).required("block").slice("rack", 2));
    assert_eq!(moved(&mut racks(), &set, &AB, "a1"), "c0=1 c1=1 b0=1 b1=1");
}

#[test]
fn a_slice_that_lost_all_its_nodes_goes_where_one_that_lost_some_would_go() {
    let lost = ["a0", "a1"];
    let grouped = |set: Pods| set.with(|spec| spec.group = Some(n("g")));
    // Of two layers the inner slice is lost whole, and the outer one has pods left.
    for set in [two_slices(), pods(4).unconstrained().slice("block", 4).slice("rack", 2)] {
        let (placed, slice) = lose_all(&mut racks(), &grouped(set), &AB, &lost);
        let text = "cannot find replacement assignment for unhealthy node: a0";
        assert_eq!((&*placed, &*slice), (text, "its pod set is placed together with another one"));
    }
    let set = grouped(pods(4).required("block").slice("rack", 2));
    let (placed, slice) = lose_all(&mut racks(), &set, &AB, &lost);
    assert_eq!((&*placed, &*slice), ("c0=1 c1=1 b0=1 b1=1", ""));
    let mut world = racks();
    world.slice_moves = SliceMoves::Refused(n("for a reason"));
    let (_, slice) = lose_all(&mut world, &two_slices(), &AB, &lost);
    assert_eq!(slice, "for a reason");
    // A single node that had a whole slice is replaced as ever.
    let set = grouped(pods(2).unconstrained().slice(HOSTNAME, 1));
    let (placed, slice) = lose_all(&mut world, &set, &[("a0", 1), ("b0", 1)], &["a0"]);
    assert_eq!((&*placed, &*slice), ("a1=1 b0=1", ""));
}

#[test]
fn nodes_that_take_no_pods_move_with_their_slice_and_those_of_other_slices_prevent_it() {
    let triple = |rack: &str| (0..3).map(|at| format!("{rack}{at}")).collect::<Vec<_>>();
    let names: Vec<String> = ["a", "b", "c"].iter().flat_map(|rack| triple(rack)).collect();
    let nodes: Vec<_> = names.iter().map(|name| ("b", &name[..1], &**name, 1)).collect();
    let running = [("a0", 1), ("a1", 1), ("a2", 1), ("b0", 1), ("b1", 1), ("b2", 1)];
    let closed = |names: &[&str]| {
        let mut w = allowing(world(&nodes));
        for name in names {
            w.node(&NodeSpec { usable: false, ..node("b", &name[..1], name, &[("cpu", 1)]) });
        }
        w
    };
    let set = || pods(6).unconstrained().slice("rack", 3);
    for names in [&["a0"][..], &["a0", "a2"]] {
        assert_eq!(moved(&mut closed(names), &set(), &running, "a1"), "c0=1 c1=1 c2=1 b0=1 b1=1 b2=1");
    }
    let mut gone = closed(&["a2"]);
    gone.topologies.remove_node(&mut gone.usage, "a0");
    assert_eq!(moved(&mut gone, &set(), &running, "a1"), "c0=1 c1=1 c2=1 b0=1 b1=1 b2=1");
    // Nodes of the rack come first.
    let mut spare = closed(&["a0"]);
    for name in ["a8", "a9"] {
        spare.node(&node("b", "a", name, &[("cpu", 1)]));
    }
    assert_eq!(moved(&mut spare, &set(), &running, "a1"), "a8=1 a9=1 a2=1 b0=1 b1=1 b2=1");
    let text = |stale: &str| {
        format!(
            "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {stale}"
        )
    };
    for (names, stale) in [(&["b0"][..], "b0"), (&["a0", "b2"], "a0")] {
        let (placed, slice) = lose(&mut closed(names), &set(), &running, "a1");
        assert_eq!((placed, &*slice), (text(stale), ""));
    }
    for (moves, why) in [(SliceMoves::Off, ""), (SliceMoves::Refused(n("for a reason")), "for a reason")] {
        let mut w = closed(&["a0"]);
        w.slice_moves = moves;
        let (placed, slice) = lose(&mut w, &set(), &running, "a1");
        assert_eq!((placed, &*slice), (text("a0"), why));
    }
    // Without slices nothing moves.
    let (placed, slice) = lose(&mut closed(&["a0"]), &pods(6).unconstrained(), &running, "a1");
    assert_eq!((placed, &*slice), (text("a0"), ""));
}

#[test]
fn a_lost_node_with_pods_of_two_slices_moves_both() {
    let mut world = allowing(world(&[
        ("b", "a", "a0", 1),
        ("b", "a", "a1", 2),
        ("b", "a", "a2", 1),
        ("b", "b", "b0", 4),
        ("b", "c", "c0", 2),
        ("b", "d", "d0", 2),
    ]));
    // Both lose one pod, so that the racks c and d are as good as the rack b.
    let running = [("a0", 1), ("a1", 2), ("a2", 1), ("b0", 2)];
    let set = || pods(6).unconstrained().slice("rack", 2);
    // Two lost pods are a slice by number, which Kueue places as one: not on b0, whose ranks would not be in a row.
    assert_eq!(moved(&mut world, &set(), &running, "a1"), "a0=1 c0=2 a2=1 b0=2");
    let running = [("a0", 1), ("a1", 3), ("b0", 4)];
    let set = pods(8).unconstrained().slice("rack", 2);
    world.node(&node("b", "a", "a1", &[("cpu", 3)]));
    assert_eq!(moved(&mut world, &set, &running, "a1"), "c0=2 d0=2 b0=4");
}

#[test]
fn of_two_layers_the_inner_slice_moves_within_the_outer_one_if_it_can() {
    let set = || pods(4).unconstrained().slice("block", 4).slice("rack", 2);
    assert_eq!(moved(&mut racks(), &set(), &AB, "a1"), "c0=1 c1=1 b0=1 b1=1");
    let mut full = racks();
    full.other("c0", 1, 1);
    assert_eq!(moved(&mut full, &set(), &AB, "a1"), "d0=1 d1=1 e0=1 e1=1", "the outer one moves");
    full.other("d0", 1, 1);
    full.other("e0", 1, 1);
    let (_, slice) = lose(&mut full, &set(), &AB, "a1");
    let text = "topology \"default\" doesn't allow to fit; 0/1 slice(s) fit on level block; 0/2 slice(s) fit on level rack";
    assert!(slice.starts_with(text), "{slice}");
}

#[test]
fn no_node_gets_ranks_that_are_not_in_a_row() {
    let mut world = allowing(world(&[
        ("b", "a", "a0", 1),
        ("b", "a", "a1", 1),
        ("b", "b", "b0", 2),
        ("b", "c", "c0", 4),
        ("b", "d", "d0", 2),
    ]));
    let running = [("a0", 1), ("a1", 1), ("b0", 2), ("c0", 2)];
    let set = pods(6).unconstrained().slice("rack", 2);
    assert_eq!(moved(&mut world, &set, &running, "a1"), "d0=2 b0=2 c0=2");
    world.other("d0", 1, 1);
    let (_, slice) = lose(&mut world, &set, &running, "a1");
    assert!(slice.starts_with("topology \"default\" doesn't allow to fit any of 1 slice(s)"), "{slice}");
}

#[test]
fn a_replacement_is_a_node_whose_ranks_are_in_a_row_if_there_is_one() {
    let nodes = [("b", "a", "a0", 1), ("b", "a", "a1", 1), ("b", "a", "a2", 3), ("b", "a", "a3", 1)];
    let set = pods(4).unconstrained().slice("rack", 2);
    let running = [("a0", 1), ("a1", 1), ("a2", 2)];
    let mut world = allowing(world(&nodes));
    assert_eq!(moved(&mut world, &set, &running, "a0"), "a3=1 a1=1 a2=2");
    // Without another one the pods run all the same.
    world.other("a3", 1, 1);
    assert_eq!(moved(&mut world, &set, &running, "a0"), "a1=1 a2=3");
    world.slice_moves = SliceMoves::Off;
    world.other("a3", 0, 0);
    assert_eq!(moved(&mut world, &set, &running, "a0"), "a1=1 a2=3", "the tightest place");
}

#[test]
fn pods_that_are_not_in_whole_slices_stay() {
    let set = pods(4).unconstrained().slice("rack", 2);
    let (_, slice) = lose(&mut racks(), &set, &[("a0", 1), ("b0", 1), ("a1", 1), ("b1", 1)], "a1");
    assert_eq!(slice, "its pods are not in whole slices of the level rack");
}

/// The host of each rank.
fn by_rank(rows: &[(String, i64)]) -> Vec<&str> {
    rows.iter().flat_map(|(host, count)| (0..*count).map(|_| &**host)).collect()
}

fn rows(placed: &Placement) -> Vec<(String, i64)> {
    placed[0].assignment.domains.iter().map(|one| (one.values[0].to_string(), one.count)).collect()
}

fn rack(host: &str) -> &str {
    host.split('-').next().unwrap_or_default()
}

/// How many of these are on a host.
fn on(ranks: &[&str], host: &str) -> i64 {
    i64::try_from(ranks.iter().filter(|other| **other == host).count()).expect("few")
}

/// A job of slices loses a node of a random world, where others took what was free: whether slices of it moved.
fn random_loss(random: &mut Random) -> bool {
    let mut w = allowing(world_of(&LEVELS));
    let mut cpus: Vec<(String, i64)> = Vec::new();
    for at in 0..2 + random.below(6) {
        for number in 0..=random.below(4) {
            let (name, cpu) = (format!("r{at}-{number}"), 1 + random.below(3));
            w.node(&node(&format!("b{}", at % 2), &format!("r{at}"), &name, &[("cpu", cpu)]));
            cpus.push((name, cpu));
        }
    }
    let size = 2 + random.below(2);
    let set = pods(size * (1 + random.below(4)));
    let required = random.one_in(2);
    let set = if required { set.required("block") } else { set.unconstrained() }.slice("rack", size);
    let Ok(first) = w.place(&set) else { return false };
    w.usage.add(&first[0].pods);
    let before = rows(&first);
    let old = by_rank(&before);
    for (name, cpu) in &mut cpus {
        *cpu -= on(&old, name);
        let other = random.below(3).min(*cpu);
        w.other(name, other, other);
        *cpu -= other;
    }
    let lost = old[usize::try_from(random.below(i64::try_from(old.len()).expect("few"))).expect("small")];
    let running: Vec<(&str, i64)> = before.iter().map(|(host, count)| (&**host, *count)).collect();
    let Ok(placed) = w.place_with(&[set.previous(&running)], false, &[], &[lost]) else { return false };
    let after = rows(&placed);
    let new = by_rank(&after);
    assert_eq!((new.len(), on(&new, lost)), (old.len(), 0));
    for (name, free) in &cpus {
        assert!(on(&new, name) <= on(&old, name) + free, "{name} has no room for {new:?}");
    }
    let block = |host: &str| rack(host).ends_with(['0', '2', '4', '6']);
    assert!(!required || new.iter().all(|host| block(host) == block(new[0])), "{old:?} {new:?}");
    if old.iter().all(|host| *host == lost || on(&new, host) >= on(&old, host)) {
        return false;
    }
    let slice = usize::try_from(size).expect("small");
    for (old, new) in old.chunks(slice).zip(new.chunks(slice)) {
        if old.contains(&lost) {
            assert!(new.iter().all(|host| rack(host) == rack(new[0])), "{new:?}");
            assert_ne!(rack(new[0]), rack(old[0]));
        } else {
            assert_eq!(old, new, "these did not lose a node");
        }
    }
    true
}

#[test]
fn what_moves_is_whole_and_fits_and_all_else_keeps_its_ranks_and_its_nodes() {
    let moved = (0..3_000).filter(|seed| random_loss(&mut Random::new(*seed))).count();
    assert!(moved > 100, "only {moved} of the worlds have slices that move");
}
