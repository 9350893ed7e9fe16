//! Where the leaves of a layout are, by place: found without a search.

use crate::intern::PlaceId;

/// The position of a place that is no leaf.
const NOWHERE: u32 = u32::MAX;

/// The positions of leaves, by place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Positions(Vec<u32>);

/// A layout never has 2^32 leaves, since each takes more than one byte of each of its several vectors.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NOWHERE)
}

impl Positions {
    /// The position of the leaf at a place.
    pub(crate) fn get(&self, place: PlaceId) -> Option<usize> {
        let at = self.0.get(place.at()).copied().filter(|at| *at != NOWHERE)?;
        usize::try_from(at).ok()
    }

    /// The leaf at a place is at this position.
    pub(crate) fn put(&mut self, place: PlaceId, at: usize) {
        if self.0.len() <= place.at() {
            self.0.resize(place.at() + 1, NOWHERE);
        }
        self.0[place.at()] = narrow(at);
    }

    /// The leaves from this position on move up by one.
    pub(crate) fn make_room(&mut self, at: usize) {
        let at = narrow(at);
        self.0.iter_mut().filter(|other| **other >= at && **other != NOWHERE).for_each(|other| *other += 1);
    }

    /// The leaf at a place, which is at this position, goes, and those behind it move down by one.
    pub(crate) fn take(&mut self, place: PlaceId, at: usize) {
        if let Some(position) = self.0.get_mut(place.at()) {
            *position = NOWHERE;
        }
        let at = narrow(at);
        self.0.iter_mut().filter(|other| **other > at && **other != NOWHERE).for_each(|other| *other -= 1);
    }

    /// Without the places behind the last leaf.
    fn known(&self) -> &[u32] {
        let end = self.0.iter().rposition(|at| *at != NOWHERE).map_or(0, |last| last + 1);
        &self.0[..end]
    }
}

impl PartialEq for Positions {
    fn eq(&self, other: &Self) -> bool {
        self.known() == other.known()
    }
}

impl Eq for Positions {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_found_where_they_are_while_others_come_and_go() {
        let mut order: Vec<usize> = Vec::new();
        let mut positions = Positions::default();
        for step in 0..200_usize {
            let place = step * 7 % 23;
            if let Some(at) = order.iter().position(|other| *other == place) {
                order.remove(at);
                positions.take(PlaceId::new(place), at);
            } else {
                let at = step * 5 % (order.len() + 1);
                positions.make_room(at);
                order.insert(at, place);
                positions.put(PlaceId::new(place), at);
            }
            for place in 0..25 {
                let expected = order.iter().position(|other| *other == place);
                assert_eq!(positions.get(PlaceId::new(place)), expected, "{step}: {order:?}");
            }
            let mut fresh = Positions::default();
            order.iter().enumerate().for_each(|(at, place)| fresh.put(PlaceId::new(*place), at));
            assert_eq!(positions, fresh, "{step}: {order:?}");
        }
    }
}
