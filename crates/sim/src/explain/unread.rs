//! What could not be read: the answer says so, and goes without it.

use sluice_engine::{Kind, ObjectRef};

use super::advice::Advice;
use super::finding::{Code, Finding, Help};
use super::known::{job_of, job_read};
use super::{MOST_LISTED, Question};
use crate::simulation::Simulation;
use crate::unread::Unread;

/// A finding for each kind that could not be read and that the answers use.
pub(super) fn findings<'a>(unread: impl Iterator<Item = &'a Unread>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for Unread { what, why } in unread {
        let (code, about) = match *what {
            "pods" => (Code::PodsUnread, "not all pods could be read; the answer may lack some"),
            "events" => {
                (Code::EventsUnread, "not all events about it could be read; the answer may lack some")
            }
            "nodes" => (Code::NodesUnread, "not all nodes could be read; nothing is tried with them"),
            _ => (
                Code::ObjectsUnread,
                "not all objects around it could be read; nothing is tried, and no start is estimated",
            ),
        };
        let line = format!("{what}: {why}");
        match found.iter_mut().find(|finding| finding.code == code) {
            Some(known) if known.details.contains(&line) || known.details.len() >= MOST_LISTED => {}
            Some(known) => known.details.push(line),
            None => {
                let help = "ask again; if that does not help, an administrator should check the manager's rights and the number of objects";
                found.push(Finding::new(code, about).detail(line).with(Help::words(Advice::AskAgain, help)));
            }
        }
    }
    found
}

impl Question<'_> {
    /// Everything that was not read.
    pub(super) fn unread(&self) -> impl Iterator<Item = &Unread> {
        let of_subject = self.manifests.subject.iter().flat_map(|subject| &subject.unread);
        of_subject.chain(&self.manifests.unread)
    }

    /// The object of the question and why it cannot be tried, if it is left out: then its pods are missing, too.
    pub(super) fn own_left_out(&self, simulation: &Simulation) -> Option<(ObjectRef, String)> {
        let subject = self.manifests.subject.as_ref()?;
        let read = subject.job.as_ref().and_then(job_read);
        let object = read.or_else(|| job_of(subject.workload.as_ref()?))?;
        let makes = matches!(object.kind, Kind::Job(kind) if kind.integration().suspends_pods);
        let is_there = simulation.left_out().count == 0 || simulation.world.get(&object).is_some();
        if !makes || subject.workload.is_none() || is_there {
            return None;
        }
        let why =
            format!("the {} cannot be simulated: its pods may take too much memory", object.kind.as_str());
        Some((object, why))
    }

    /// Why nothing is tried, if the world around it is not known.
    pub(super) fn why_not_tried(&self) -> Option<String> {
        let mut kinds: Vec<&str> = self.manifests.unread.iter().map(|unread| unread.what).collect();
        kinds.truncate(MOST_LISTED);
        (!kinds.is_empty()).then(|| format!("not everything around it could be read ({})", kinds.join(", ")))
    }
}
