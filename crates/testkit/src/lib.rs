//! The test control plane, builders of API objects and stand-ins for controllers that tests need (development only).
