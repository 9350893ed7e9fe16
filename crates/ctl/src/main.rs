//! The binary `kubectl-kueue`, which kubectl runs as `kubectl kueue`.

use std::process::ExitCode;

use clap::CommandFactory as _;
use sluice_client::error_chain::complaint;
use sluice_ctl::cli::Plugin;
use sluice_ctl::complete;
use sluice_ctl::print::say;

/// Simulations allocate and free many small documents.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Installs exactly one TLS provider, before anything else can choose another.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match complete::answer(Plugin::command) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return failed(&error),
    }
    let plugin = match Plugin::read(std::env::args_os()) {
        Ok(plugin) => plugin,
        Err(error) => {
            let _ = error.print();
            // kubectl ends with 1 where other programs end with 2.
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(plugin.run()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    say(&complaint("kubectl kueue", error.as_ref()));
    ExitCode::FAILURE
}
