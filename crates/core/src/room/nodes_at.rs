//! The nodes of each place of the topologies.

use smallvec::SmallVec;

use crate::intern::{FlavorId, PlaceId};

/// The numbers of the nodes of each place, as the trees of the flavors have them: by flavor and place. Most places are one node.
#[derive(Debug, Default)]
pub(super) struct NodesAt(Vec<Vec<SmallVec<[usize; 1]>>>);

impl NodesAt {
    /// The node of this number is at a place.
    pub(super) fn add(&mut self, (flavor, place): (FlavorId, PlaceId), node: usize) {
        if self.0.len() <= flavor.at() {
            self.0.resize_with(flavor.at() + 1, Vec::new);
        }
        let places = &mut self.0[flavor.at()];
        if places.len() <= place.at() {
            places.resize_with(place.at() + 1, SmallVec::new);
        }
        places[place.at()].push(node);
    }

    /// Those of one place, in the order in which they were added.
    pub(super) fn of(&self, flavor: FlavorId, place: PlaceId) -> &[usize] {
        let places = self.0.get(flavor.at());
        places.and_then(|places| places.get(place.at())).map_or(&[], SmallVec::as_slice)
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
        let of = |flavor, place| nodes.of(FlavorId(flavor), PlaceId(place));
        assert_eq!((of(2, 5), of(2, 1), of(0, 5)), (&[0, 3][..], &[1][..], &[2][..]));
        assert!([of(0, 1), of(1, 0), of(2, 9), of(7, 0)].iter().all(|nodes| nodes.is_empty()));
    }
}
