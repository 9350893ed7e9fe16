//! Jobs that are made of pods: the second shape of a job (docs/reference/07-integrations.md 7.3).
//!
//! Such a job has no object of its own: its view is worked out of its pods, which are counted as they come, change and go. To start it is a
//! write for each pod that waits, and to stop it deletes those that run. While writes on its pods are open nothing else is decided about it.
//!
//! * [`index`]: which pods there are, and which job each is in; [`observe`]: how they come and go; [`view`]: the job that they make.
//! * [`workload`]: the Workload of a group; [`tend`]: pods that are too many, or were replaced.
//! * [`gathered`]: pods of an object that has a Workload for all of them; [`groups`]: of one that has a Workload for each
//!   group of them, and [`component`]: which that is.
//! * [`made`]: pods of other jobs that were taken for jobs of their own.
//! * [`writes`]: what is written to pods, and [`answered`]: what became of it.

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
