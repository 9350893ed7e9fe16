//! Numbers that look random and are the same in every run of the same seed.

/// A source of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Two purposes of one seed do not see the same numbers.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed ^ purpose.rotate_left(32));
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// An index below `most`.
    pub fn index(&mut self, most: usize) -> usize {
        usize::try_from(self.below(most as u64)).unwrap_or_default()
    }

    /// A number between two, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True once in `times` times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}
