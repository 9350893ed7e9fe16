//! Kinds whose objects are no jobs: the controller of such a kind makes a job of each object. That job is queued, and nothing but the simulator, which
//! has no controllers, needs to know what it is made of.

use serde_json::Value;

use crate::minicluster;

/// A kind whose objects are no jobs and have one made of them.
#[derive(Debug)]
pub struct JobMaker {
    /// The API group, in all of its versions.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The job of an object.
    pub(crate) job: fn(&Value) -> Option<Value>,
}

/// Every such kind. The folder of each is called as the kind is, in small letters.
pub static JOB_MAKERS: [JobMaker; 1] = [minicluster::MAKER];

impl JobMaker {
    /// The kind of an object, if it is one of these.
    pub fn of(object: &Value) -> Option<&'static Self> {
        let group = object["apiVersion"].as_str()?.split_once('/')?.0;
        JOB_MAKERS.iter().find(|maker| maker.group == group && object["kind"] == maker.kind)
    }

    /// The job that the controller makes of an object, as far as it matters for queueing, with the object as its controller. None if it makes none.
    pub fn job_of(&self, object: &Value) -> Option<Value> {
        (self.job)(object)
    }
}
