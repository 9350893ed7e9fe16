//! The nodes of each place of the topologies.

use smallvec::SmallVec;

use crate::intern::{FlavorId, PlaceId};

/// The numbers of the nodes of each place, by place, each with the flavor in whose tree it is there. Most places are one node of one flavor.
#[derive(Debug, Default)]
pub(super) struct NodesAt(Vec<SmallVec<[(FlavorId, usize); 1]>>);

impl NodesAt {
    /// The node of this number is at a place.
    pub(super) fn add(&mut self, (flavor, place): (FlavorId, PlaceId), node: usize) {
        if self.0.len() <= place.at() {
            self.0.resize_with(place.at() + 1, SmallVec::new);
        }
        self.0[place.at()].push((flavor, node));
    }

    /// Those of one place, in the order in which they were added.
    pub(super) fn of(&self, flavor: FlavorId, place: PlaceId) -> impl Iterator<Item = usize> {
        let all = self.0.get(place.at()).map_or(&[][..], SmallVec::as_slice);
        all.iter().filter(move |(of, _)| *of == flavor).map(|(_, node)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_the_nodes_of_its_flavor_in_order() {
        let mut nodes = NodesAt::default();
        let at = |flavor, place| (FlavorId(flavor), PlaceId(place));
        for (place, node) in [(at(2, 5), 0), (at(2, 1), 1), (at(0, 5), 2), (at(2, 5), 3)] {
            nodes.add(place, node);
        }
        let of = |flavor, place| nodes.of(FlavorId(flavor), PlaceId(place)).collect::<Vec<_>>();
        assert_eq!([of(2, 5), of(2, 1), of(0, 5)], [vec![0, 3], vec![1], vec![2]]);
        assert!([of(0, 1), of(1, 0), of(2, 9), of(7, 0)].iter().all(Vec::is_empty));
    }
}
