//! Values that only save work.

/// A value that can be computed again: a clone begins without it, and it is not shown in debug output.
#[derive(Default)]
pub(crate) struct Cache<T>(pub(crate) T);

impl<T: Default> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> std::fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache")
    }
}
