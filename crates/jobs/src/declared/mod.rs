//! Job kinds that the configuration declares (`integrations.declared`): paths and expressions replace the code of a built-in kind.
//!
//! [`declare`] compiles them once, when a configuration is loaded. From then on they are kinds like all others, as long as the process runs.

mod adapter;
mod cel;
mod compile;
mod gated;
mod made;
mod places;
mod resumed;

use std::sync::{PoisonError, RwLock};

use sluice_api::config::{ConfigErrors, Configuration, DeclaredKind, FieldError};
use sluice_api::job::JobKind;

pub(crate) use self::adapter::Declared;
pub(crate) use self::resumed::remembered;

/// The declared kinds.
static DECLARED: RwLock<Vec<&'static Declared>> = RwLock::new(Vec::new());

/// The adapter of a declared kind.
pub(crate) fn of(kind: JobKind) -> Option<&'static Declared> {
    let known = DECLARED.read().unwrap_or_else(PoisonError::into_inner);
    known.iter().find(|declared| declared.of == kind).copied()
}

/// Registers the kinds that a configuration declares. The same declaration may be repeated.
///
/// # Errors
///
/// The problems, with their paths: an expression that cannot be compiled, a path that cannot be read, states that its expressions do not recognize;
/// or another declaration of a registered kind: kinds do not change while a process runs.
pub fn declare(configuration: &Configuration) -> Result<(), ConfigErrors> {
    declare_kinds(&configuration.integrations.declared)
}

/// Registers kinds: see [`declare`].
///
/// # Errors
///
/// As [`declare`]; then none of the kinds is registered.
pub fn declare_kinds(kinds: &[DeclaredKind]) -> Result<(), ConfigErrors> {
    let (mut compiled, mut errors) = (Vec::new(), Vec::new());
    let mut known = DECLARED.write().unwrap_or_else(PoisonError::into_inner);
    for (index, declaration) in kinds.iter().enumerate() {
        let path = format!("integrations.declared[{index}]");
        let framework = declaration.framework();
        match known.iter().find(|one| one.of.framework() == framework) {
            Some(one) if one.declaration == *declaration => {}
            Some(_) => {
                let message = format!("{framework:?} was declared before, with other contents");
                errors.push(FieldError { path, message });
            }
            None => match compile::compile(declaration, &path) {
                Ok(declared) => compiled.push(declared),
                Err(found) => errors.extend(found),
            },
        }
    }
    if !errors.is_empty() {
        return Err(ConfigErrors(errors));
    }
    for declared in compiled {
        let declared: &'static Declared = Box::leak(Box::new(declared));
        known.push(declared);
        // Its adapter exists before the kind is seen.
        declared.of.make_known();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
