//! Whether the API server keeps what it accepts. A write succeeds although a schema prunes the field, or a policy sets it back: the next look would
//! send the same write again, endlessly.

use crate::engine::Engine;
use crate::input::{Object, WriteError};
use crate::outbox::Open;

impl Engine {
    /// The answer of a write; an error if the object is not as the write was to make it. The returned object is stored in either case.
    pub(crate) fn if_kept(
        &mut self,
        open: &Open,
        result: Result<Option<Object>, WriteError>,
    ) -> Result<Option<Object>, WriteError> {
        let object = match result {
            Ok(Some(object)) => object,
            other => return other,
        };
        let Some(why) = open.wanted.and_then(|wanted| wanted.lacking(&object)) else {
            return Ok(Some(object));
        };
        if self.is_current(open, &object) {
            self.observe_object(object);
        }
        Err(WriteError::Refused(why.to_owned()))
    }
}
