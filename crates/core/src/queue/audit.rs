//! What the audit checks of a queue.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{HeadKey, PendingQueue};

impl PendingQueue {
    /// Consistency of counters and heads; for the audit.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut active, mut inadmissible, mut heads) = (0, 0, BTreeSet::new());
        let remembered = self.index.values().filter(|&&id| self.class(id).remembered).count();
        if remembered != self.remembered {
            return Err(format!("{remembered} classes are remembered, {} are counted", self.remembered));
        }
        for (key, &id) in &self.index {
            let class = self.class(id);
            if class.key != *key {
                return Err(format!("class {id:?} has the key {:?}, the index says {key:?}", class.key));
            }
            active += class.active.len();
            inadmissible += class.inadmissible.len() + class.on_hold.len();
            if let Some(first) = class.active.first() {
                heads.insert((Reverse(key.priority), first.clone(), id));
            }
            if (!class.inadmissible.is_empty() || class.failed.is_some()) && !self.to_flush.contains(&id) {
                return Err(format!("class {id:?} is inadmissible but would not be flushed"));
            }
        }
        if (active, inadmissible) != (self.active, self.inadmissible) {
            return Err(format!(
                "counts {:?}, members {:?}",
                (self.active, self.inadmissible),
                (active, inadmissible)
            ));
        }
        if heads != self.heads {
            return Err("the heads of the classes are wrong".to_owned());
        }
        let on_hold = |(priority, key, id): &HeadKey| {
            let class = self.classes.get(id.at()).and_then(Option::as_ref);
            class.is_some_and(|class| class.key.priority == priority.0 && class.on_hold.contains(key))
        };
        if !self.paused.iter().all(on_hold) {
            return Err("one is paused that is not on hold".to_owned());
        }
        Ok(())
    }
}
