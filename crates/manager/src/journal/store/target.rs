//! The bucket and the path in it that files are sent to, and sending a file.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig};
use sluice_api::config::{JournalStore, StorePlace};
use sluice_client::error_chain::Chain;

use super::client::Client;
use crate::supervise;

/// The memory of an upload, in bytes: a smaller file is sent in one request, a larger one in parts of this size.
pub(in crate::journal) const PART: usize = 8 << 20;

/// Variables of the environment.
pub(super) type Variables = Vec<(String, String)>;

/// Why the settings of a store are no good.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The URL.
    #[error("journal.store.url: {0:?} is not a bucket URL: use gs://, s3:// or az://")]
    Url(String),
    /// The certificates.
    #[error("{0}")]
    Certificates(String),
    /// The environment's settings for the store are wrong.
    #[error("journal.store: the environment's settings for {0} are invalid: {1}")]
    Environment(String, String),
}

/// Why a file is not in the store.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// The store does not want it: the same will be refused again.
    #[error("{0}")]
    Refused(String),
    /// Other files have its names.
    #[error("{0} exists already, with other contents")]
    Taken(String),
    /// The store cannot be reached, or has trouble.
    #[error("{0}")]
    Unavailable(String),
    /// The file cannot be read.
    #[error("reading a file of the journal: {0}")]
    File(#[from] io::Error),
}

/// Where files go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    store: Arc<dyn ObjectStore>,
    client: Client,
    path: Path,
}

impl Target {
    /// From the configuration and the environment.
    ///
    /// # Errors
    /// If something in them is unusable: that has to be reported at the start, not by missing files.
    pub fn new(section: &JournalStore, client: Client, variables: &Variables) -> Result<Self, SettingsError> {
        let (place, path) = section.place().ok_or_else(|| SettingsError::Url(section.url.clone()))?;
        let path = Path::parse(path).map_err(|_| SettingsError::Url(section.url.clone()))?;
        let store = store(section, place, client.clone(), variables)
            .map_err(|error| SettingsError::Environment(section.url.clone(), plain(&error.to_string())))?;
        Ok(Self { store, client, path })
    }

    /// Sends a file, unless it is there already: an object with other content is never overwritten.
    ///
    /// # Errors
    /// If it is not in the store afterwards, as far as that is known.
    pub async fn send(&self, name: &str, file: File) -> Result<(), SendError> {
        let size = file.metadata()?.len();
        let object = self.path.clone().join(name);
        if self.put(&object, &file, size).await? {
            return Ok(());
        }
        // There is an object of this name with another size: where other machines do not see the lock of a file, one of them has sent it before it
        // was complete.
        let stem = name.strip_suffix(".jsonl").unwrap_or(name);
        let object = self.path.clone().join(format!("{stem}-{size}.jsonl"));
        if self.put(&object, &file, size).await? {
            return Ok(());
        }
        Err(SendError::Taken(object.to_string()))
    }

    /// Whether the object equals the current file; false if another object has its name.
    async fn put(&self, object: &Path, file: &File, size: u64) -> Result<bool, SendError> {
        let part = u64::try_from(PART).unwrap_or(u64::MAX);
        if size > part {
            return match self.size_of(object).await {
                Ok(Some(found)) => Ok(found == size),
                // Without the right to read it, the upload is tried.
                Ok(None) | Err(SendError::Refused(_)) => {
                    self.put_parts(object, file, size).await.map(|()| true)
                }
                Err(error) => Err(error),
            };
        }
        let payload = PutPayload::from(read(file, 0, size).await?);
        // Drops the outcome of an earlier attempt.
        self.client.take_said();
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(object, payload, options).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => match self.size_of(object).await {
                Ok(Some(found)) => Ok(found == size),
                // Another request is just creating it.
                Ok(None) => Err(SendError::Unavailable(format!("{object} is not there yet"))),
                // Without the right to read it, its name has to be enough, which no other process uses.
                Err(SendError::Refused(_)) => Ok(true),
                Err(error) => Err(error),
            },
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// The size of an object, if there is one.
    async fn size_of(&self, object: &Path) -> Result<Option<u64>, SendError> {
        self.client.take_said();
        match self.store.head(object).await {
            Ok(found) => Ok(Some(found.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn put_parts(&self, object: &Path, file: &File, size: u64) -> Result<(), SendError> {
        let part = u64::try_from(PART).unwrap_or(u64::MAX);
        self.client.take_said();
        let mut upload = self.store.put_multipart(object).await.map_err(|error| self.failed(&error))?;
        let mut at = 0;
        let sent = loop {
            if at >= size {
                break upload.complete().await.map(|_| ()).map_err(|error| self.failed(&error));
            }
            let bytes = part.min(size - at);
            let payload = match read(file, at, bytes).await {
                Ok(payload) => payload,
                Err(error) => break Err(error.into()),
            };
            if let Err(error) = upload.put_part(payload.into()).await {
                break Err(self.failed(&error));
            }
            at += bytes;
        };
        if sent.is_err() {
            // Parts that stay behind are the bucket's to remove, by a rule of its own.
            let _ = upload.abort().await;
        }
        sent
    }

    /// The reason: the store's last error, else what kept the request from being made.
    fn failed(&self, error: &Error) -> SendError {
        match self.client.take_said() {
            Some(said) if said.is_refused() => SendError::Refused(said.to_string()),
            Some(said) => SendError::Unavailable(said.to_string()),
            None => SendError::Refused(plain(&Chain(error).to_string())),
        }
    }
}

/// The part of an error before any quotation: an error about a key may quote a part of it.
fn plain(why: &str) -> String {
    why.split(['"', '`']).next().unwrap_or_default().trim_end().to_owned()
}

/// A part of a file.
async fn read(file: &File, from: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let file = file.try_clone()?;
    let reading = supervise::blocking("a part of a journal file", move || {
        use std::io::Seek as _;
        let mut file = file;
        file.seek(io::SeekFrom::Start(from))?;
        let mut part = Vec::with_capacity(usize::try_from(bytes).unwrap_or(PART).min(PART));
        file.take(bytes).read_to_end(&mut part)?;
        let is_whole = u64::try_from(part.len()).is_ok_and(|read| read == bytes);
        if is_whole { Ok(part) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    });
    reading.await.map_err(io::Error::other)?
}

/// The store of a place. Each provider's crate knows its own variables; ours are the bucket, the endpoint and the region.
fn store(
    section: &JournalStore,
    place: StorePlace,
    client: Client,
    variables: &Variables,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry =
        RetryConfig { max_retries: 0, retry_timeout: Duration::from_mins(1), ..RetryConfig::default() };
    let of = |prefix: &'static str| {
        let own = variables.iter().filter(move |(key, _)| key.starts_with(prefix));
        own.map(|(key, value)| (key.to_ascii_lowercase(), value.clone()))
    };
    // Where the store is the configuration says alone, and no variable.
    let endpoint = Some(section.endpoint.as_str()).filter(|endpoint| !endpoint.is_empty());
    Ok(match place {
        StorePlace::Google { bucket } => {
            let mut builder = GoogleCloudStorageBuilder::new();
            for (key, value) in of("GOOGLE_") {
                if let Ok(key) = key.parse::<GoogleConfigKey>()
                    && !matches!(key, GoogleConfigKey::BaseUrl)
                {
                    builder = builder.with_config(key, value);
                }
            }
            builder = builder.with_bucket_name(bucket).with_http_connector(client).with_retry(retry);
            if let Some(endpoint) = endpoint {
                builder = builder.with_base_url(endpoint);
            }
            Arc::new(builder.build()?)
        }
        StorePlace::Amazon { bucket } => {
            let mut builder = AmazonS3Builder::new();
            for (key, value) in of("AWS_") {
                if !matches!(key.as_str(), "aws_endpoint" | "aws_endpoint_url" | "aws_endpoint_url_s3")
                    && let Ok(key) = key.parse()
                {
                    builder = builder.with_config(key, value);
                }
            }
            builder = builder.with_bucket_name(bucket).with_http_connector(client).with_retry(retry);
            if let Some(endpoint) = endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            if !section.region.is_empty() {
                builder = builder.with_region(&section.region);
            }
            Arc::new(builder.build()?)
        }
        StorePlace::Azure { account, container } => {
            let mut builder = MicrosoftAzureBuilder::new();
            for (key, value) in of("AZURE_") {
                if let Ok(key) = key.parse::<AzureConfigKey>()
                    && !matches!(
                        key,
                        AzureConfigKey::Endpoint
                            | AzureConfigKey::UseEmulator
                            | AzureConfigKey::UseFabricEndpoint
                    )
                {
                    builder = builder.with_config(key, value);
                }
            }
            builder = builder.with_account(account).with_container_name(container);
            builder = builder.with_http_connector(client).with_retry(retry);
            if let Some(endpoint) = endpoint {
                builder = builder.with_endpoint(endpoint.to_owned());
            }
            Arc::new(builder.build()?)
        }
    })
}
