//! Tests of the adapters through their public interface.

#![expect(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

mod appwrapper;
mod elastic;
mod ending;
mod gated;
mod leader_worker_sets;
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
mod spark;
mod spark_rules;
mod start_stop;
mod support;
mod topology;
mod trainjob;
mod webhook;
