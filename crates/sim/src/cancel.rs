//! When a simulation has to give up. The caller has the clock.

use std::fmt;
use std::sync::Arc;

/// Whether a simulation has to give up. It is called before each object that is read or created and before each step, so it must be cheap.
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
