//! The command lines in the book, the README and the examples' READMEs work: they parse with the real definitions, blocks that are marked as runnable
//! run and print the shown output, and manifests are accepted.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

#[path = "docs/blocks.rs"]
mod known;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use known::{BLOCKS, Proof};
use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_api::job::JobKind;
use sluice_cli::Cli;
use sluice_ctl::cli::Plugin;
use sluice_sim::{File, Manifests};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page: its path from the root, and its text.
struct Page {
    path: String,
    text: String,
}

/// A fenced block.
#[derive(Debug, PartialEq)]
struct Block<'a> {
    info: &'a str,
    text: String,
    line: usize,
}

fn collect(folder: &str, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
        if path == "docs/reference" {
            continue;
        }
        if root().join(&path).is_dir() {
            collect(&path, pages);
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
            pages.push(Page { text: fs::read_to_string(root().join(&path)).unwrap(), path });
        }
    }
}

/// What readers follow. The contract describes another project.
fn pages() -> Vec<Page> {
    let mut pages = vec![Page {
        path: "README.md".to_owned(),
        text: fs::read_to_string(root().join("README.md")).unwrap(),
    }];
    collect("docs", &mut pages);
    collect("examples", &mut pages);
    pages
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => open = Some(Block { info, text: String::new(), line: number + 1 }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Code spans outside of blocks.
fn spans(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

/// The commands of a shell text, as words, without comments, redirections and what follows an operator.
fn commands(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in script.lines() {
        let (mut words, mut word, mut quote, mut redirected) = (Vec::new(), None::<String>, None, false);
        let finish = |words: &mut Vec<String>, word: &mut Option<String>, redirected: &mut bool| {
            if let Some(word) = word.take()
                && !std::mem::take(redirected)
            {
                words.push(word);
            }
        };
        for letter in line.chars() {
            match letter {
                _ if quote == Some(letter) => quote = None,
                _ if quote.is_some() => word.get_or_insert_default().push(letter),
                '\'' | '"' => {
                    quote = Some(letter);
                    word.get_or_insert_default();
                }
                '#' if word.is_none() => break,
                '>' => {
                    finish(&mut words, &mut word, &mut redirected);
                    redirected = true;
                }
                '|' | ';' | '&' => {
                    finish(&mut words, &mut word, &mut redirected);
                    commands.push(std::mem::take(&mut words));
                }
                _ if letter.is_whitespace() => finish(&mut words, &mut word, &mut redirected),
                _ => word.get_or_insert_default().push(letter),
            }
        }
        finish(&mut words, &mut word, &mut redirected);
        commands.push(words);
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// What is wrong with a command line of ours; `None` for commands of others too. In prose a command may be named without what it needs.
fn problem(words: &[String], prose: bool) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "…").collect();
    let outcome = match words.as_slice() {
        ["sluice", ..] => Cli::try_parse_from(&words).map(drop),
        ["kubectl", "kueue", ..] => Plugin::try_parse_from(&words[1..]).map(drop),
        ["make", rest @ ..] => return unknown_target(rest),
        _ => return None,
    };
    let error = outcome.err()?;
    let shown = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let lacking = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    (!(shown || prose && lacking)).then(|| error.to_string())
}

fn unknown_target(words: &[&str]) -> Option<String> {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let rules = makefile.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    let targets: BTreeSet<&str> = rules.filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let unknown = words.iter().find(|word| !word.contains('=') && !targets.contains(**word))?;
    Some(format!("the Makefile has no target {unknown}"))
}

#[test]
fn every_command_line_parses() {
    let mut seen = 0;
    let mut problems = Vec::new();
    for page in pages() {
        let shell = blocks(&page.text).into_iter().filter(|block| block.info.starts_with("sh"));
        let in_blocks = shell.flat_map(|block| commands(&block.text)).map(|words| (words, false));
        let in_prose =
            spans(&page.text).into_iter().flat_map(|span| commands(&span)).map(|words| (words, true));
        for (words, prose) in in_blocks.chain(in_prose) {
            let ours = ["sluice", "make"].contains(&words[0].as_str())
                || words.starts_with(&["kubectl".into(), "kueue".into()]);
            seen += usize::from(ours && words.len() > 1);
            if let Some(problem) = problem(&words, prose) {
                problems.push(format!("{}: {}: {problem}", page.path, words.join(" ")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(seen > 60, "{seen}");
}

/// What a command prints.
fn printed(words: &[String], place: &str) -> String {
    let args = match words {
        [program, args @ ..] if program == "sluice" => args,
        // The simulator is the same in both programs.
        [kubectl, plugin, simulate, ..]
            if kubectl == "kubectl" && plugin == "kueue" && simulate == "simulate" =>
        {
            &words[2..]
        }
        _ => panic!("{place}: a runnable block has only commands that need no cluster, not {words:?}"),
    };
    let output = Command::new(env!("CARGO_BIN_EXE_sluice")).args(args).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{place}: {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn runnable_blocks_run_and_print_what_is_shown() {
    let mut ran = 0;
    for page in pages() {
        let blocks = blocks(&page.text);
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.info == "sh runnable") {
            let place = format!("{}:{}", page.path, block.line);
            let outputs: Vec<String> =
                commands(&block.text).iter().map(|words| printed(words, &place)).collect();
            ran += outputs.len();
            let Some(shown) = blocks.get(at + 1).filter(|next| next.info == "text") else { continue };
            let lines: BTreeSet<&str> = outputs[0].lines().map(str::trim_end).collect();
            for line in shown.text.lines() {
                assert!(lines.contains(line.trim_end()), "{place}: not printed: {line}");
            }
        }
    }
    assert!(ran >= 8, "{ran}");
}

/// What is wrong with the proof of a block of a page.
fn unproven(page: &str, block: &Block<'_>, proof: &Proof) -> Option<String> {
    let (file, function) = match proof {
        Proof::Typed(file, test) | Proof::Played(file, test) | Proof::Rendered(file, test) => (file, test),
        Proof::Parsed(why) => return why.is_empty().then(|| "no reason is given".to_owned()),
    };
    let Ok(text) = fs::read_to_string(root().join(file)) else { return Some(format!("no file {file}")) };
    if !text.contains(&format!("fn {function}(")) {
        return Some(format!("{file} has no function {function}"));
    }
    let folder = Path::new(page).parent().unwrap();
    let commands = commands(&block.text);
    match proof {
        Proof::Typed(..) => (!text.contains(page)).then(|| format!("{file} does not read the page")),
        Proof::Played(..) => {
            let example = folder.file_name().unwrap().to_str().unwrap();
            if !text.contains(&format!("play({example:?})")) {
                return Some(format!("{file} does not play {example}"));
            }
            let named = commands.iter().flat_map(|words| words.windows(2)).filter(|pair| pair[0] == "-f");
            let mut gone = named.filter(|pair| !root().join(folder).join(&pair[1]).is_file());
            gone.next().map(|pair| format!("no file {}", pair[1]))
        }
        Proof::Rendered(..) => {
            let sets =
                commands.iter().flatten().any(|word| ["helm", "port-forward"].contains(&word.as_str()));
            (!sets).then(|| "it has nothing that is rendered".to_owned())
        }
        Proof::Parsed(_) => None,
    }
}

#[test]
fn every_block_of_commands_is_run_or_has_a_test_that_types_it() {
    let mut problems = Vec::new();
    let mut proven: Vec<usize> = Vec::new();
    for page in pages() {
        for block in blocks(&page.text) {
            let place = format!("{}:{}", page.path, block.line);
            if ["bash", "shell", "console"].iter().any(|other| block.info.starts_with(other)) {
                problems.push(format!("{place}: a block of commands is called sh, not {}", block.info));
            }
            if !block.info.starts_with("sh") || block.info == "sh runnable" {
                continue;
            }
            let rows = BLOCKS.iter().enumerate();
            let rows: Vec<_> = rows
                .filter(|(_, (of, begins, _))| *of == page.path && block.text.starts_with(begins))
                .collect();
            let [(row, (_, _, proof))] = rows[..] else {
                problems.push(format!(
                    "{place}: {} rows of docs/blocks.rs, not one: {}",
                    rows.len(),
                    block.text
                ));
                continue;
            };
            proven.push(row);
            problems.extend(unproven(&page.path, &block, proof).map(|why| format!("{place}: {why}")));
        }
    }
    for (row, (page, begins, _)) in BLOCKS.iter().enumerate() {
        let blocks = proven.iter().filter(|proven| **proven == row).count();
        if blocks != 1 {
            problems.push(format!("{page}: {begins:?} is the beginning of {blocks} blocks"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn manifests_in_the_book_are_accepted() {
    let mut objects = 0;
    for page in pages().iter().filter(|page| page.path.starts_with("docs/")) {
        for block in blocks(&page.text).iter().filter(|block| block.info == "yaml") {
            let place = format!("{}:{}", page.path, block.line);
            let first: Value = serde_saphyr::from_str(block.text.split("\n---\n").next().unwrap())
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            if first["kind"] == "Configuration" {
                Configuration::parse(&block.text).unwrap_or_else(|error| panic!("{place}: {error}"));
                continue;
            }
            let file = File { name: place, text: block.text.clone(), named: true };
            let read = Manifests::read(&[file]).unwrap_or_else(|errors| panic!("{errors:#?}"));
            assert!(read.skipped.is_empty(), "{:?}", read.skipped);
            objects += read.objects.len() + read.scenarios.len();
        }
    }
    assert!(objects > 10, "{objects}");
}

#[test]
fn the_parts_of_the_manager_are_all_in_the_book() {
    let page = fs::read_to_string(root().join("docs/manual/command-line.md")).unwrap();
    for part in sluice_manager::controllers::Controller::all() {
        assert!(page.contains(&format!("`{}`", part.name())), "{}", part.name());
    }
    for command in Cli::command().get_subcommands().filter(|command| command.get_name() != "help") {
        assert!(page.contains(&format!("`sluice {}", command.get_name())), "{}", command.get_name());
    }
    for command in Plugin::command().get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_name();
        assert!(
            page.contains(&format!("`kubectl kueue {name}")) || page.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}

/// The version of a module that a program of the test bed is built from, as `0.10.1`.
fn built_from(tool: &str, module: &str) -> String {
    let text = fs::read_to_string(root().join(format!("tests/control-plane/{tool}/go.mod"))).unwrap();
    let version = text.lines().find_map(|line| line.trim().strip_prefix(module)?.strip_prefix(" v"));
    version.unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn the_support_matrix_has_a_row_for_every_kind_and_no_others() {
    let support = fs::read_to_string(root().join("docs/manual/support.md")).unwrap();
    let section = support.split("\n## ").find(|section| section.starts_with("Job kinds\n")).unwrap();
    let cells: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split('|').nth(1).unwrap())
        .collect();
    for kind in JobKind::ALL {
        // Where several kinds share a row, that has the framework of the first.
        let name = if kind == JobKind::POD { "pods" } else { kind.kind() };
        let rows = cells.iter().filter(|cell| cell.split([',', ' ']).any(|word| word == name)).count();
        assert_eq!(rows, 1, "support.md: {}", kind.kind());
    }
    for framework in cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let is_field = framework.starts_with("integrations.") || framework == "externalFrameworks";
        assert!(is_field || JobKind::named(framework).is_some(), "support.md: {framework}");
    }
}

/// The cells of a table's rows, the first of which are its headings.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The table of job kinds of the support matrix.
fn job_kinds(support: &str) -> Vec<Vec<&str>> {
    rows(support.split("\n## ").find(|section| section.starts_with("Job kinds\n")).unwrap())
}

#[test]
fn the_readme_lists_every_kind_with_what_the_support_matrix_says_it_is_tested_with() {
    let [readme, support] =
        ["README.md", "docs/manual/support.md"].map(|page| fs::read_to_string(root().join(page)).unwrap());
    let (listed, matrix) = (rows(&readme), job_kinds(&support));
    let column = matrix[0].iter().position(|name| *name == "tested with").unwrap();
    let of = |rows: &[Vec<&str>], column: usize, kind: &str| {
        let named =
            |cell: &str| cell.split([',', ' ']).any(|word| word == kind || kind == "Pod" && word == "pods");
        let row = rows.iter().find(|row| named(row[0])).unwrap_or_else(|| panic!("no row for {kind}"));
        row[column].to_owned()
    };
    for kind in JobKind::ALL {
        let tested = of(&matrix, column, kind.kind());
        assert_eq!(of(&listed, 1, kind.kind()), tested, "README.md: {}", kind.kind());
    }
    assert_eq!(of(&listed, 1, "MiniCluster"), of(&matrix, column, "MiniCluster"));
}

#[test]
fn the_support_matrix_has_the_controller_that_each_kind_is_tested_with() {
    let support = fs::read_to_string(root().join("docs/manual/support.md")).unwrap();
    let rows = job_kinds(&support);
    let column = rows[0].iter().position(|name| *name == "tested with").unwrap();
    let kubernetes = built_from("kubernetes", "k8s.io/kubernetes");
    let minor = format!("Kubernetes {}", kubernetes.rsplit_once('.').unwrap().0);
    let version = |controller: &str, tool: &str, module: &str| {
        let version = built_from(tool, module);
        format!("{controller} {version}")
    };
    for (kind, tested) in [
        ("Job", minor.clone()),
        ("pods", minor.clone()),
        ("Deployment", minor),
        ("JobSet", version("JobSet", "jobset", "sigs.k8s.io/jobset")),
        ("PyTorchJob", version("training operator", "kubeflow", "github.com/kubeflow/training-operator")),
        ("MPIJob", version("MPI operator", "kubeflow", "github.com/kubeflow/mpi-operator")),
        ("RayCluster", version("KubeRay", "ray", "github.com/ray-project/kuberay/ray-operator")),
        ("LeaderWorkerSet", version("LeaderWorkerSet", "lws", "sigs.k8s.io/lws")),
        ("TrainJob", version("trainer", "trainer", "github.com/kubeflow/trainer/v2")),
        ("AppWrapper", version("AppWrapper", "appwrapper", "github.com/project-codeflare/appwrapper")),
        ("SparkApplication", version("Spark operator", "spark", "github.com/kubeflow/spark-operator/v2")),
    ] {
        let row = rows.iter().find(|row| row[0].split([',', ' ']).next() == Some(kind)).unwrap();
        assert_eq!(row[column], tested, "support.md: {kind}");
    }
    assert!(rows[1..].iter().all(|row| !row[column].is_empty()), "a kind is tested with nothing");
}

#[test]
fn shell_text_is_taken_apart() {
    let script =
        "# a comment\nsluice simulate a.yaml \\\n  -o html > day.html # pictures\nx \"a;b\" 'c d'; y | z\n";
    let words: Vec<String> = commands(script).iter().map(|words| words.join("_")).collect();
    assert_eq!(words, ["sluice_simulate_a.yaml_-o_html", "x_a;b_c d", "y", "z"]);
    let of = |line: &str| commands(line).remove(0);
    assert!(problem(&of("sluice simulate --no-such-flag"), true).is_some());
    assert!(problem(&of("kubectl kueue list nothing"), true).is_some());
    assert!(problem(&of("make nothing"), true).is_some());
    assert!(problem(&of("sluice migrate"), true).is_none());
    assert!(problem(&of("sluice migrate"), false).is_some());
    assert_eq!(blocks("a\n```sh\nb\n```\n"), [Block { info: "sh", text: "b\n".to_owned(), line: 2 }]);
    assert_eq!(spans("a `b` c\n```sh\nx `y`\n```\n`d`"), ["b", "d"]);
}
