//! Tests of the adapters through their public interface.

mod observe;
mod start_stop;
mod support;
mod webhook;
