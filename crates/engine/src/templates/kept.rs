//! The template objects that are kept: limited in number and bytes, because any user may make more.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_api::job::{Template, TemplateRef};

/// Objects at most.
pub(crate) const MOST: usize = 4_096;
/// Bytes of all of them at most.
pub(crate) const MOST_BYTES: usize = 16 << 20;
/// The memory of a template besides its texts.
const OVERHEAD: usize = 256;

/// The kept templates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    kept: BTreeMap<TemplateRef, Template>,
    bytes: usize,
    /// Some were seen and not kept.
    incomplete: bool,
    /// When a template that is not kept, and that a job names, was last read.
    asked: BTreeMap<TemplateRef, Timestamp>,
}

fn size(template: &Template) -> usize {
    let names = template.object.namespace.len() + template.object.name.len();
    let content = template.content.as_ref().map_or(0, |content| content.len());
    OVERHEAD + 2 * names + template.resource_version.len() + content
}

impl Templates {
    /// A kept template.
    pub fn get(&self, object: &TemplateRef) -> Option<&Template> {
        self.kept.get(object)
    }

    /// The names of kept templates, in order.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &TemplateRef> {
        self.kept.keys()
    }

    /// Whether a template that is not kept may exist nevertheless.
    pub fn may_lack(&self, object: &TemplateRef) -> bool {
        self.incomplete && !self.kept.contains_key(object)
    }

    /// Whether there is room for a template, in place of the one of its name.
    pub fn has_room(&self, template: &Template) -> bool {
        let known = self.kept.get(&template.object);
        let number = self.kept.len() - usize::from(known.is_some());
        let bytes = self.bytes - known.map_or(0, size);
        number < MOST && bytes.saturating_add(size(template)) <= MOST_BYTES
    }

    /// Keeps a template for which there is room.
    pub fn put(&mut self, template: Template) {
        self.remove(&template.object);
        self.asked.remove(&template.object);
        self.bytes += size(&template);
        self.kept.insert(template.object.clone(), template);
    }

    /// A template was deleted.
    pub fn remove(&mut self, object: &TemplateRef) -> Option<Template> {
        let template = self.kept.remove(object)?;
        self.bytes -= size(&template);
        Some(template)
    }

    /// A template exists, and is not kept.
    pub fn leave_out(&mut self, object: &TemplateRef) -> Option<Template> {
        self.incomplete = true;
        self.remove(object)
    }

    /// When a template that is not kept was last read.
    pub fn asked(&self, object: &TemplateRef) -> Option<Timestamp> {
        self.asked.get(object).copied()
    }

    /// A template that is not kept is read now. Those that no job names any more are dropped.
    pub fn ask(&mut self, object: &TemplateRef, now: Timestamp, is_named: impl Fn(&TemplateRef) -> bool) {
        if self.asked.len() >= MOST {
            self.asked.retain(|object, _| is_named(object));
        }
        self.asked.insert(object.clone(), now);
    }

    /// There is room again: templates that are not kept may be read at once.
    pub fn ask_again(&mut self) {
        self.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::job::TemplateKind;

    use super::*;

    fn template(name: &str, bytes: usize) -> Template {
        let kind = TemplateKind::TRAINING_RUNTIME;
        Template {
            object: TemplateRef { kind, namespace: "ns".into(), name: name.into() },
            resource_version: "1".to_owned(),
            content: Some("x".repeat(bytes).into()),
        }
    }

    #[test]
    fn the_bytes_are_those_of_what_is_kept() {
        let mut templates = Templates::default();
        for (name, bytes) in [("a", 1_000), ("b", 10), ("a", 5), ("b", 7_000)] {
            templates.put(template(name, bytes));
            assert_eq!(templates.bytes, templates.kept.values().map(size).sum::<usize>());
        }
        assert!(templates.remove(&template("c", 0).object).is_none());
        assert!(templates.remove(&template("a", 0).object).is_some());
        assert!(templates.leave_out(&template("b", 0).object).is_some());
        assert_eq!((templates.bytes, templates.names().count()), (0, 0));
    }

    #[test]
    fn the_number_and_the_bytes_are_limited() {
        let mut templates = Templates::default();
        for number in 0..MOST {
            let next = template(&format!("a-{number}"), 1);
            assert!(templates.has_room(&next));
            templates.put(next);
        }
        assert!(!templates.has_room(&template("b", 1)) && templates.has_room(&template("a-7", 1_000)));
        let mut templates = Templates::default();
        for number in 0..MOST_BYTES / Template::LONGEST - 1 {
            templates.put(template(&format!("a-{number}"), Template::LONGEST));
        }
        let left = MOST_BYTES - templates.bytes - size(&template("b", 0));
        assert!(templates.has_room(&template("b", left)) && !templates.has_room(&template("b", left + 1)));
        assert!(templates.has_room(&template("a-0", Template::LONGEST)), "in place of the one of that name");
    }

    #[test]
    fn one_that_was_left_out_may_be_there_and_one_that_is_kept_is() {
        let mut templates = Templates::default();
        let object = template("a", 1).object;
        assert!(!templates.may_lack(&object));
        templates.leave_out(&object);
        assert!(templates.may_lack(&object));
        templates.ask(&object, Timestamp::UNIX_EPOCH, |_| true);
        assert!(templates.asked(&object).is_some());
        templates.put(template("a", 1));
        assert!(!templates.may_lack(&object) && templates.asked(&object).is_none());
    }
}
