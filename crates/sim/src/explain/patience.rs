//! How long an explanation may take. The caller has the clock.

/// Called between two tries and between two steps of a simulation; returns whether time is over.
#[derive(Clone, Copy, Default)]
pub struct Patience<'a>(Option<&'a (dyn Fn() -> bool + 'a)>);

impl<'a> Patience<'a> {
    /// All the time that it takes.
    pub const ENDLESS: Self = Self(None);

    /// Until `over` says so.
    pub fn until(over: &'a (dyn Fn() -> bool + 'a)) -> Self {
        Self(Some(over))
    }

    /// Whether time is over.
    pub fn is_over(&self) -> bool {
        self.0.is_some_and(|over| over())
    }
}

impl std::fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Patience(bounded)" } else { "Patience(endless)" })
    }
}
