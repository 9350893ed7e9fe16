//! Makes the linker write smaller release binaries where the linker and the C library are known to support it: rust-lld, the default on Linux with
//! glibc on x86-64. Equal functions become one, and the table of relocations is packed: glibc reads such a table from version 2.36 on.

use std::env;
use std::process::Command;

fn main() {
    // Cargo runs this script again if its text changes. Cargo would look for a path that is named here in each crate that uses the script.
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|is| is == value);
    // Another linker may not know these flags.
    let own_linker = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if !is("PROFILE", "release") || !is("TARGET", "x86_64-unknown-linux-gnu") || own_linker {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    if is("HOST", "x86_64-unknown-linux-gnu") && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's glibc: the binary runs on this one or a later one.
fn glibc() -> Option<(u32, u32)> {
    let printed = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let printed = String::from_utf8(printed.stdout).ok()?;
    let (major, minor) = printed.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
