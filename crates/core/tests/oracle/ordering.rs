//! The order in which a cycle processes its entries (6.5): by sort, or by tournament under fair sharing.

use super::cycle::Nominee;
use super::quota::Node;
use super::share::{Share, share};
use super::snapshot::{Snapshot, queue};
use super::world::Name;
use sluice_quantity::Amount;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// Lower borrowing height; higher priority; older.
pub fn sort(nominees: &mut [Nominee]) {
    nominees.sort_by_key(|nominee| {
        let workload = &nominee.workload;
        (
            nominee.assignment.borrowing_height(),
            Reverse(workload.priority),
            workload.created,
            workload.uid.clone(),
        )
    });
}

/// At one level of the tree: whether the child on the path borrows what is requested, and the child's share.
struct Standing {
    borrows: bool,
    share: Share,
}

/// Takes the next entry to process: any without a cohort, else the winner of the tournament over some tree.
pub fn pop_fair(snapshot: &mut Snapshot<'_>, nominees: &mut Vec<Nominee>) -> Option<Nominee> {
    let first = queue(&nominees.iter().map(|nominee| &nominee.workload.queue).min()?.clone());
    let root = snapshot.tree.root(&first).clone();
    let mut standings: BTreeMap<Name, BTreeMap<Node, Standing>> = BTreeMap::new();
    for nominee in nominees.iter() {
        let name = &nominee.workload.queue;
        let node = queue(name);
        if *snapshot.tree.root(&node) != root {
            continue;
        }
        let usage = &nominee.assignment.usage;
        let replaced = snapshot.replaced(&nominee.workload);
        if let Some(slice) = replaced {
            snapshot.remove_workload(slice);
        }
        snapshot.add(name, usage);
        let path: Vec<Node> = std::iter::once(&node).chain(snapshot.tree.ancestors(&node)).cloned().collect();
        let standing = |child: &Node| Standing {
            borrows: usage
                .iter()
                .any(|(fr, amount)| !amount.is_zero() && snapshot.borrowing_with(child, fr, Amount::ZERO)),
            share: share(snapshot, child),
        };
        let of_queue = path.into_iter().map(|child| (child.clone(), standing(&child))).collect();
        snapshot.remove(name, usage);
        if let Some(slice) = replaced {
            snapshot.add_workload(slice);
        }
        standings.insert(name.clone(), of_queue);
    }
    let winner = winner(snapshot, nominees, &standings, &root)?;
    Some(nominees.remove(winner))
}

/// The index of the entry that wins below the node.
fn winner(
    snapshot: &Snapshot<'_>,
    nominees: &[Nominee],
    standings: &BTreeMap<Name, BTreeMap<Node, Standing>>,
    node: &Node,
) -> Option<usize> {
    if let Node::Queue(name) = node {
        return nominees.iter().position(|nominee| nominee.workload.queue == *name);
    }
    let winners = snapshot
        .tree
        .children(node)
        .filter_map(|child| Some((child, winner(snapshot, nominees, standings, child)?)));
    let compare = |(child_a, a): &(&Node, usize), (child_b, b): &(&Node, usize)| -> Ordering {
        let (a, b) = (&nominees[*a].workload, &nominees[*b].workload);
        let (at_a, at_b) = (&standings[&a.queue][*child_a], &standings[&b.queue][*child_b]);
        at_a.borrows
            .cmp(&at_b.borrows)
            .then_with(|| at_a.share.compare(at_b.share))
            .then_with(|| b.priority.cmp(&a.priority))
            .then_with(|| a.created.cmp(&b.created))
            .then_with(|| a.uid.cmp(&b.uid))
    };
    winners.min_by(compare).map(|(_, index)| index)
}
