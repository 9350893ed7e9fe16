//! Job kinds that the configuration declares.

use super::{Integration, PLAIN};

/// What a declared kind is called.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredNames<'a> {
    /// The API group.
    pub group: &'a str,
    /// The API version inside the group.
    pub version: &'a str,
    /// The kind's name.
    pub kind: &'a str,
    /// The plural resource name.
    pub plural: &'a str,
    /// Whether its jobs end by themselves.
    pub ends: bool,
}

impl DeclaredNames<'_> {
    /// The facts of the kind, its names kept for as long as the process runs.
    pub(super) fn integration(&self) -> Integration {
        let Self { group, version, kind, plural, ends } = self;
        let kept = |name: &str| -> &'static str { String::from(name).leak() };
        let framework = kept(&format!("{group}/{}", kind.to_ascii_lowercase()));
        Integration {
            framework,
            group: kept(group),
            version: kept(version),
            api_version: kept(&format!("{group}/{version}")),
            kind: kept(kind),
            plural: kept(plural),
            // Those of the built-in kinds are single words.
            controller: framework,
            about: kept(&format!("{group}/{version} {kind}, as declared in the configuration")),
            reporter: kept(&format!("{framework}-kueue-controller")),
            ends: *ends,
            declared: true,
            ..PLAIN
        }
    }
}
