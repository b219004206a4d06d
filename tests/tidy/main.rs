//! The house style, as far as a machine can check it.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
/// Words that would be a second name for something in docs/glossary.md.
const FORBIDDEN_MODULES: &[&str] = &["util", "utils", "common", "helpers", "types", "manager_util", "misc"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(below: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root().join(below)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && name != "node_modules" {
                directories.push(path);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no *{ending} below {below}");
    found
}

fn rust() -> Vec<PathBuf> {
    ["src", "clients/rust/src"].iter().flat_map(|below| files(below, ".rs")).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The file without its unit tests.
fn code(path: &Path) -> String {
    let text = read(path);
    text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn assert_none(rule: &str, culprits: Vec<String>) {
    assert!(culprits.is_empty(), "{rule}:\n  {}", culprits.join("\n  "));
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let long = rust().into_iter().filter(|path| code(path).lines().count() > FILE_LINES_MAX);
    assert_none("files over 500 lines want to be two", long.map(|path| name(&path)).collect());
}

#[test]
fn every_file_begins_with_what_it_owns() {
    let bare = rust().into_iter().filter(|path| !read(path).starts_with("//!"));
    assert_none("a file starts with a //! header", bare.map(|path| name(&path)).collect());
}

#[test]
fn sql_lives_in_the_schema_and_is_run_by_the_store() {
    let verbs = ["\"SELECT ", "\"INSERT ", "\"UPDATE ", "\"DELETE ", "\"CREATE ", "\"ALTER ", "\"WITH "];
    let mut culprits = Vec::new();
    for path in files("src", ".rs") {
        // The supervisor makes its database, and the limit is the raw statement that everything is measured against.
        if ["src/store/", "src/postgres/", "src/bench/limit.rs"]
            .iter()
            .any(|home| name(&path).starts_with(home))
        {
            continue;
        }
        for (number, line) in code(&path).lines().enumerate() {
            if verbs.iter().any(|verb| line.contains(verb)) {
                culprits.push(format!("{}:{}: {}", name(&path), number + 1, line.trim()));
            }
        }
    }
    assert_none("SQL outside the store", culprits);
}

#[test]
fn the_postgres_driver_is_known_to_the_store_only() {
    let mut culprits = Vec::new();
    for path in files("src", ".rs") {
        let name = name(&path);
        let at_home = ["src/store/", "src/postgres/", "src/bench/"].iter().any(|home| name.starts_with(home));
        if !at_home && code(&path).contains("tokio_postgres") {
            culprits.push(name);
        }
    }
    assert_none("tokio_postgres outside the store", culprits);
}

#[test]
fn data_flows_one_way() {
    let upwards = [
        (
            "src/store/",
            ["crate::broker", "crate::session", "crate::server", "crate::cli", "crate::tasks"].as_slice(),
        ),
        ("src/broker/", ["crate::session", "crate::server", "crate::cli", "axum"].as_slice()),
        ("src/session/", ["crate::server", "crate::cli"].as_slice()),
        ("src/postgres/", ["crate::broker", "crate::server", "crate::cli", "crate::store"].as_slice()),
        ("src/server/", ["crate::cli"].as_slice()),
    ];
    let mut culprits = Vec::new();
    for (home, forbidden) in upwards {
        for path in files(home, ".rs") {
            let code = code(&path);
            for word in forbidden.iter().filter(|word| code.contains(**word)) {
                culprits.push(format!("{} uses {word}", name(&path)));
            }
        }
    }
    assert_none("imports against the stream", culprits);
}

#[test]
fn every_query_file_is_used_by_the_code_under_its_own_name() {
    let store: String = files("src/store", ".rs").iter().map(|path| read(path)).collect();
    let mut culprits = Vec::new();
    for (folder, macro_name) in [("schema/queries", "query!"), ("schema/templates", "template!")] {
        for path in files(folder, ".sql") {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let uses = store.matches(&format!(" = \"{stem}\"[")).count();
            if uses != 1 {
                culprits.push(format!("{} is declared {uses} times by {macro_name}", name(&path)));
            }
            if !read(&path).starts_with(&format!("-- {stem}:")) {
                culprits.push(format!("{} does not begin with its own name", name(&path)));
            }
        }
    }
    assert_none("query files and code disagree", culprits);
}

#[test]
fn every_limit_is_used() {
    let is_limits = |path: &Path| {
        path.ends_with("src/limits.rs") || path.parent().is_some_and(|parent| parent.ends_with("src/limits"))
    };
    let limits: String =
        files("src", ".rs").iter().filter(|path| is_limits(path)).map(|path| read(path)).collect();
    let code: String = rust()
        .iter()
        .chain(&files("tests", ".rs"))
        .filter(|path| !is_limits(path))
        .map(|path| read(path))
        .collect();
    let names = limits.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    let unused = names.filter(|name| !code.contains(*name));
    assert_none("bounds that nothing enforces", unused.map(str::to_owned).collect());
}

#[test]
fn nothing_is_unfinished() {
    let marks = ["todo!(", "unimplemented!(", "dbg!(", "FIXME", "XXX", "#[ignore"];
    let mut culprits = Vec::new();
    for path in
        rust().iter().chain(&files("tests", ".rs")).filter(|path| !path.ends_with("tests/tidy/main.rs"))
    {
        // A process of its own that another test starts and kills is the one reason to leave a test out of the run.
        let text = read(path).replace("#[ignore = \"run by another test", "");
        for mark in marks.iter().filter(|mark| text.contains(**mark)) {
            culprits.push(format!("{} has {mark}", name(path)));
        }
    }
    assert_none("unfinished work", culprits);
}

#[test]
fn modules_are_named_after_what_they_own() {
    let vague = rust().into_iter().filter(|path| {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        FORBIDDEN_MODULES.contains(&stem.as_str())
    });
    assert_none("vague names", vague.map(|path| name(&path)).collect());
}

#[test]
fn the_documents_stand_alone() {
    let own_path = root().display().to_string();
    let mut culprits = Vec::new();
    let documents =
        files("docs", ".md").into_iter().chain(files("schema", ".md")).chain([root().join("README.md")]);
    for path in documents {
        let text = read(&path);
        for word in ["../shared", own_path.as_str()].iter().filter(|word| text.contains(**word)) {
            culprits.push(format!("{} mentions {word}", name(&path)));
        }
    }
    assert_none("documents that lean on this machine", culprits);
}

const PROMISES: usize = 25;

/// The rows of the table under a heading, by their first cell, which is a number.
fn rows_under(document: &str, heading: &str) -> Vec<(usize, String)> {
    let section = document.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
    let row = |line: &str| {
        let (number, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((number.parse().ok()?, rest.to_owned()))
    };
    section.lines().filter_map(row).collect()
}

/// Where a test that is named `binary::module::name`, or `binary::name`, has to be.
fn is_there(test: &str) -> bool {
    let parts: Vec<&str> = test.split("::").collect();
    let (path, name) = match parts[..] {
        [binary, name] => (format!("tests/{binary}/main.rs"), name),
        [binary, module, name] => (format!("tests/{binary}/{module}.rs"), name),
        _ => return false,
    };
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let mut lines = text.lines().map(str::trim_start);
    let is_test = |line: &str| line.starts_with("#[tokio::test") || line == "#[test]";
    let wanted = [format!("fn {name}("), format!("async fn {name}(")];
    while let Some(line) = lines.next() {
        if is_test(line)
            && lines.next().is_some_and(|line| wanted.iter().any(|wanted| line.starts_with(wanted)))
        {
            return true;
        }
    }
    false
}

#[test]
fn every_promise_names_the_tests_that_attack_it() {
    let document = read(&root().join("docs/RELIABILITY.md"));
    let promises = rows_under(&document, "\n## The promises\n");
    let suite = rows_under(&document, "\n## The fault suite\n");
    let numbers = |rows: &[(usize, String)]| rows.iter().map(|(number, _)| *number).collect::<Vec<_>>();
    assert_eq!(numbers(&promises), (1..=PROMISES).collect::<Vec<_>>());
    assert_eq!(numbers(&suite), numbers(&promises), "each promise has its row");
    let mut culprits = Vec::new();
    for (number, row) in &suite {
        let tests: Vec<&str> = row.split('`').skip(1).step_by(2).filter(|word| word.contains("::")).collect();
        if tests.is_empty() {
            culprits.push(format!("promise {number} has no test"));
        }
        culprits.extend(
            tests.iter().filter(|test| !is_there(test)).map(|test| format!("promise {number}: {test}")),
        );
    }
    assert_none("promises name tests that exist", culprits);
    assert!(!is_there("tidy::every_promise_is_kept"), "a test that does not exist is not found");
}
