//! What people look things up in: completions that a shell accepts, a manual page and a help with examples for every command.

use std::collections::BTreeSet;

use tokio::process::Command;

use crate::harness::process::{directory, run, run_command};
use crate::topics::sentence;

/// Every command with its path below `laneway`, as the help tells it.
async fn commands() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(path) = open.pop() {
        let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let said = run(&args).await;
        assert_eq!(said.code, 0, "{path:?}: {}", said.stderr);
        let listed = said.stdout.split("\nCommands:\n").nth(1).unwrap_or_default();
        let listed = listed.split("\n\n").next().unwrap_or_default();
        let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
            open.push(path.iter().cloned().chain([name.to_owned()]).collect());
        }
        found.push(path);
    }
    assert!(found.len() > 25, "{found:?}");
    found
}

#[tokio::test]
async fn every_command_has_a_page_and_examples() {
    let directory = directory();
    let out = directory.path().join("man1"); // made if it is not there
    let said = run(&["man", "--out", out.to_str().unwrap()]).await;
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""));
    let files = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut pages: BTreeSet<String> = files.collect();
    for path in commands().await {
        let name =
            ["laneway"].into_iter().chain(path.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
        assert!(pages.remove(&format!("{name}.1")), "{name} has no page");
        let page = std::fs::read_to_string(out.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
        let args = ["man"].into_iter().chain(path.iter().map(String::as_str)).collect::<Vec<_>>();
        assert_eq!(run(&args).await.stdout, page, "{name}: the same on standard output");
        let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = run(&args).await.stdout;
        assert!(help.contains("Example") || help.contains("\nCommands:\n"), "{name} has no example:\n{help}");
    }
    assert_eq!(pages, BTreeSet::new(), "pages of nothing");
    let serve = std::fs::read_to_string(out.join("laneway-serve.1")).unwrap();
    assert!(serve.contains("LANEWAY_POOL_SIZE"), "{serve}");
    let unknown = sentence(&run(&["man", "topic", "crate"]).await, 1);
    assert_eq!(unknown, "there is no command topic crate");
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let cannot = sentence(&run(&["man", "--out", file.join("d").to_str().unwrap()]).await, 1);
    assert!(cannot.starts_with("cannot write pages into "), "{cannot}");
}

#[tokio::test]
async fn a_shell_completes_commands_with_the_script() {
    let script = run(&["completions", "bash"]).await;
    assert_eq!((script.code, script.stderr.as_str()), (0, ""));
    let directory = directory();
    let file = directory.path().join("laneway.bash");
    std::fs::write(&file, &script.stdout).unwrap();
    let complete = r#"
        source "$1"
        COMP_WORDS=(laneway group s) COMP_CWORD=2
        _laneway laneway s group
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let said = run_command(Command::new("bash").args(["-ec", complete, "bash"]).arg(&file)).await;
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "show\nseek\n", ""));
    for (shell, words) in [
        ("zsh", "#compdef laneway"),
        ("fish", "complete -c laneway"),
        ("elvish", "edit:completion:arg-completer[laneway]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let said = run(&["completions", shell]).await;
        assert!(said.code == 0 && said.stdout.contains(words) && said.stdout.contains("doctor"), "{shell}");
    }
    let wrong = run(&["completions", "tcsh"]).await;
    assert!(
        wrong.code == 2 && wrong.stderr.contains("[possible values: bash, elvish, fish"),
        "{}",
        wrong.stderr
    );
}
