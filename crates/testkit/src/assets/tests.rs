use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn every_tool_is_pinned_and_has_a_version() {
    for tool in Tool::ALL {
        let Source { folder, module, package, own } = tool.source();
        let text = fs::read_to_string(modules().join(folder).join("go.mod")).unwrap();
        let version = pinned_version(&text, module);
        assert!(version.is_some_and(|version| version.split('.').count() == 3), "{module}");
        // One with sources of its own is a package of this repository.
        assert_eq!(package.starts_with(module), own.is_empty(), "{package}");
        for companion in tool.companions() {
            assert!(pinned_version(&text, companion.module).is_some(), "{}", companion.name);
        }
    }
}

/// Folders whose programs are made of the same libraries: a library is compiled once for all that have the same version of it and of what
/// it needs.
const ALIKE: [&[&str]; 4] = [
    &["kubernetes", "kwok", "helm", "etcd", "opentelemetry"],
    &["trainer", "jobset", "kubeflow", "ray", "appwrapper", "spark", "lws"],
    // Its libraries are newer than those of the controllers, and do not build with Kubernetes' own.
    &["kueuectl"],
    // It has next to nothing in common with Kubernetes.
    &["s3"],
];
/// Controllers, and what they must have of one version.
const THEIR_OWN: [&str; 5] = [
    "github.com/kubeflow/training-operator",
    "sigs.k8s.io/controller-runtime",
    "sigs.k8s.io/jobset",
    "sigs.k8s.io/scheduler-plugins",
    "volcano.sh/apis",
];

/// The modules that a go.mod requires, with their versions; those that it replaces have none.
fn required(go_mod: &str) -> BTreeMap<&str, &str> {
    let lines = go_mod.lines().filter(|line| !line.contains("=>"));
    let pairs = lines.filter_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        Some((words.next()?, words.next()?))
    });
    pairs.filter(|(_, version)| version.starts_with('v') && *version != "v0.0.0").collect()
}

#[test]
fn what_programs_are_made_of_has_one_version_among_those_that_are_alike() {
    for folders in ALIKE {
        let texts =
            folders.iter().map(|folder| fs::read_to_string(modules().join(folder).join("go.mod")).unwrap());
        let texts: Vec<_> = texts.collect();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (module, version) in texts.iter().flat_map(|text| required(text)) {
            versions.entry(module).or_default().insert(version);
        }
        versions.retain(|module, versions| versions.len() > 1 && !THEIR_OWN.contains(module));
        assert_eq!(versions, BTreeMap::new(), "of {folders:?}");
        assert!(texts.iter().all(|text| required(text).len() > 20));
    }
    let all: BTreeSet<_> = Tool::ALL.iter().map(|tool| tool.source().folder).collect();
    assert_eq!(all, ALIKE.concat().into_iter().collect());
}

#[test]
fn a_program_that_the_environment_gives_is_taken_and_only_that() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("etcd"), "").unwrap();
    let assets = Some(folder.path().as_os_str());
    assert_eq!(given(assets, Tool::Etcd), Some(folder.path().join("etcd")));
    assert_eq!(given(assets, Tool::Kwok), None);
    assert_eq!(given(Some(OsStr::new("")), Tool::Etcd), None);
    assert_eq!(given(None, Tool::Etcd), None);
}

#[test]
fn a_pin_is_read_from_both_forms_of_require() {
    assert_eq!(pinned_version("require a/b v1.2.3", "a/b").as_deref(), Some("v1.2.3"));
    assert_eq!(pinned_version("require (\n\ta/b v1.2.3 // indirect\n)", "a/b").as_deref(), Some("v1.2.3"));
    assert_eq!(pinned_version("tool a/b\nmodule a/b", "a/b"), None);
}

#[test]
fn kubernetes_gets_its_version() {
    let flags = Tool::Kubectl.version_flags("v1.36.3");
    assert!(flags.contains("gitVersion=v1.36.3") && flags.contains("gitMajor=1 "), "{flags}");
    assert!(flags.ends_with("gitMinor=36"), "{flags}");
}

#[test]
fn the_key_of_a_folder_depends_on_every_byte_that_it_is_built_from() {
    const CRD: Companion = Companion { module: "example.com/a", source: "crds/a.yaml", name: "a-crd.yaml" };
    let folder = |files: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("go.mod", "module a"), ("go.sum", "h1:"), ("main.go", "package main")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    };
    let of = |files: &[(&str, &str)], companions: &[Companion]| {
        key(folder(files).path(), &["main.go"], companions).unwrap()
    };
    let plain = of(&[], &[CRD]);
    assert_eq!(plain.len(), 16);
    // Wherever it is, whatever else is there.
    assert_eq!(of(&[("README.md", "not built")], &[CRD]), plain);
    let others = [
        of(&[("go.mod", "module b")], &[CRD]),
        of(&[("go.sum", "h2:")], &[CRD]),
        of(&[("main.go", "package main ")], &[CRD]),
        of(&[], &[]),
        of(&[], &[Companion { module: "example.com/b", ..CRD }]),
        of(&[], &[Companion { source: "crds/b.yaml", ..CRD }]),
        of(&[], &[Companion { name: "b-crd.yaml", ..CRD }]),
        of(&[], &[CRD, CRD]),
        of(&[], &[Companion { source: "crds/a.yam", name: "la-crd.yaml", ..CRD }]),
    ];
    let all: BTreeSet<_> = others.iter().chain([&plain]).collect();
    assert_eq!(all.len(), others.len() + 1);
    assert!(key(tempfile::tempdir().unwrap().path(), &[], &[]).is_err(), "a file is missing");
}

#[test]
fn a_program_is_built_once_however_many_want_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("tool-0123");
    let (builds, all) = (AtomicUsize::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                all.wait();
                let path = path_with(&bin, "tool", |partial| {
                    let number = builds.fetch_add(1, Ordering::Relaxed);
                    Ok(fs::write(partial, number.to_string())?)
                });
                assert_eq!(fs::read_to_string(path.unwrap()).unwrap(), "0");
            });
        }
    });
    let again = path_with(&bin, "tool", |_| bail!("it is there"));
    assert_eq!((again.unwrap(), builds.into_inner()), (bin.join("tool"), 1));
}

#[test]
fn a_build_that_fails_leaves_nothing_that_is_taken_for_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let failed = path_with(folder.path(), "tool", |partial| {
        fs::write(partial, "half of it")?;
        bail!("out of memory")
    });
    assert_eq!(failed.unwrap_err().to_string(), "out of memory");
    let path = path_with(folder.path(), "tool", |partial| Ok(fs::write(partial, "all of it")?));
    assert_eq!(fs::read_to_string(path.unwrap()).unwrap(), "all of it");
}
