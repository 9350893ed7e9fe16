//! The journal: what was decided, as JSON lines in files of a folder, and reading it again.
//!
//! The engine's thread only hands lines over, through a bounded buffer; another thread writes them. The engine never waits: what does not
//! fit is counted, and a line says how many are missing. Every replica writes what it sees into files of its own, so that nothing is missing where
//! the leader changes; a reader takes equal lines for one.

mod about;
mod files;
mod lines;
mod page;
pub mod store;
mod writer;

pub use page::{Asked, JournalError, MOST_LINES, Page, Reader};
pub use writer::Journal;
