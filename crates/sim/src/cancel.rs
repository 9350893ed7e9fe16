//! When a simulation has to give up. There is no clock here: the caller has one.

use std::fmt;
use std::sync::Arc;

/// Says whether a simulation has to give up. It is asked before each object that is taken in or made of another and before each step, so
/// the answer must cost little.
#[derive(Clone, Default)]
pub struct Cancel(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancel {
    /// When `cancelled` says so.
    pub fn when(cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(cancelled)))
    }

    /// Whether it has to give up.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|cancelled| cancelled())
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Cancel(by the caller)" } else { "Cancel(never)" })
    }
}
