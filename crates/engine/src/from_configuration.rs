//! The engine's configuration from the manager's file.

use sluice_api::config::{
    self, Configuration, PreemptionStrategy, QuotaCheckStrategy, RequeuingTimestamp, TransformationStrategy,
};
use sluice_core as core;

use crate::config::{EngineConfig, ResourceConfig, Transformation, WaitForPodsReady};

impl From<&Configuration> for EngineConfig {
    fn from(file: &Configuration) -> Self {
        let retention = file.object_retention_policies.workloads.unwrap_or_default();
        Self {
            gates: file.gates,
            manage_jobs_without_queue_name: file.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: Some(file.managed_jobs_namespace_selector.clone()),
            frameworks: file.job_kinds().into_iter().collect(),
            label_keys_to_copy: file.integrations.label_keys_to_copy.clone(),
            wait_for_pods_ready: file.wait_for_pods_ready.as_ref().map(wait_for_pods_ready),
            fair_sharing: file.fair_sharing.as_ref().map(fair_sharing),
            admission_fair_sharing: file.admission_fair_sharing.as_ref().map(admission_fair_sharing),
            resources: resources(&file.resources),
            retention_after_finished_seconds: retention.after_finished.map(config::Duration::as_secs),
            retention_after_deactivated_seconds: retention
                .after_deactivated_by_kueue
                .map(config::Duration::as_secs),
            cluster_queue_resource_metrics: file.metrics.enable_cluster_queue_resources,
            local_queue_metrics: file.metrics.local_queue_metrics.enable,
            ..Self::default()
        }
    }
}

fn wait_for_pods_ready(file: &config::WaitForPodsReady) -> WaitForPodsReady {
    let strategy = &file.requeuing_strategy;
    WaitForPodsReady {
        timeout_seconds: file.timeout.as_secs(),
        // Zero switches the check of recovery off.
        recovery_timeout_seconds: Some(file.recovery_timeout.as_secs()).filter(|seconds| *seconds > 0),
        block_admission: file.block_admission,
        order_by_eviction: strategy.timestamp == RequeuingTimestamp::Eviction,
        backoff_limit_count: strategy.backoff_limit_count,
        backoff_base_seconds: strategy.backoff_base_seconds.into(),
        backoff_max_seconds: strategy.backoff_max_seconds.into(),
    }
}

fn fair_sharing(file: &config::FairSharing) -> core::FairSharing {
    let strategy = |strategy: &PreemptionStrategy| match strategy {
        PreemptionStrategy::LessThanOrEqualToFinalShare => core::FairStrategy::LessThanOrEqualToFinalShare,
        PreemptionStrategy::LessThanInitialShare => core::FairStrategy::LessThanInitialShare,
    };
    core::FairSharing { strategies: file.preemption_strategies.iter().map(strategy).collect() }
}

fn admission_fair_sharing(file: &config::AdmissionFairSharing) -> core::AdmissionFairSharing {
    core::AdmissionFairSharing {
        half_life_seconds: file.usage_half_life_time.as_secs(),
        sampling_interval_seconds: file.usage_sampling_interval.as_secs(),
        resource_weights: file.resource_weights.iter().map(|(name, w)| (name.as_str().into(), *w)).collect(),
    }
}

fn resources(file: &config::Resources) -> ResourceConfig {
    let transformation = |t: &config::Transformation| {
        let made = Transformation {
            retain: t.strategy == TransformationStrategy::Retain,
            multiply_by: t.multiply_by.clone(),
            outputs: t.outputs.clone(),
        };
        (t.input.clone(), made)
    };
    ResourceConfig {
        exclude_prefixes: file.exclude_resource_prefixes.clone(),
        ignore_undeclared: file.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared,
        transformations: file.transformations.iter().map(transformation).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(fields: &str) -> EngineConfig {
        let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{fields}");
        EngineConfig::from(&Configuration::parse(&text).unwrap().0)
    }

    #[test]
    fn a_file_without_fields_waits_for_pods_and_shares_nothing() {
        let config = engine("");
        let wait = config.wait_for_pods_ready.unwrap();
        assert_eq!((wait.timeout_seconds, wait.recovery_timeout_seconds), (1800, Some(1800)));
        assert!(wait.order_by_eviction && !wait.block_admission);
        assert_eq!(config.fair_sharing, None);
        assert_eq!(config.retention_after_finished_seconds, None);
    }

    #[test]
    fn retention_and_fair_sharing_are_taken_over() {
        let config = engine(
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n\
             objectRetentionPolicies: {workloads: {afterFinished: 1m}}\n\
             waitForPodsReady: {recoveryTimeout: 0s}\n",
        );
        assert_eq!(config.fair_sharing.unwrap().strategies, [core::FairStrategy::LessThanInitialShare]);
        assert_eq!(config.retention_after_finished_seconds, Some(60));
        assert_eq!(config.wait_for_pods_ready.unwrap().recovery_timeout_seconds, None);
    }
}
