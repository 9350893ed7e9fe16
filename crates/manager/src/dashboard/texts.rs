//! Texts that many rows have in common, each kept once: names of queues, reasons, most messages.

use std::collections::HashSet;

use sluice_engine::Name;

/// The highest number of known texts, and the longest of them in bytes. A text in use is soon known again.
const MOST: usize = 4096;
const LONGEST: usize = 128;

/// The texts.
#[derive(Debug, Default)]
pub struct Texts(HashSet<Name>);

impl Texts {
    /// Replaces this text by an equal known one.
    pub fn share(&mut self, text: &mut Name) {
        if text.len() > LONGEST {
            return;
        }
        if let Some(known) = self.0.get(&**text) {
            *text = Name::clone(known);
            return;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(Name::clone(text));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn equal_texts_are_one_and_they_are_not_many() {
        let mut texts = Texts::default();
        let mut both = [Name::from("a"), Name::from("a")];
        for text in &mut both {
            texts.share(text);
        }
        assert!(Arc::ptr_eq(&both[0], &both[1]));
        for number in 0..2 * MOST {
            texts.share(&mut Name::from(number.to_string()));
            assert!(texts.0.len() <= MOST);
        }
        texts.share(&mut Name::from("x".repeat(LONGEST + 1)));
        assert!(texts.0.iter().all(|text| text.len() <= LONGEST));
    }
}
