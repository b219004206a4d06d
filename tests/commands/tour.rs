//! The README's tour, taken again: every command of its console blocks is run, and what is printed must be what the README
//! shows, but for ids and times.
//!
//! `$` is a terminal in which one command follows the other. `one$`, `two$`, … are terminals with a command that runs on;
//! `one| ` is what it prints, and `^\` is the key that kills it.

use std::collections::{BTreeSet, HashMap};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::harness::process::{laneway, run_command};
use crate::harness::wait;
use crate::harness::{Server, TestDatabase};

const README: &str = include_str!("../../README.md");
/// Where the README's broker listens.
const ADDRESS: &str = "127.0.0.1:7420";

/// One step of the tour.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A command, and what it prints.
    Run {
        command: String,
        output: Vec<String>,
    },
    /// A command that runs on, in a terminal of its own.
    Start {
        terminal: String,
        command: String,
    },
    Kill {
        terminal: String,
    },
    /// What terminals have printed by then; which of those that share the work does is not ours to say.
    Printed {
        terminals: BTreeSet<String>,
        lines: BTreeSet<String>,
    },
}

/// The steps of all console blocks, in their order.
fn steps() -> Vec<Step> {
    let blocks = README.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut steps: Vec<Step> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step::Run { command: command.to_owned(), output: Vec::new() });
        } else if let Some((terminal, command)) = terminal(line, "$ ") {
            steps.push(match command {
                "^\\" => Step::Kill { terminal },
                _ => Step::Start { terminal, command: command.to_owned() },
            });
        } else if let Some((terminal, text)) = terminal(line, "| ") {
            match steps.last_mut() {
                Some(Step::Printed { terminals, lines }) => {
                    terminals.insert(terminal);
                    lines.insert(masked(text));
                }
                _ => steps.push(Step::Printed {
                    terminals: BTreeSet::from([terminal]),
                    lines: BTreeSet::from([masked(text)]),
                }),
            }
        } else {
            match steps.last_mut() {
                Some(Step::Run { command, .. }) if command.matches('\'').count() % 2 == 1 => {
                    command.push('\n'); // a quoted text over several lines
                    command.push_str(line);
                }
                Some(Step::Run { output, .. }) => output.push(masked(line)),
                step => panic!("{line:?} stands after {step:?}"),
            }
        }
    }
    steps
}

/// `one$ command` and `one| text`.
fn terminal<'a>(line: &'a str, mark: &str) -> Option<(String, &'a str)> {
    let (name, rest) = line.split_once(mark)?;
    (!name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase()))
        .then(|| (name.to_owned(), rest))
}

/// Ids and times differ from run to run; so does the width of a column that holds them.
fn masked(line: &str) -> String {
    let mask = |word: &str| {
        let inside = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        if uuid::Uuid::try_parse(inside).is_ok() && inside.len() == 36 && !inside.starts_with("0198a000") {
            return word.replace(inside, "<id>");
        }
        if inside.parse::<jiff::Timestamp>().is_ok() {
            return word.replace(inside, "<time>");
        }
        word.to_owned()
    };
    // JSON has no blanks around its values: cut it at its quotation marks, too.
    let words = line.split_whitespace().map(|word| word.split('"').map(mask).collect::<Vec<_>>().join("\""));
    words.collect::<Vec<_>>().join(" ")
}

/// A command that runs on, and what it has printed.
struct Terminal {
    child: Child,
    printed: Arc<Mutex<Vec<String>>>,
}

struct Tour {
    server: Server,
    _database: TestDatabase,
    terminals: HashMap<String, Terminal>,
}

impl Tour {
    /// A shell in which `laneway` is the binary under test and the broker is the test's.
    fn shell(&self, command: &str) -> Command {
        let command = command.replace(ADDRESS, &self.server.address);
        let mut shell = Command::new("bash");
        let program = laneway().as_std().get_program().to_owned();
        let directory = std::path::Path::new(&program).parent().unwrap().to_owned();
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
        shell.args(["-c", &command]).env("PATH", path).env("LANEWAY_URL", self.server.url(""));
        shell.stdin(Stdio::null()).kill_on_drop(true);
        shell
    }

    /// As on a terminal: lines for people.
    fn pretty(command: &str) -> String {
        match command.contains("laneway subscribe") {
            true => format!("{command} --format pretty"),
            false => command.to_owned(),
        }
    }

    async fn run(&self, command: &str, output: &[String]) {
        let is_question = [" list", "curl 'http", "curl http"].iter().any(|words| command.contains(words));
        let mut last = String::new();
        // What is looked at may take a moment to become so; what is done is done once.
        let found = wait::until_within(wait::PATIENCE, command, async || {
            let said = run_command(self.shell(&Self::pretty(command)).stdout(Stdio::piped())).await;
            let printed: Vec<String> = said.stdout.lines().map(masked).collect();
            last = format!("{}\n{}", said.stdout, said.stderr);
            if printed != output && !is_question {
                panic!("{command}\nshould print {output:#?}\nand prints\n{last}");
            }
            printed == output
        });
        found.await;
    }

    async fn start(&mut self, name: String, command: &str) {
        // `exec`: the process that is killed later is the command, not its shell.
        let mut child =
            self.shell(&format!("exec {}", Self::pretty(command))).stdout(Stdio::piped()).spawn().unwrap();
        let printed = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let sink = printed.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                sink.lock().unwrap().push(masked(&line));
            }
        });
        self.terminals.insert(name, Terminal { child, printed });
    }

    /// All of these lines are there, each in one of the terminals, and nothing is printed twice.
    async fn printed(&self, names: &BTreeSet<String>, expected: &BTreeSet<String>) {
        wait::until(&format!("{names:?} to print {expected:?}"), async || {
            let printed: Vec<String> =
                names.iter().flat_map(|name| self.terminals[name].printed.lock().unwrap().clone()).collect();
            let distinct: BTreeSet<&String> = printed.iter().collect();
            assert_eq!(distinct.len(), printed.len(), "{printed:#?}");
            expected.iter().all(|line| printed.contains(line))
        })
        .await;
    }

    async fn kill(&mut self, name: &str) {
        let child = &mut self.terminals.get_mut(name).unwrap().child;
        kill(Pid::from_raw(child.id().unwrap() as i32), Signal::SIGQUIT).unwrap();
        child.wait().await.unwrap();
    }

    /// How many have become members of a group: the README waits by itself, as people do.
    async fn settled(&self, members: usize) {
        wait::until("the subscribers to share the lanes", async || {
            let said = run_command(self.shell("laneway lane list --json").stdout(Stdio::piped())).await;
            let lanes: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
            let lanes = lanes.as_array().unwrap();
            let holders: BTreeSet<&str> = lanes.iter().filter_map(|lane| lane["holder"].as_str()).collect();
            holders.len() == members && lanes.iter().all(|lane| lane["state"] == "held")
        })
        .await;
    }
}

#[test]
fn the_tour_has_what_was_promised() {
    let steps = steps();
    let starts = steps.iter().filter(|step| matches!(step, Step::Start { .. })).count();
    let kills = steps.iter().filter(|step| matches!(step, Step::Kill { .. })).count();
    assert!(steps.len() > 15 && starts >= 2 && kills >= 1, "{steps:#?}");
    let runs = |words: &str| {
        steps.iter().any(|step| matches!(step, Step::Run { command, .. } if command.contains(words)))
    };
    for words in ["topic create", "laneway publish", "lane list", "dead replay", "curl"] {
        assert!(runs(words), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_readme_prints_what_the_readme_shows() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let mut tour = Tour { server, _database: database, terminals: HashMap::new() };
    let mut sharing = 0;
    for step in steps() {
        match step {
            Step::Run { command, .. } if command.starts_with("alias ") => {}
            Step::Run { command, output } => tour.run(&command, &output).await,
            Step::Start { terminal, command } => {
                tour.start(terminal, &command).await;
                if command.contains("--group billing") {
                    sharing += 1;
                    tour.settled(sharing).await;
                }
            }
            Step::Kill { terminal } => tour.kill(&terminal).await,
            Step::Printed { terminals, lines } => tour.printed(&terminals, &lines).await,
        }
    }
}
