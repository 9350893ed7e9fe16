//! Where objects have their pod templates, and the number of pods of each.

use std::fmt::Display;

/// Pods of an object that are described together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodsAt {
    /// Where the object speaks of them.
    pub place: PodPlace,
    /// The pod template, from that place on: a JSON pointer.
    pub template: &'static str,
    /// How many pods of the template there are at a time; where there are parts, in each of them.
    pub count: CountAt,
    /// The parts that are made from the template, if there can be several.
    pub parts: Option<PartsAt>,
    /// The label with the number of a pod in its template, or in its part.
    pub index: Option<&'static str>,
}

/// Where an object speaks of pods, and after what it calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPlace {
    /// The object itself: the name of the pod set.
    Object(&'static str),
    /// The entries of a map, one for each type of pods.
    Types {
        /// The map: a JSON pointer.
        map: &'static str,
        /// The types, in the order of the pod sets.
        types: &'static [&'static str],
    },
    /// Items of a list.
    Items {
        /// The list: a JSON pointer.
        list: &'static str,
        /// The field of an item with the name of its pod set.
        name: &'static str,
    },
}

/// Where the number of pods is: JSON pointers from the template's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountAt {
    /// The number is one.
    One,
    /// A field; if it is missing the number is one.
    Field(&'static str),
    /// The spec of a batch Job: its parallelism, or its completions if these are fewer.
    OfJob(&'static str),
    /// The adapter.
    ByAdapter,
}

/// The parts that are made from a template, each of which has the pods: JSON pointers from the template's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsAt {
    /// The field with their number; if it is missing the number is one.
    pub count: &'static str,
    /// The template of a part: its metadata and its spec.
    pub template: &'static str,
    /// The label of a pod with the number of its part.
    pub index: &'static str,
}

impl PodsAt {
    /// The only pod template of an object with its number of pods in a field.
    pub const fn one(template: &'static str, count: CountAt) -> Self {
        let place = PodPlace::Object(crate::labels::DEFAULT_POD_SET_NAME);
        Self { place, template, count, parts: None, index: None }
    }

    /// Where the pods of this type, or the item of this number, are spoken of: a JSON pointer.
    pub fn at(&self, key: impl Display) -> String {
        match self.place {
            PodPlace::Object(_) => String::new(),
            PodPlace::Types { map: all, .. } | PodPlace::Items { list: all, .. } => format!("{all}/{key}"),
        }
    }

    /// Where their template is: a JSON pointer.
    pub fn template_at(&self, key: impl Display) -> String {
        self.at(key) + self.template
    }
}
