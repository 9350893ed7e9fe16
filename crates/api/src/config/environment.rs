//! Inputs of the configuration besides the file.

/// Which version a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileVersion {
    V1beta1,
    V1beta2,
}

/// The inputs of defaults besides the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The namespace of the service account, else `kueue-system`.
    pub namespace: String,
    /// Default of `webhook.certDir`: `k8s-webhook-server/serving-certs` in the temporary folder.
    pub certificate_folder: String,
    /// The value of `--feature-gates`, if it was given.
    pub feature_gates: Option<String>,
}

impl Default for Environment {
    fn default() -> Self {
        let folder = std::env::temp_dir().join("k8s-webhook-server").join("serving-certs");
        Self {
            namespace: "kueue-system".to_owned(),
            certificate_folder: folder.to_string_lossy().into_owned(),
            feature_gates: None,
        }
    }
}
