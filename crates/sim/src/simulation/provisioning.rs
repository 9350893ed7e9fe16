//! Plays the cluster autoscaler: requests for nodes go through the states of their script.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::labels::PROVISIONING_REQUEST_CONTROLLER_NAME;
use sluice_engine::{Kind, ObjectRef};

use super::Simulation;
use super::controllers::set_condition;
use crate::agenda::{Action, after};
use crate::autoscaler::RequestState;
use crate::json::text;

/// The provider's details about the new nodes.
const DETAILS: &str = "simulated-zone-a";

impl Simulation {
    /// Whether the engine itself is the controller of a check.
    pub(super) fn provisions(&self, check: &str) -> bool {
        let check = self.world.get(&ObjectRef::cluster(Kind::AdmissionCheck, check));
        check.is_some_and(|c| c["spec"]["controllerName"] == PROVISIONING_REQUEST_CONTROLLER_NAME)
    }

    /// A request for nodes is new or different.
    pub(super) fn request_changed(&mut self, request: &ObjectRef) {
        let Some(value) = self.world.get(request) else { return };
        let uid: Arc<str> = text(&value["metadata"]["uid"]).into();
        if !self.autoscaler.seen.insert(uid.clone()) {
            return;
        }
        // A request that was read from a cluster has an answer.
        let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        let answered = |c: &Value| c["status"] == "True" && c["type"] != "Accepted";
        if !conditions.into_iter().any(answered) {
            self.plan_answer(request, uid, 0);
        }
    }

    /// The states that a request goes through.
    fn states(&self, request: &ObjectRef) -> Result<Vec<RequestState>, String> {
        let Some(value) = self.world.get(request) else { return Ok(Vec::new()) };
        let template = |set: &Value| {
            let name = text(&set["podTemplateRef"]["name"]);
            ObjectRef::namespaced(Kind::PodTemplate, Arc::clone(&request.namespace), name)
        };
        let mut sets = value["spec"]["podSets"].as_array().into_iter().flatten();
        if let Some(missing) = sets.find(|set| self.world.get(&template(set)).is_none()) {
            return Err(format!("there is no {}", template(missing)));
        }
        self.autoscaler.states(&request.name, value["spec"]["parameters"]["play"].as_str())
    }

    fn plan_answer(&mut self, request: &ObjectRef, uid: Arc<str>, number: usize) {
        let state = match self.states(request) {
            Ok(states) => states.get(number).copied(),
            Err(_) => Some(RequestState::Failed).filter(|_| number == 0),
        };
        if let Some(state) = state {
            let at = after(self.now, self.autoscaler.wait(number, state));
            self.agenda.put(at, Action::Answer(request.clone(), uid, number));
        }
    }

    /// The next state of a request comes.
    pub(super) fn answer_request(&mut self, request: &ObjectRef, uid: Arc<str>, number: usize) {
        let now = self.now;
        let same = |value: &Value| value["metadata"]["uid"] == *uid;
        if !self.world.get(request).is_some_and(same) {
            return;
        }
        let (state, why) = match self.states(request) {
            Ok(states) => (states.get(number).copied().unwrap_or(RequestState::Waiting), None),
            Err(why) => (RequestState::Failed, Some(why)),
        };
        if let Some([type_, status, reason, message]) = state.condition() {
            let message = why.as_deref().unwrap_or(message);
            self.world.set_status(request, |old| {
                set_condition(old, type_, status == "True", reason, message, now);
                if state == RequestState::Provisioned {
                    old["provisioningClassDetails"] = json!({"zone": DETAILS});
                }
            });
        }
        self.plan_answer(request, uid, number + 1);
    }
}
