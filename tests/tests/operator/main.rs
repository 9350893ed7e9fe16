//! The operator in use: jobs are queued, admitted, run and explained; and the effects of its flags and its configuration.
//!
//! Tests share the plane and the manager of [`bed`], each with its own namespace, queues and flavors. A test that kills the manager, changes its
//! flags, or watches all its writes has its own plane.

mod appwrapper;
mod bad_days;
mod bad_input;
mod bed;
mod bucket;
mod collector;
mod dashboard;
mod declared;
mod elastic;
mod elastic_ray;
mod examples;
mod explain;
mod external;
mod flavors;
mod flux;
mod gated;
mod hostile_kinds;
mod hostile_pods;
mod hotswap;
mod job_ends;
mod jobset_controller;
mod journal;
mod kubeflow;
mod leader_worker_sets;
mod manager;
mod manager_flags;
mod marks;
mod metrics;
mod moves;
mod passes;
mod places;
mod plugin;
mod pods;
mod provisioning;
mod ray;
mod ray_unreadable;
mod real_names;
mod rights;
mod seeds;
mod serving;
mod serving_sets;
mod shipped;
mod simulate;
mod slices;
mod spark;
mod status;
mod terminating;
mod topology;
mod traces;
mod trainer_runtimes;
mod trainjob;
mod visibility;
mod writes;
