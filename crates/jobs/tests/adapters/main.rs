//! Tests of the adapters through their public interface.

#![expect(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

mod elastic;
mod ending;
mod gated;
mod observe;
mod plain_pod;
mod pods;
mod pods_counted;
mod pods_seen;
mod ray;
mod ray_elastic;
mod ray_writes;
mod replica_specs;
mod rules_of_all;
mod serving;
mod shipped;
mod start_stop;
mod support;
#[path = "../../src/testing.rs"]
mod testing;
mod topology;
mod webhook;
