//! Faults: managers that are killed at every step, an API server that goes away, hostile tenants, two releases at the same time, a long run with
//! faults.
//!
//! Each suite has its own plane, because it stops the manager or the API server.

mod bad_days;
mod hanging_webhook;
mod hostile;
mod restart_matrix;
mod rolling_upgrade;
mod soak;
