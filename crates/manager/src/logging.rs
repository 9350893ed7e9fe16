//! Log output: one line per decision, as JSON or text, on standard error.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// `--log-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// Readable lines.
    Text,
}

/// Why a log level is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown log level {0:?}: want error, warn, info, debug, trace, a verbosity 0 to 10, or target=level pairs"
)]
pub struct LogLevelError(String);

/// Turns `--log-level` into a filter: names, zap's verbosities (0 and 1: info, 2 and 3: info, 4 to 6: debug, above: trace;
/// the shipped deployments of Kueue say 2), or tracing's own `target=level` directives.
///
/// # Errors
///
/// If the level is neither a name, nor a number, nor a list of directives that tracing can read.
pub fn filter(level: &str) -> Result<String, LogLevelError> {
    let level = level.trim();
    let name = match level {
        "panic" | "dpanic" | "fatal" => "error",
        "warning" => "warn",
        "error" | "warn" | "info" | "debug" | "trace" => level,
        _ => match level.trim_start_matches('-').parse::<u32>() {
            Ok(0..=3) => "info",
            Ok(4..=6) => "debug",
            Ok(_) => "trace",
            Err(_) if level.contains('=') => {
                return EnvFilter::try_new(level)
                    .map(|_| level.to_owned())
                    .map_err(|_| LogLevelError(level.to_owned()));
            }
            Err(_) => return Err(LogLevelError(level.to_owned())),
        },
    };
    // Libraries speak up only when something is wrong; kube's client not for each request that fails, which is handled and
    // logged where it is made.
    let libraries = if name == "trace" { "debug" } else { "warn,kube_client=off" };
    Ok(format!("{libraries},sluice={name},sluice_manager={name},sluice_engine={name}"))
}

/// The verbosity that a level asks for: a number itself, `debug` 4, `trace` 7, and any other level 0.
pub fn verbosity(level: &str) -> u32 {
    match level.trim() {
        "debug" => 4,
        "trace" => 7,
        level => level.trim_start_matches('-').parse().unwrap_or(0),
    }
}

/// Installs the subscriber; may be called once per process.
///
/// # Errors
///
/// If [`filter`] does not take the level. A subscriber that is installed already is no error.
pub fn init(level: &str, format: LogFormat) -> Result<(), LogLevelError> {
    let filter = EnvFilter::new(filter(level)?);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
        LogFormat::Text => builder.with_target(false).try_init(),
    };
    // A second call happens only inside one test process, where the first subscriber serves as well.
    drop(installed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zap_verbosities_and_names_are_levels() {
        let of = |level: &str| filter(level).unwrap().rsplit('=').next().unwrap().to_owned();
        assert_eq!(of("2"), "info");
        assert_eq!(of("5"), "debug");
        assert_eq!(of("10"), "trace");
        assert_eq!(of("warning"), "warn");
        assert_eq!(of("debug"), "debug");
    }

    #[test]
    fn numbers_and_names_have_a_verbosity() {
        assert_eq!(["0", "1", "2", "10"].map(verbosity), [0, 1, 2, 10]);
        assert_eq!(
            ["info", "warn", "debug", "trace", "sluice_manager=debug"].map(verbosity),
            [0, 0, 4, 7, 0]
        );
    }

    #[test]
    fn directives_pass_and_nonsense_is_refused() {
        assert_eq!(filter("sluice_manager=trace"), Ok("sluice_manager=trace".to_owned()));
        assert_eq!(filter("loud"), Err(LogLevelError("loud".to_owned())));
    }
}
