// workload.codeflare.dev/v1beta2 AppWrapper. A phase says how it ended.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{Integration, PLAIN};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "workload.codeflare.dev/appwrapper",
    group: "workload.codeflare.dev",
    version: "v1beta2",
    api_version: "workload.codeflare.dev/v1beta2",
    kind: "AppWrapper",
    plural: "appwrappers",
    controller: "appwrapper",
    about: "workload.codeflare.dev/v1beta2 AppWrappers",
    reporter: "workload.codeflare.dev/appwrapper-kueue-controller",
    active: "QuotaReserved",
    ready: "PodsReady",
    wraps_objects: true,
    pod_label: Some("workload.codeflare.dev/appwrapper"),
    managed_by: Some("workload.codeflare.dev/appwrapper-controller"),
    // It makes the components one after the other, and again when it retries: each as the spec has it then.
    follows_changes: true,
    pods_by_adapter: Some("the objects that it wraps have them, each where its kind has them"),
    ..PLAIN
};
