//! Opens the page of a laptop's dashboard in a browser. The key is passed in a file that only its owner may read: every user of the machine can see
//! the arguments of a program.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustls::crypto::ring;

/// The bytes of a key.
const KEY: usize = 24;

/// A key that cannot be guessed: forty-eight hexadecimal digits.
///
/// # Errors
///
/// If the system has no random numbers.
pub fn key() -> io::Result<String> {
    let mut bytes = [0_u8; KEY];
    let random = ring::default_provider().secure_random.fill(&mut bytes);
    random.map_err(|_| io::Error::other("the system has no random numbers"))?;
    let mut text = String::new();
    for byte in bytes {
        // Writing into a String does not fail.
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
    }
    Ok(text)
}

/// Whether a key is the right one; takes the same time for every wrong key of its length.
pub fn is_key(given: &str, key: &str) -> bool {
    given.len() == key.len() && given.bytes().zip(key.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// A file that leads to the page; removed when it is dropped.
#[derive(Debug)]
pub struct Way(PathBuf);

impl Way {
    /// Writes the file. `url` has no characters that mean something in HTML.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers, or the file cannot be made in the folder or cannot be written.
    pub fn to(url: &str, folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("sluice-dashboard-{}.html", key()?));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        let way = Self(path);
        writeln!(
            file,
            "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={url}\"><title>Sluice</title>"
        )?;
        Ok(way)
    }

    /// Opens it in the user's browser.
    ///
    /// # Errors
    ///
    /// If the program that opens files (`open` on macOS, else `xdg-open`) is not installed or cannot be started.
    pub fn open(&self) -> io::Result<()> {
        let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let mut command = Command::new(program);
        command.arg(&self.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(drop)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // It may be deleted already.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_only_the_whole_one_is_right() {
        let (one, two) = (key().unwrap(), key().unwrap());
        assert_eq!(one.len(), 2 * KEY);
        assert!(is_key(&one, &one) && !is_key(&two, &one) && !is_key(&one[..47], &one) && !is_key("", &one));
    }

    #[test]
    fn the_way_is_for_its_owner_only_and_goes_with_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let way = Way::to("http://127.0.0.1:1/#key=k", folder.path()).unwrap();
        let text = std::fs::read_to_string(&way.0).unwrap();
        assert!(text.contains("url=http://127.0.0.1:1/#key=k"), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&way.0).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let path = way.0.clone();
        drop(way);
        assert!(!path.exists());
    }
}
