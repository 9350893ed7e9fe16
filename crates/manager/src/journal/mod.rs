//! The journal: decisions as JSON lines in files of a folder, and reading them.
//!
//! The engine's thread only puts lines into a bounded buffer; another thread writes them. The engine never waits: lines that do not fit are counted,
//! and a line says how many are missing. Every replica writes what it sees into its own files, so that nothing is missing where the leader changes; a
//! reader counts equal lines once.

mod about;
mod files;
mod lines;
mod page;
pub mod store;
mod writer;

pub use page::{Asked, JournalError, MOST_LINES, Page, Reader};
pub use writer::Journal;
