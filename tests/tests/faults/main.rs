//! Faults: managers that are killed at every step, an API server that goes away, hostile tenants, two releases at a time, a long and bad day.
//!
//! Each suite has a plane to itself, because it has the life of the manager or of the API server in its hands.

mod bad_days;
mod hanging_webhook;
mod hostile;
mod restart_matrix;
mod rolling_upgrade;
mod soak;
