//! Questions about the whole world, which are answered page by page: in between the engine goes on.

use std::time::Duration;

use super::{Command, Handle};

/// For so long pages are turned before the engine looks at its inputs again. A page takes a fraction of it.
pub(super) const TURN: Duration = Duration::from_millis(2);

/// Objects and series that are looked at for one page.
pub const PAGE: usize = 250;

/// Turns the next page; whether the question is answered.
pub(super) type Pages<M> = Box<dyn FnMut(&mut M) -> bool + Send>;

impl<M> Handle<M> {
    /// Asks the engine page by page: `page` adds the next page to `answer` and says whether it was the last. Nothing when the thread has
    /// ended. With nothing to wait for the answer any more, no more pages are turned.
    pub async fn pages<T: Send + 'static>(
        &self,
        answer: T,
        mut page: impl FnMut(&mut T, &mut M) -> bool + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut open = Some((answer, sender));
        self.send(Command::Pages(Box::new(move |machine| {
            let Some((answer, _)) = open.as_mut().filter(|(_, sender)| !sender.is_closed()) else {
                return true;
            };
            if !page(answer, machine) {
                return false;
            }
            if let Some((answer, sender)) = open.take() {
                // It may have been given up in this moment.
                let _ = sender.send(answer);
            }
            true
        })));
        receiver.await.ok()
    }
}
