//! What this build is.

/// The version of the crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, if the build has it (`SLUICE_GIT_COMMIT`).
pub const COMMIT: &str = match option_env!("SLUICE_GIT_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The date of that commit, if the build has it (`SLUICE_BUILD_DATE`). Not when it was built: the same commit makes the same binary.
pub const BUILD_DATE: &str = match option_env!("SLUICE_BUILD_DATE") {
    Some(date) => date,
    None => "unknown",
};

/// The platform, in Go's spelling as Kueue's metric has it.
pub fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}
