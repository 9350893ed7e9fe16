//! A real Kubernetes control plane for tests and the demo, and the controllers that a test needs beside
//! Sluice: real ones, or stand-ins. Development only: nothing here ships.
//!
//! * [`assets`] finds or builds etcd, kube-apiserver, kubectl, kwok, helm and the rest;
//! * [`ControlPlane`] starts them on free local ports, in one temporary folder, and stops every one of them again, also
//!   when the test process is killed ([`process`]);
//! * [`nodes`] makes fake TPU and GPU nodes whose pods really run (kwok), [`jobset`] runs the JobSet controller and
//!   [`kubeflow`] those of Kubeflow's jobs, [`ray`] KubeRay, [`spark`] the Spark operator, [`controllers`] those of other kinds; [`autoscaler`] is a
//!   **stand-in** for the cluster autoscaler, and [`flux`] one for the Flux operator;
//! * [`Manager`] runs the built `sluice` binary, [`chart`] installs the chart, [`FaultProxy`] makes the API server's days bad, [`Balancer`]
//!   is a Service in front of several managers, [`prometheus`] scrapes them, [`etcd`] shows every change that was stored;
//! * [`s3`] is an object store, [`otel`] a collector of traces;
//! * [`forwarding`] is the **stand-in** for an API server that forwards ports;
//! * [`race`] makes thousands of Workloads, lets them end, and counts what the manager writes;
//! * [`browser`] looks at pages in a headless Chromium;
//! * [`shell`] runs commands as a reader of the book types them;
//! * [`wait`] polls conditions with a deadline and reports what was last seen.
//!
//! Invariants: nothing sleeps for a fixed time to let something happen; every process is stopped by its own id; nothing
//! listens beyond 127.0.0.1.

pub mod assets;
pub mod autoscaler;
mod balancer;
mod binary;
pub mod browser;
mod certs;
mod cgroup;
pub mod chart;
pub mod controllers;
pub mod crds;
pub mod etcd;
pub mod flux;
pub mod forwarding;
pub mod jobset;
mod kubeconfig;
pub mod kubectl;
pub mod kubeflow;
pub mod lws;
mod manager;
pub mod metrics;
pub mod needs;
pub mod nodes;
pub mod otel;
mod plane;
mod plane_faults;
mod plane_parts;
mod ports;
pub mod process;
pub mod prometheus;
mod proxy;
pub mod race;
pub mod ray;
pub mod s3;
mod setup;
mod shared;
pub mod shell;
pub mod spark;
pub mod trainer;
mod vital;
pub mod wait;
pub mod workloads;

pub use balancer::Balancer;
pub use binary::{binary, plugin};
pub use manager::{Manager, health};
pub use plane::{Builder, ControlPlane, client_of, patient_client_of};
pub use plane_faults::Part;
pub use ports::free_ports;
pub use proxy::{Disruption, Fault, FaultProxy, Harm, Scope, Step, Write};
pub use setup::{Limits, Setup};
pub use shared::{Complete, shared};
