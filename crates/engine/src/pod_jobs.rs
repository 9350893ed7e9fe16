//! Jobs that are made of pods: the second shape of a job (docs/reference/07-integrations.md 7.3).
//!
//! Such a job has no object of its own: its view is computed from its pods, which are counted as they are created, change and end. Starting it takes
//! a write for each pod that waits, and stopping it deletes the running pods. While writes on its pods are without an answer nothing else is decided
//! about it.
//!
//! * [`index`]: which pods there are, and which job each is in; [`observe`]: follows their events; [`view`]: the job that they make.
//! * [`workload`]: the Workload of a group; [`tend`]: surplus and replaced pods.
//! * [`gathered`]: pods of an object that has one Workload for all of them; [`groups`]: of an object that has a Workload for each
//!   group of them, and [`component`]: which group that is.
//! * [`made`]: pods of other jobs that were taken for jobs of their own.
//! * [`writes`]: what is written to pods, and [`answered`]: the answers.

pub(crate) mod answered;
pub(crate) mod component;
pub(crate) mod gathered;
pub(crate) mod groups;
pub(crate) mod index;
pub(crate) mod made;
pub(crate) mod observe;
pub(crate) mod tend;
pub(crate) mod view;
pub(crate) mod workload;
pub(crate) mod writes;
