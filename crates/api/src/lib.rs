//! Every kind of Kueue's API in both versions, with defaults, validation and conversion.

mod clean_up;
pub mod conditions;
pub mod config;
pub mod gates;
pub mod job;
pub mod journal;
pub mod labels;
mod made;
pub mod names;
pub mod slim;
pub mod status_apply;
pub mod text;

pub mod conversion;
pub mod crds;
pub mod defaults;
mod kind;
mod schema;
pub mod v1beta1;
pub mod v1beta2;
pub mod validation;
pub mod visibility;
pub mod webhooks;

pub use crds::crds;
pub use kind::GROUP;
