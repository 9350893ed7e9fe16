//! What only saves work.

/// Something that can be worked out anew: a clone begins without it, and nothing of it is shown.
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
