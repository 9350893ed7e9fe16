//! Texts that many pods have in common, each kept once.

use std::sync::Arc;

use sluice_core::Name;

use crate::index_map::IndexSet;

/// How many texts are kept in any case.
const FEW: usize = 1024;

/// Texts, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    all: IndexSet<Name>,
    /// How many were in use when that was last looked at.
    used: usize,
}

impl Names {
    /// A text. When there are twice as many as were in use, unused ones are dropped.
    pub fn of(&mut self, text: &str) -> Name {
        if let Some(known) = self.all.get(text) {
            return Arc::clone(known);
        }
        if self.all.len() >= FEW && self.all.len() / 2 >= self.used {
            self.all.retain(|name| Arc::strong_count(name) > 1);
            self.used = self.all.len();
        }
        let name = Name::from(text);
        self.all.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_goes_when_nothing_uses_it() {
        let mut names = Names::default();
        let kept = names.of("kept");
        assert!(Arc::ptr_eq(&kept, &names.of("kept")));
        for number in 0..10 * FEW {
            names.of(&number.to_string());
        }
        assert!(names.all.len() <= 2 * FEW, "{}", names.all.len());
        assert!(Arc::ptr_eq(&kept, &names.of("kept")));
    }
}
