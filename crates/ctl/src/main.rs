//! The binary `kubectl-kueue`, which kubectl runs as `kubectl kueue`.

use std::process::ExitCode;

use clap::Parser as _;
use sluice_ctl::cli::Plugin;
use sluice_ctl::error_chain::Chain;

/// What simulates makes and drops many small documents.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Exactly one TLS provider, before anything else can choose another.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plugin = Plugin::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("kubectl kueue: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(plugin.command.run()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("kubectl kueue: {}", Chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
