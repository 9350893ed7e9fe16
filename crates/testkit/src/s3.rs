//! A server that speaks S3's protocol and checks every signature, built from pinned Go modules (versitygw). Its buckets are folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use crate::assets::Tool;
use crate::certs::WEBHOOK;
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::ports::free_ports;
use crate::process::Program;
use crate::wait::{Progress, eventually};

/// How long it may take until it listens.
const START_DEADLINE: Duration = Duration::from_mins(3);

/// The key that it takes.
pub const KEY: &str = "journal";
/// The secret of the key.
pub const SECRET: &str = "not-a-secret-of-anyone";

/// A running server with one bucket. Dropping it kills the server.
#[derive(Debug)]
pub struct S3Gateway {
    program: Program,
    port: u16,
    bucket: PathBuf,
}

impl S3Gateway {
    /// Starts it with an empty bucket, and waits until it listens. Its certificate is that of the plane's webhooks, for 127.0.0.1.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(plane: &ControlPlane, bucket: &str) -> Result<Self> {
        let port = free_ports(1)?[0];
        let root = plane.folder().join("s3");
        let folder = root.join("data").join(bucket);
        for folder in [&folder, &root.join("meta")] {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let mut command = program(Tool::S3Gateway)?;
        command.arg(format!("127.0.0.1:{port}")).arg(&root).args([KEY, SECRET]);
        command.args(["crt", "key"].map(|file| plane.cert(&format!("{WEBHOOK}.{file}"))));
        let mut gateway =
            Self { program: plane.spawn(Tool::S3Gateway.name(), command)?, port, bucket: folder };
        let program = &mut gateway.program;
        eventually("the S3 server to listen", START_DEADLINE, || {
            let ended = program.check().err();
            async move {
                if let Some(error) = ended {
                    return Ok(Progress::Never(format!("{error:#}")));
                }
                Ok(match tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
                    Ok(_) => Progress::Done(()),
                    Err(error) => Progress::NotYet(error.to_string()),
                })
            }
        })
        .await?;
        Ok(gateway)
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The folder with the bucket's objects.
    pub fn bucket(&self) -> &Path {
        &self.bucket
    }

    /// Lets it stand still: connections are taken by the system, and nothing answers.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn pause(&mut self) -> Result<()> {
        self.program.signal(Signal::STOP)
    }

    /// Lets it continue.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn resume(&mut self) -> Result<()> {
        self.program.signal(Signal::CONT)
    }
}
