//! What `sluice migrate check` found, as text.

use std::fmt;

/// One line about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindLine {
    /// The plural.
    pub plural: String,
    /// How many objects there are; `None` if they could not be read.
    pub objects: Option<usize>,
    /// The versions in which objects may be stored.
    pub stored: String,
    /// What changes with Sluice's definition.
    pub change: String,
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The managers that run now.
    pub managers: Vec<String>,
    /// The kinds.
    pub kinds: Vec<KindLine>,
    /// What must be done before Sluice may run.
    pub obstacles: Vec<String>,
    /// Features in use that Sluice does not have.
    pub unsupported: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether nothing stands in the way and everything in use is supported.
    pub const fn is_clear(&self) -> bool {
        self.obstacles.is_empty() && self.unsupported.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        section(f, "In the cluster", &self.managers)?;
        let width = self.kinds.iter().map(|kind| kind.plural.len()).max().unwrap_or(0);
        writeln!(f, "Kinds of kueue.x-k8s.io")?;
        for KindLine { plural, objects, stored, change } in &self.kinds {
            let objects = objects.map_or_else(|| "?".to_owned(), |count| count.to_string());
            writeln!(f, "  {plural:width$}  {objects:>6}  stored in {stored:16}  {change}")?;
        }
        writeln!(f)?;
        section(f, "To be done first", &self.obstacles)?;
        section(f, "Not supported", &self.unsupported)?;
        section(f, "Good to know", &self.notes)?;
        if self.is_clear() {
            writeln!(f, "Nothing stands in the way.")?;
        }
        Ok(())
    }
}

fn section(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}")?;
    for line in lines {
        writeln!(f, "  * {line}")?;
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_from_what_is_there_to_what_is_to_be_done() {
        let kind = |plural: &str, objects, stored: &str, change: &str| KindLine {
            plural: plural.to_owned(),
            objects,
            stored: stored.to_owned(),
            change: change.to_owned(),
        };
        let report = Report {
            managers: vec!["Kueue".to_owned()],
            kinds: vec![
                kind("clusterqueues", Some(12), "v1beta1", "stored in v1beta2 from then on"),
                kind("workloads", None, "v1beta1, v1beta2", "none"),
            ],
            obstacles: vec!["stop Kueue".to_owned()],
            unsupported: Vec::new(),
            notes: vec!["a note".to_owned()],
        };
        insta::assert_snapshot!(report, @r"
        In the cluster
          * Kueue

        Kinds of kueue.x-k8s.io
          clusterqueues      12  stored in v1beta1           stored in v1beta2 from then on
          workloads           ?  stored in v1beta1, v1beta2  none

        To be done first
          * stop Kueue

        Good to know
          * a note
        ");
        assert!(!report.is_clear());
        assert!(Report::default().to_string().contains("Nothing stands in the way."));
    }
}
