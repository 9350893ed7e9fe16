//! `journal`: a section that Kueue does not have; where decisions are recorded.

use serde::Serialize;
use sluice_quantity::Quantity;

use super::journal_store::{JournalStore, store};
use super::reader::Reader;

/// The smallest size in bytes at which a new file may be started.
const LEAST: i64 = 1 << 20;
/// The largest accepted total size of all files, in bytes.
const MOST: i64 = 1 << 40;

/// `journal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The folder of its files. Absent: there is no journal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The size at which a new file is started: a quantity, in bytes, from 1Mi to 1Ti. 64Mi, or half of `maxTotalSize` if that is less.
    pub max_file_size: String,
    /// The size of all files together above which the oldest are deleted: a quantity, in bytes, of at least two files and at most 1Ti. 1Gi.
    pub max_total_size: String,
    /// The object store that files are sent to. Absent: they stay in the folder.
    #[serde(skip_serializing_if = "JournalStore::is_default")]
    pub store: JournalStore,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            directory: String::new(),
            max_file_size: "64Mi".to_owned(),
            max_total_size: "1Gi".to_owned(),
            store: JournalStore::default(),
        }
    }
}

impl Journal {
    /// Whether everything is as by default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// [`Self::max_file_size`] in bytes.
    pub fn file_bytes(&self) -> u64 {
        bytes(&self.max_file_size)
    }

    /// [`Self::max_total_size`] in bytes.
    pub fn total_bytes(&self) -> u64 {
        bytes(&self.max_total_size)
    }
}

/// The value of a quantity that was checked when it was read.
fn bytes(text: &str) -> u64 {
    Quantity::parse(text).map_or(0, |quantity| quantity.value().try_into().unwrap_or(0))
}

/// Reads the section.
pub(super) fn journal(reader: Option<Reader<'_>>) -> Journal {
    let default = Journal::default();
    let Some(mut reader) = reader else { return default };
    let directory = reader.string("directory").unwrap_or_default();
    if !directory.is_empty() && !directory.starts_with('/') {
        reader.error("directory", format!("expected an absolute path, found {directory:?}"));
    }
    let max_file_size = size(&mut reader, "maxFileSize");
    let max_total_size = size(&mut reader, "maxTotalSize").unwrap_or(default.max_total_size);
    let max_file_size =
        max_file_size.unwrap_or_else(|| file_of(bytes(&max_total_size)).unwrap_or(default.max_file_size));
    let store = store(reader.object("store"));
    if directory.is_empty() && !store.url.is_empty() {
        reader.error(
            "directory",
            "is required with store.url: lines are written to files there before they are sent",
        );
    }
    let journal = Journal { directory, max_file_size, max_total_size, store };
    if journal.total_bytes() < journal.file_bytes().saturating_mul(2) {
        let least =
            format!("expected room for at least two files of maxFileSize ({})", journal.max_file_size);
        reader.error("maxTotalSize", least);
    }
    journal
}

/// The size of a file where all together have less room than two files of the usual size.
fn file_of(total: u64) -> Option<String> {
    let half = (total / 2).max(LEAST.unsigned_abs());
    (half < bytes(&Journal::default().max_file_size)).then(|| half.to_string())
}

fn size(reader: &mut Reader<'_>, key: &'static str) -> Option<String> {
    let text = reader.string(key)?;
    match Quantity::parse(&text) {
        Ok(quantity) if (LEAST..=MOST).contains(&quantity.value()) => Some(text),
        Ok(_) => {
            reader.error(key, format!("expected a quantity from 1Mi to 1Ti, found {text}"));
            None
        }
        Err(error) => {
            reader.error(key, error.to_string());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Configuration;

    fn read(section: &str) -> Result<super::Journal, String> {
        let file = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{section}");
        let (configuration, _) = Configuration::parse(&file).map_err(|errors| errors.to_string())?;
        Ok(configuration.journal)
    }

    #[test]
    fn without_a_folder_there_is_no_journal() {
        assert_eq!(read("").unwrap(), super::Journal::default());
        let journal =
            read("journal: {directory: /var/lib/sluice, maxFileSize: 2Mi, maxTotalSize: 1Gi}").unwrap();
        assert_eq!((journal.file_bytes(), journal.total_bytes()), (2 << 20, 1 << 30));
    }

    #[test]
    fn files_are_smaller_where_all_together_are_small() {
        for (total, file) in [("1Gi", 64 << 20), ("128Mi", 64 << 20), ("100Mi", 50 << 20), ("2Mi", 1 << 20)] {
            let section = format!("journal: {{directory: /x, maxTotalSize: {total}}}");
            assert_eq!(read(&section).unwrap().file_bytes(), file, "{total}");
        }
    }

    #[test]
    fn sizes_that_could_not_hold_are_refused() {
        for section in [
            "journal: {directory: relative}",
            "journal: {maxFileSize: 10}",
            "journal: {maxFileSize: 2Ti}",
            "journal: {maxFileSize: many}",
            "journal: {maxFileSize: 1Gi, maxTotalSize: 1Gi}",
            "journal: {maxTotalSize: 1Mi}",
            "journal: {path: /x}",
        ] {
            assert!(read(section).is_err(), "{section}");
        }
    }
}
