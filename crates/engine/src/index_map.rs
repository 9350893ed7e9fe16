//! Hash maps and sets that keep the order of insertion.

/// Names are hashed often, by a function that takes a fraction of the time of the standard library's. Its seed is random: users who choose names do
/// not know which of them collide.
pub(crate) type IndexMap<K, V> = indexmap::IndexMap<K, V, foldhash::fast::RandomState>;

/// The same without values.
pub(crate) type IndexSet<K> = indexmap::IndexSet<K, foldhash::fast::RandomState>;
