//! LocalQueues that come, change and go.

use std::sync::Arc;

use sluice_api::v1beta2::LocalQueue;

use crate::engine::Engine;
use crate::ingest::queues;
use crate::input::ObjectRef;

impl Engine {
    /// Takes in a LocalQueue.
    pub(super) fn observe_local_queue(&mut self, reference: ObjectRef, queue: Box<LocalQueue>) {
        let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
        let spec = queues::local_queue(&queue);
        let same_but_for_usage = |old: &LocalQueue| {
            let mut old = queues::local_queue(old);
            old.consumed.clone_from(&spec.consumed);
            old == spec
        };
        let known = self.world.local_queues.get(&key);
        let changed = known.is_none_or(|old| !same_but_for_usage(old));
        if changed && let Some(old) = known {
            self.changes.note(self.now, &reference, &old.spec, &queue.spec);
        }
        self.observe_custom_labels(&reference, &queue.metadata);
        self.journal_local_queue(&key, Some(&queue));
        self.world.put_local_queue(key.clone(), queue);
        if changed {
            self.queue_moved(&reference);
            self.scheduler.set_local_queue(spec);
            self.request_cycle();
            self.hotswap_stale();
            self.mark_workloads_of_queue(&key);
        }
        self.dirty.statuses.insert(reference);
    }

    /// Takes in that a LocalQueue is gone.
    pub(super) fn forget_local_queue(&mut self, object: &ObjectRef) {
        let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        self.journal_local_queue(&key, None);
        self.world.take_local_queue(&key);
        self.queue_moved(object);
        self.scheduler.remove_local_queue(&key.0, &key.1);
        self.request_cycle();
        self.hotswap_stale();
        self.mark_workloads_of_queue(&key);
    }
}
