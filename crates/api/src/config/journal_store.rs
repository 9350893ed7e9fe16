//! `journal.store`: the object store that receives the journal's files.

use serde::Serialize;

use super::Duration;
use super::reader::Reader;
use super::url::{absolute_path, unusual, wrong_url};

/// Where passwords and keys belong.
const INSTEAD: &str = "keys are given by the environment, or by the pod's identity";
/// The shortest and the longest time after which a file is closed.
const EVERY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(24 * 3600));

/// `journal.store`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalStore {
    /// Where files go: `gs://BUCKET/PATH`, `s3://BUCKET/PATH` or `az://ACCOUNT/CONTAINER/PATH`; the path may be left out. Absent: files stay in
    /// the folder.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// URL of a store that is not the provider's own, for example of one that speaks S3's protocol. Absent: the provider's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The region of an `s3://` bucket. Absent: that of the environment (`AWS_REGION`), else us-east-1.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// File with certificates (PEM) of authorities that are trusted besides those of the system, read again for each request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// A file with lines is closed and sent after this time, from 5s to 24h. 5m.
    pub every: Duration,
}

impl Default for JournalStore {
    fn default() -> Self {
        let none = String::new;
        Self {
            url: none(),
            endpoint: none(),
            region: none(),
            ca_file: none(),
            every: Duration::from_secs(5 * 60),
        }
    }
}

/// Where files go, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// Google Cloud Storage.
    Google {
        /// The bucket.
        bucket: String,
    },
    /// Amazon S3, or what speaks its protocol.
    Amazon {
        /// The bucket.
        bucket: String,
    },
    /// Azure Blob Storage.
    Azure {
        /// The storage account.
        account: String,
        /// The container.
        container: String,
    },
}

impl JournalStore {
    /// Whether everything is as by default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The place that the URL names, and the path in it, without slashes at its ends; nothing without a URL.
    pub fn place(&self) -> Option<(StorePlace, &str)> {
        place(&self.url).ok()
    }
}

/// Reads the section.
pub(super) fn store(reader: Option<Reader<'_>>) -> JournalStore {
    let default = JournalStore::default();
    let Some(mut reader) = reader else { return default };
    let url = reader.string("url").unwrap_or_default();
    let scheme = url.split("://").next().unwrap_or_default();
    if !url.is_empty()
        && let Some(why) = unusual(&url, INSTEAD).or_else(|| place(&url).err())
    {
        reader.error("url", why);
    }
    let endpoint = reader.string("endpoint").unwrap_or_default();
    if let Some(why) = wrong_url(&endpoint, INSTEAD).filter(|_| !endpoint.is_empty()) {
        reader.error("endpoint", why);
    }
    let region = reader.string("region").unwrap_or_default();
    if !region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        reader.error("region", format!("expected lower case letters, digits and -, found {region:?}"));
    } else if !region.is_empty() && scheme != "s3" {
        reader.error("region", "can only be used where url begins with s3://");
    }
    let ca_file = absolute_path(&mut reader, "caFile");
    let every = reader.duration("every").unwrap_or(default.every);
    if !(EVERY.0..=EVERY.1).contains(&every) {
        reader.error("every", format!("expected a duration from 5s to 24h, found {every}"));
    }
    let store = JournalStore { url, endpoint, region, ca_file, every };
    if store.url.is_empty() && !store.is_default() {
        reader.error("url", "is required");
    }
    store
}

/// Takes a URL apart.
fn place(url: &str) -> Result<(StorePlace, &str), String> {
    let wrong = |why: &str| format!("invalid value {url:?}: {why}");
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (place, path) = match scheme {
        "gs" | "s3" => {
            if !is_bucket(first) {
                return Err(wrong("expected a bucket of 3 to 222 lower case letters, digits, -, _ and ."));
            }
            let bucket = first.to_owned();
            let google = scheme == "gs";
            let place = if google { StorePlace::Google { bucket } } else { StorePlace::Amazon { bucket } };
            (place, rest)
        }
        "az" => {
            let (container, path) = rest.split_once('/').unwrap_or((rest, ""));
            let is_account = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            if !((3..=24).contains(&first.len()) && first.bytes().all(is_account)) {
                return Err(wrong("expected a storage account of 3 to 24 lower case letters and digits"));
            }
            if !(is_bucket(container) && container.len() <= 63) || container.contains(['.', '_']) {
                return Err(wrong("expected a container of 3 to 63 lower case letters, digits and -"));
            }
            (StorePlace::Azure { account: first.to_owned(), container: container.to_owned() }, path)
        }
        _ => return Err(wrong("expected a URL that begins with gs://, s3:// or az://")),
    };
    let path = path.strip_suffix('/').unwrap_or(path);
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'=');
    let is_part = |part: &str| !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(usual);
    if !path.is_empty() && !path.split('/').all(is_part) {
        return Err(wrong(
            "expected a path of letters, digits, -, _, . and =, without empty parts, . and ..",
        ));
    }
    Ok((place, path))
}

fn is_bucket(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let usual = |byte: u8| plain(byte) || matches!(byte, b'-' | b'_' | b'.');
    let ends = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    (3..=222).contains(&name.len()) && ends && name.bytes().all(usual) && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::{Duration, JournalStore, StorePlace};
    use crate::config::Configuration;

    fn parsed(store: &str) -> Result<Configuration, String> {
        let file = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\njournal: {{directory: /j, store: {{{store}}}}}"
        );
        Configuration::parse(&file).map(|(configuration, _)| configuration).map_err(|why| why.to_string())
    }

    fn store(text: &str) -> JournalStore {
        parsed(text).unwrap().journal.store
    }

    #[test]
    fn a_store_has_a_url_and_a_file_is_sent_every_five_minutes() {
        let found = store(r#"url: "gs://team-journal/sluice/prod""#);
        assert_eq!(found.every, Duration::from_secs(300));
        let bucket = "team-journal".to_owned();
        assert_eq!(found.place(), Some((StorePlace::Google { bucket }, "sluice/prod")));
        let file = parsed(
            r#"url: "s3://b-1/", every: 30s, region: eu-west-1, endpoint: "https://m:9000", caFile: /ca"#,
        );
        let file = file.unwrap();
        let bucket = "b-1".to_owned();
        assert_eq!(file.journal.store.place(), Some((StorePlace::Amazon { bucket }, "")));
        let text = file.effective_yaml();
        for line in
            ["url: s3://b-1/", "every: 30s", "region: eu-west-1", "endpoint: https://m:9000", "caFile: /ca"]
        {
            assert!(text.contains(line), "{text}");
        }
        let (account, container) = ("acc1".to_owned(), "journal".to_owned());
        let azure = Some((StorePlace::Azure { account, container }, "a/b=1"));
        assert_eq!(store(r#"url: "az://acc1/journal/a/b=1""#).place(), azure);
        assert_eq!(JournalStore::default().place(), None);
    }

    #[test]
    fn every_mistake_is_named_by_its_path() {
        for (section, path) in [
            ("url: /mnt/bucket", "journal.store.url"),
            ("url: \"ftp://bucket\"", "journal.store.url"),
            ("url: \"s3://\"", "journal.store.url"),
            ("url: \"s3://Bucket\"", "journal.store.url"),
            ("url: \"s3://bucket/../other\"", "journal.store.url"),
            ("url: \"s3://bucket//a\"", "journal.store.url"),
            ("url: \"s3://bucket/a%2f\"", "journal.store.url"),
            ("url: \"az://account\"", "journal.store.url"),
            ("url: \"az://my-account/container\"", "journal.store.url"),
            ("every: 1m", "journal.store.url"),
            ("url: \"s3://bucket\", every: 1s", "journal.store.every"),
            ("url: \"s3://bucket\", every: 25h", "journal.store.every"),
            ("url: \"s3://bucket\", every: -5m", "journal.store.every"),
            ("url: \"s3://bucket\", caFile: ca.crt", "journal.store.caFile"),
            ("url: \"s3://bucket\", endpoint: \"minio:9000\"", "journal.store.endpoint"),
            ("url: \"gs://bucket\", region: eu-west-1", "journal.store.region"),
            ("url: \"s3://bucket\", region: \"a/b\"", "journal.store.region"),
            ("url: \"s3://bucket\", accessKey: x", "journal.store.accessKey"),
        ] {
            let why = parsed(section).unwrap_err();
            assert!(why.contains(path), "{section}: {why}");
        }
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\njournal: {store: {url: \"s3://bucket\"}}";
        let why = Configuration::parse(file).unwrap_err().to_string();
        assert!(why.contains("journal.directory"), "{why}");
    }

    #[test]
    fn no_message_repeats_a_key_that_was_written_into_a_url() {
        for section in [
            "url: \"s3://AKIA:geheim@bucket/path\"",
            "url: \"s3://bucket/path?X-Amz-Signature=geheim\"",
            "url: \"s3://bucket\", endpoint: \"https://u:geheim@minio\"",
            "url: \"az://account/container?sig=geheim\"",
            "url: \"s3://AKIA:wJalr/geheim@bucket\"",
            "url: \"s3://bucket\", endpoint: \"https://u:ge/heim@minio\"",
            "url: \"s3://bucket?X-Amz-Signature=geheim \"",
            "url: \"s3://bucket/geheim \"",
        ] {
            let why = parsed(section).unwrap_err();
            let repeats = ["geheim", "heim@", "AKIA"].iter().any(|part| why.contains(part));
            assert!(why.contains("journal.store.") && !repeats, "{section}: {why}");
        }
    }
}
