//! The configuration file: a third place for settings, below flags and `LANEWAY_*` variables and above defaults.
//!
//! `cli::run` calls [`parse`]. What a key is called, of which type it is and which values it takes follows from the flag
//! that has the same variable: `LANEWAY_POOL_SIZE` is `pool_size`. The settings of `serve` stand in the table `[serve]`,
//! those of the commands that speak with a broker in `[client]`.
//!
//! Invariant: a value of the file goes through the parser of its flag, so no flag can be forgotten and no value is looser
//! here than there. It becomes the flag's default; clap then decides which source wins.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The id of `--config`.
pub(super) const CONFIG: &str = "config";
/// What every variable of ours begins with.
const PREFIX: &str = "LANEWAY_";
/// The table of what `serve` is told, and the name of its command.
const SERVE: &str = "serve";
/// The table of what other commands are told.
const CLIENT: &str = "client";
/// Two names are as good as the same from here on: what a slip of the finger leaves.
const NEAR_ENOUGH: f64 = 0.8;

/// Why the arguments, or the file they name, cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    /// Clap says it, or it is help that was asked for.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// The file is at fault.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What is wrong with a configuration file, with the place.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FileError {
    #[error("cannot read the configuration file {file} (from --config or LANEWAY_CONFIG): {reason}")]
    Unreadable { file: String, reason: String },
    #[error("{place}: this is not TOML: {reason}")]
    Syntax { place: Place, reason: String },
    #[error("{place}: there is no setting {key}{}", hint(.nearest, .known))]
    UnknownKey { place: Place, key: String, nearest: Option<String>, known: String },
    #[error("{place}: {key} must be {expected}, and it is {found}")]
    WrongType { place: Place, key: String, expected: &'static str, found: &'static str },
    #[error("{place}: {key} cannot be used: {reason}")]
    Invalid { place: Place, key: String, reason: String },
    #[error("{place}: {key} cannot be used together with {other}: keep one of the two")]
    Conflict { place: Place, key: String, other: String },
}

fn hint(nearest: &Option<String>, known: &str) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean {nearest}?"),
        None => format!("; there are {known}"),
    }
}

/// Where in which file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    file: String,
    line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, line {}", self.file, self.line)
    }
}

/// A setting that the file may hold: a flag with a variable.
#[derive(Debug)]
struct Setting {
    table: &'static str,
    key: String,
    arg: Arg,
}

/// A setting that the file holds.
#[derive(Debug)]
struct Found {
    key: String,
    variable: OsString,
    values: Vec<String>,
    place: Place,
}

/// How TOML writes the values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Integer,
    Text,
    Texts,
}

/// Reads the arguments, and the file if one is named.
pub(super) fn parse<C: CommandFactory + FromArgMatches>(args: &[OsString]) -> Result<C, ParseError> {
    let mut matches = C::command().try_get_matches_from(args)?;
    if let Some(path) = matches.get_one::<PathBuf>(CONFIG) {
        let found = read(&C::command(), path)?;
        let mut command = with_defaults(C::command(), &found);
        matches = command.try_get_matches_from_mut(args)?;
        check_conflicts(&command, &matches, &found)?;
    }
    Ok(C::from_arg_matches(&matches)?)
}

fn read(command: &Command, path: &Path) -> Result<Vec<Found>, FileError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => understand(command, &file, &text),
        Err(error) => Err(FileError::Unreadable { file, reason: error.to_string() }),
    }
}

/// What a file says, checked against the settings that the commands have.
fn understand(command: &Command, file: &str, text: &str) -> Result<Vec<Found>, FileError> {
    let reader = Reader { file, text };
    let settings = settings(command);
    let document = DeTable::parse(text).map_err(|error| FileError::Syntax {
        place: reader.place(error.span().map_or(0, |span| span.start)),
        reason: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
    })?;
    let mut found = Vec::new();
    for (name, table) in document.get_ref() {
        let Some(known) = [SERVE, CLIENT].into_iter().find(|known| known == name.get_ref()) else {
            return Err(reader.unknown(name, &["[serve]".into(), "[client]".into()], &settings));
        };
        let DeValue::Table(entries) = table.get_ref() else {
            let (expected, found) = ("a table", described(table.get_ref()));
            let place = reader.place(name.span().start);
            return Err(FileError::WrongType { place, key: known.to_owned(), expected, found });
        };
        let settings: Vec<&Setting> = settings.iter().filter(|setting| setting.table == known).collect();
        for (key, value) in entries {
            found.push(reader.setting(&settings, key, value)?);
        }
    }
    Ok(found)
}

/// The text, for telling places in it.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn place(&self, byte: usize) -> Place {
        let before = self.text.as_bytes().iter().take(byte);
        Place { file: self.file.to_owned(), line: 1 + before.filter(|byte| **byte == b'\n').count() }
    }

    fn setting(
        &self,
        settings: &[&Setting],
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Found, FileError> {
        let Some(setting) = settings.iter().find(|setting| setting.key == *key.get_ref()) else {
            let keys: Vec<String> = settings.iter().map(|setting| setting.key.clone()).collect();
            return Err(self.unknown(key, &keys, &[]));
        };
        let (place, kind) = (self.place(value.span().start), kind(&setting.arg));
        let wrong = |found| FileError::WrongType {
            place: place.clone(),
            key: setting.key.clone(),
            expected: kind.expected(),
            found,
        };
        let values = texts(kind, value.get_ref()).map_err(wrong)?;
        check_values(&setting.arg, &values).map_err(|reason| FileError::Invalid {
            place: place.clone(),
            key: setting.key.clone(),
            reason,
        })?;
        let variable = setting.arg.get_env().unwrap_or_default().to_owned();
        Ok(Found { key: setting.key.clone(), variable, values, place })
    }

    /// A key that stands nowhere, or in the wrong table.
    fn unknown(
        &self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        known: &[String],
        elsewhere: &[Setting],
    ) -> FileError {
        let name = key.get_ref();
        let home = elsewhere.iter().find(|setting| setting.key == **name);
        let likeness = |known: &String| strsim::jaro_winkler(name, known.trim_matches(['[', ']']));
        let near = known.iter().filter(|known| likeness(known) >= NEAR_ENOUGH);
        let nearest = near.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).cloned();
        FileError::UnknownKey {
            place: self.place(key.span().start),
            key: name.to_string(),
            nearest: home.map(|home| format!("{} in [{}]", home.key, home.table)).or(nearest),
            known: known.join(", "),
        }
    }
}

/// Every setting of every command, those of `serve` first.
fn settings(command: &Command) -> Vec<Setting> {
    let mut all = Vec::new();
    let (serve, others): (Vec<_>, Vec<_>) =
        command.get_subcommands().partition(|command| command.get_name() == SERVE);
    serve.into_iter().for_each(|command| collect(command, SERVE, &mut all));
    others.into_iter().for_each(|command| collect(command, CLIENT, &mut all));
    all
}

fn collect(command: &Command, table: &'static str, all: &mut Vec<Setting>) {
    for arg in command.get_arguments() {
        let Some(key) = key(arg) else { continue };
        if all.iter().all(|setting| setting.key != key) {
            all.push(Setting { table, key, arg: arg.clone() });
        }
    }
    command.get_subcommands().for_each(|command| collect(command, table, all));
}

/// `pool_size`, of `LANEWAY_POOL_SIZE`.
fn key(arg: &Arg) -> Option<String> {
    if arg.get_id() == CONFIG {
        return None; // a file does not name a file
    }
    Some(arg.get_env()?.to_str()?.strip_prefix(PREFIX)?.to_ascii_lowercase())
}

fn kind(arg: &Arg) -> Kind {
    let parsed = arg.get_value_parser().type_id();
    match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => Kind::Bool,
        ArgAction::Append => Kind::Texts,
        _ if parsed == TypeId::of::<u16>() || parsed == TypeId::of::<u32>() => Kind::Integer,
        _ => Kind::Text,
    }
}

impl Kind {
    const fn expected(self) -> &'static str {
        match self {
            Kind::Bool => "true or false",
            Kind::Integer => "a whole number",
            Kind::Text => "a text in quotes",
            Kind::Texts => "a list of texts in quotes",
        }
    }
}

/// A value as the command line would say it, or what it is instead.
fn texts(kind: Kind, value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
    match (kind, value) {
        (Kind::Bool, DeValue::Boolean(value)) => Ok(vec![value.to_string()]),
        (Kind::Integer, DeValue::Integer(value)) if value.radix() == 10 => Ok(vec![value.to_string()]),
        (Kind::Text, DeValue::String(value)) => Ok(vec![value.to_string()]),
        (Kind::Texts, DeValue::Array(values)) => {
            let text = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                _ => Err("a list of other things"),
            };
            values.iter().map(text).collect()
        }
        (_, other) => Err(described(other)),
    }
}

fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Lets the parser of the flag judge, without the environment and without what the flag conflicts with.
fn check_values(arg: &Arg, values: &[String]) -> Result<(), String> {
    if values.iter().any(|value| value.contains(arg.get_value_delimiter().unwrap_or('\0'))) {
        return Err("a text in it holds a comma or a NUL".to_owned());
    }
    let alone = Arg::new("value").value_parser(arg.get_value_parser().clone()).allow_hyphen_values(true);
    let judge = Command::new("file").no_binary_name(true).arg(alone.num_args(0..).last(true));
    let args = std::iter::once("--").chain(values.iter().map(String::as_str));
    match judge.try_get_matches_from(args) {
        Ok(_) => Ok(()),
        Err(error) => Err(std::error::Error::source(&error).unwrap_or(&error).to_string()),
    }
}

/// The same commands, with what the file says for defaults.
fn with_defaults(command: Command, found: &[Found]) -> Command {
    let of = |arg: &Arg| found.iter().find(|found| arg.get_env() == Some(&found.variable));
    let command = command.mut_args(|arg| match of(&arg) {
        Some(found) => arg.default_values(found.values.clone()),
        None => arg,
    });
    command.mut_subcommands(|command| with_defaults(command, found))
}

/// Clap does not count defaults among conflicts; what stands in a file is none to the one who wrote it.
fn check_conflicts(command: &Command, matches: &ArgMatches, found: &[Found]) -> Result<(), FileError> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    let Some(command) = command.find_subcommand(name) else { return Ok(()) };
    let source = |arg: &Arg| Source::of(arg, matches, found);
    for arg in command.get_arguments() {
        for other in command.get_arg_conflicts_with(arg) {
            let (key, place, other) = match (source(arg), source(other)) {
                (Some(Source::File(file)), Some(other)) => (&file.key, &file.place, other),
                (Some(other), Some(Source::File(file))) => (&file.key, &file.place, other),
                _ => continue,
            };
            let (place, key, other) = (place.clone(), key.clone(), other.to_string());
            return Err(FileError::Conflict { place, key, other });
        }
    }
    Ok(())
}

/// Who has set something.
enum Source<'a> {
    Flag(String),
    Variable(String),
    File(&'a Found),
}

impl<'a> Source<'a> {
    fn of(arg: &Arg, matches: &ArgMatches, found: &'a [Found]) -> Option<Self> {
        match matches.value_source(arg.get_id().as_str())? {
            ValueSource::CommandLine => Some(Self::Flag(arg.get_long()?.to_owned())),
            ValueSource::EnvVariable => Some(Self::Variable(arg.get_env()?.to_string_lossy().into_owned())),
            _ => found.iter().find(|found| arg.get_env() == Some(&found.variable)).map(Self::File),
        }
    }
}

impl std::fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Flag(long) => write!(f, "--{long}"),
            Source::Variable(name) => write!(f, "the environment's {name}"),
            Source::File(found) => write!(f, "{} in line {}", found.key, found.place.line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/laneway.toml"));

    /// The example with everything said that it only offers.
    fn uncommented() -> String {
        let setting = |line: &str| {
            let key = line.strip_prefix("# ").and_then(|line| line.split_once(" = ")).map(|(key, _)| key);
            key.is_some_and(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        };
        let lines =
            EXAMPLE.lines().map(|line| if setting(line) { line.trim_start_matches("# ") } else { line });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_flag_of_serve_has_a_key_in_the_file() {
        let command = Cli::command();
        let settings = settings(&command);
        let serve = command.find_subcommand(SERVE).unwrap();
        assert!(serve.get_arguments().count() > 10);
        for arg in serve.get_arguments() {
            let long = arg.get_long().unwrap().replace('-', "_");
            let setting = settings.iter().find(|setting| setting.table == SERVE && setting.key == long);
            assert!(setting.is_some(), "{long} has no variable LANEWAY_{}", long.to_ascii_uppercase());
        }
        let client = settings.iter().filter(|setting| setting.table == CLIENT);
        assert!(client.into_iter().any(|setting| setting.key == "url"));
    }

    #[test]
    fn the_example_names_every_key_with_its_default() {
        let command = Cli::command();
        assert!(understand(&command, "example", EXAMPLE).unwrap().is_empty(), "it changes nothing as it is");
        let found = understand(&command, "example", &uncommented()).unwrap();
        for setting in settings(&command) {
            let named = found.iter().find(|found| found.key == setting.key);
            let values = &named.unwrap_or_else(|| panic!("the example lacks {}", setting.key)).values;
            let defaults = setting.arg.get_default_values().iter().map(|value| value.to_str().unwrap());
            match (setting.arg.get_default_values().is_empty(), setting.arg.get_action()) {
                (false, _) => assert!(defaults.eq(values.iter().map(String::as_str)), "{}", setting.key),
                (true, ArgAction::SetTrue) => assert_eq!(values, &["false"], "{}", setting.key),
                (true, ArgAction::Append) => assert!(values.is_empty(), "{}", setting.key),
                (true, _) => assert_eq!(values.len(), 1, "{}", setting.key), // an example, as there is no default
            }
        }
    }

    #[test]
    fn what_the_file_says_arrives_unless_a_flag_says_otherwise() {
        let text = "[serve]\ninsecure_listen = true\nallow_host = ['a', 'b']\npool_size = 3\nappenders = 4\n\
                    [client]\nurl = 'ws://c'";
        let found = understand(&Cli::command(), "f", text).unwrap();
        let matches =
            |args: &[&str]| with_defaults(Cli::command(), &found).try_get_matches_from(args).unwrap();
        let serve = matches(&["laneway", "serve", "--pool-size", "5"]);
        let serve = serve.subcommand_matches("serve").unwrap();
        assert!(serve.get_flag("insecure_listen") && !serve.get_flag("no_prepared_statements"));
        assert_eq!(serve.get_many::<String>("allowed_hosts").unwrap().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (serve.get_one::<u32>("pool_size"), serve.get_one::<u16>("appenders")),
            (Some(&5), Some(&4))
        );
        let doctor = matches(&["laneway", "doctor"]);
        let doctor = doctor.subcommand_matches("doctor").unwrap();
        assert_eq!(doctor.get_one::<String>("url").unwrap(), "ws://c");
        assert_eq!(doctor.get_one::<u32>("pool_size"), Some(&3));
        let show = matches(&["laneway", "topic", "show", "orders"]);
        let show = show.subcommand_matches("topic").unwrap().subcommand_matches("show").unwrap();
        assert_eq!(show.get_one::<String>("url").unwrap(), "ws://c");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_key() {
        for (text, sentence) in [
            ("[serve]\npool_size = 'many'", "f, line 2: pool_size must be a whole number, and it is a text"),
            ("\n[serve]\npool_siz = 1", "f, line 3: there is no setting pool_siz; did you mean pool_size?"),
            ("url = 'ws://a'", "f, line 1: there is no setting url; did you mean url in [client]?"),
            ("[sevre]", "f, line 1: there is no setting sevre; did you mean [serve]?"),
            ("[other]", "f, line 1: there is no setting other; there are [serve], [client]"),
            ("serve = 3", "f, line 1: serve must be a table, and it is a number"),
            ("[serve]\npool_size = 5000", "f, line 2: pool_size cannot be used: 5000 is not in 1..=1000"),
            (
                "[serve]\nlease_ttl = '1h'",
                "f, line 2: lease_ttl cannot be used: it must be between 1s and 5m",
            ),
            ("[serve]\npool_size = -1", "f, line 2: pool_size cannot be used: -1 is not in 1..=1000"),
            (
                "[serve]\ninsecure_listen = 'yes'",
                "f, line 2: insecure_listen must be true or false, and it is a text",
            ),
            (
                "[serve]\nallow_host = 'a'",
                "f, line 2: allow_host must be a list of texts in quotes, and it is a text",
            ),
            (
                "[serve]\nallow_host = ['a,b']",
                "f, line 2: allow_host cannot be used: a text in it holds a comma or a NUL",
            ),
            ("[serve]\npool_size = 1\npool_size = 2", "f, line 3: this is not TOML: duplicate key"),
        ] {
            let error = understand(&Cli::command(), "f", text).unwrap_err();
            assert_eq!(error.to_string(), sentence, "{text}");
        }
    }
}
