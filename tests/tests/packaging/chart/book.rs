//! The book's helm values and commands make objects that the API server accepts.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_testkit::assets;

use super::objects;

/// README.md, and all pages below `docs`.
fn pages() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let root = assets::workspace();
    let mut found = vec![root.join("README.md")];
    below(&root.join("docs"), &mut found);
    found.sort();
    found
}

/// The blocks of a page that are values of the chart.
fn values(page: &str) -> Vec<&str> {
    let blocks = page.split("\n```yaml values\n").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap()).collect()
}

/// What each line of a page gives to `--set`; a line that ends in a backslash continues.
fn set(page: &str) -> Vec<Vec<String>> {
    let page = page.replace("\\\n", " ");
    let line = |line: &str| -> Vec<String> {
        let given = line.split("--set ").skip(1);
        given.filter_map(|rest| rest.split([' ', '`']).next()).map(str::to_owned).collect()
    };
    page.lines().map(line).filter(|all| !all.is_empty()).collect()
}

/// The volumes of the manager: the API server takes one source of each.
fn has_one_source_each(name: &str, values: &[&str]) {
    let objects = objects(values);
    let pod = &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"];
    for volume in pod["volumes"].as_array().unwrap() {
        let sources: Vec<_> = volume.as_object().unwrap().keys().filter(|key| *key != "name").collect();
        assert_eq!(sources.len(), 1, "{name}: {volume}");
    }
}

#[test]
fn values_and_commands_of_the_book_make_volumes_of_one_source() {
    let folder = tempfile::tempdir().unwrap();
    let (mut blocks, mut commands) = (0, 0);
    for path in pages() {
        let (name, page) = (path.display().to_string(), fs::read_to_string(&path).unwrap());
        for text in values(&page) {
            let file = folder.path().join("values.yaml");
            fs::write(&file, text).unwrap();
            has_one_source_each(&name, &[&format!("@{}", file.display())]);
            blocks += 1;
        }
        for all in set(&page) {
            has_one_source_each(&name, &all.iter().map(String::as_str).collect::<Vec<_>>());
            commands += 1;
        }
    }
    assert!(blocks >= 5 && commands >= 5, "{blocks} blocks of values, {commands} commands");
}

#[test]
fn an_update_strategy_is_the_users_or_one_that_can_come_to_its_end() {
    let of = |values: &[&str]| -> Value {
        objects(values)["Deployment/kueue-controller-manager"]["spec"]["strategy"].clone()
    };
    let recreate = of(&["controllerManager.strategy.type=Recreate"]);
    assert_eq!(recreate, serde_json::json!({"type": "Recreate"}));
    let rolling = |surge: u32, unavailable: u32| serde_json::json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    let on_the_node = "controllerManager.hostNetwork=true";
    let [surge, unavailable] = [
        "controllerManager.strategy.rollingUpdate.maxSurge",
        "controllerManager.strategy.rollingUpdate.maxUnavailable",
    ];
    assert_eq!(of(&[]), rolling(1, 0));
    // There a replica more would find the ports taken on each of two nodes.
    assert_eq!(of(&[on_the_node]), rolling(0, 1));
    assert_eq!(of(&[on_the_node, &format!("{surge}=2")]), rolling(2, 0));
    assert_eq!(of(&[&format!("{surge}=0"), &format!("{unavailable}=1")]), rolling(0, 1));
}
