//! Copies changes from the engine to the board, a limited number at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_engine::Engine;
use tokio::sync::Notify;

use super::board::{Board, LocalQueue, Order};
use crate::engine_thread::Handle;
use crate::shutdown::Stop;

/// Queues, usages, and Workloads, that are asked for at a time: the engine is held up for a fraction of a turn of pages.
const AT_ONCE: usize = 250;
/// Between two looks at what changed.
const PAUSE: Duration = Duration::from_millis(20);

/// The result of a lookup.
#[derive(Debug)]
pub enum Found<T> {
    /// The initial state is not complete yet.
    NotYet,
    /// It does not exist.
    Nothing,
    /// This.
    Found(T),
}

impl<T> From<Option<T>> for Found<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Nothing, Self::Found)
    }
}

/// The board for readers. The engine's thread never takes its lock.
#[derive(Debug, Default)]
pub struct Published(Mutex<Option<Board>>);

impl Published {
    fn board(&self) -> MutexGuard<'_, Option<Board>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The order of a ClusterQueue.
    pub fn cluster_queue(&self, name: &str) -> Found<Arc<Order>> {
        match &mut *self.board() {
            None => Found::NotYet,
            Some(board) => board.order(name, Instant::now()).into(),
        }
    }

    /// The order of the ClusterQueue of a LocalQueue.
    pub fn local_queue(&self, local_queue: &LocalQueue) -> Found<Arc<Order>> {
        match &mut *self.board() {
            None => Found::NotYet,
            Some(board) => board.order_of(local_queue, Instant::now()).into(),
        }
    }

    /// Shows a board.
    #[cfg(test)]
    pub(crate) fn show(&self, board: Board) {
        *self.board() = Some(board);
    }
}

/// Follows the engine until stopped. `news` is notified when something changed.
pub async fn publish(engine: Handle<Engine>, news: Arc<Notify>, published: Arc<Published>, mut stop: Stop) {
    // A new board, after the engine was rebuilt; the previous one is shown until it is complete.
    let mut filling: Option<Board> = None;
    loop {
        let asked = engine.ask(|engine: &mut Engine| engine.take_moves(AT_ONCE));
        let moves = tokio::select! {
            () = stop.stopped() => return,
            moves = asked => moves,
        };
        let Some(moves) = moves else { return };
        if moves.rebuilt {
            filling = Some(Board::default());
        }
        let (synced, more) = (moves.synced, moves.more);
        match &mut filling {
            Some(board) => board.apply(moves),
            None => {
                if let Some(board) = &mut *published.board() {
                    board.apply(moves);
                }
            }
        }
        if synced && filling.is_some() {
            *published.board() = filling.take();
        }
        if more {
            continue;
        }
        tokio::select! {
            () = stop.stopped() => return,
            () = news.notified() => {}
        }
        // A burst of changes is published together.
        if !stop.sleep(PAUSE).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
