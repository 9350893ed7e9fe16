//! Common parts of commands that write: dry runs, and their output.

use clap::{Args, ValueEnum};
use serde_json::Value;
use sluice_sim::Kind;

use crate::cluster::shown;
use crate::output::{Format, OutputArgs};
use crate::print::print;

/// How far a command goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Do it
    #[default]
    None,
    /// Send nothing: show what would be sent
    Client,
    /// Let the API server check it without storing it
    Server,
}

/// Flags of commands that write.
#[derive(Clone, Debug, Default, Args)]
pub struct WriteArgs {
    /// Whether to do it, to show it, or to have the API server check it
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub dry_run: DryRun,
    /// How to print the object.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl WriteArgs {
    /// The requested format.
    ///
    /// # Errors
    /// If this program does not write that format.
    pub fn format(&self, kind: Kind) -> anyhow::Result<Option<Format>> {
        let format = self.output.format()?;
        if let Some(format) = &format {
            // This comes before the write: refusing the format afterwards would be too late.
            self.output.render(format, kind, Vec::new(), false)?;
        }
        Ok(format)
    }

    /// The query parameter for a dry run, to append to a query.
    pub fn query(&self) -> &'static str {
        if self.dry_run == DryRun::Server { "&dryRun=All" } else { "" }
    }

    /// Prints the object in the requested format, or else what was done to it.
    ///
    /// # Errors
    /// If it cannot be printed.
    pub fn report(
        &self,
        format: Option<&Format>,
        kind: Kind,
        object: Value,
        done: &str,
    ) -> anyhow::Result<()> {
        if let Some(format) = format {
            return Ok(print(&self.output.render(format, kind, vec![object], true)?)?);
        }
        let dry = match self.dry_run {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Ok(print(&format!("{} {done}{dry}\n", shown(kind, name)))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_is_not_written_is_refused_before_anything_is_done() {
        let with = |output: &str| WriteArgs {
            output: OutputArgs { output: Some(output.to_owned()), ..OutputArgs::default() },
            ..WriteArgs::default()
        };
        for output in ["go-template={{.kind}}", "wide", "custom-columns=A:.b"] {
            let error = with(output).format(Kind::Workload).unwrap_err().to_string();
            assert!(error.contains("this command prints name, json, yaml"), "{error}");
        }
        // As with kubectl, a template without a format is one of Go's.
        let output = OutputArgs { template: Some("{{.kind}}".to_owned()), ..OutputArgs::default() };
        let error =
            WriteArgs { output, ..WriteArgs::default() }.format(Kind::Workload).unwrap_err().to_string();
        assert!(error.starts_with("-o go-template: this command prints name, json, yaml"), "{error}");
        assert_eq!(with("yaml").format(Kind::Workload).unwrap(), Some(Format::Yaml));
        assert_eq!(WriteArgs::default().format(Kind::Workload).unwrap(), None);
    }
}
