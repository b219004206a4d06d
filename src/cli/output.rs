//! Standard output of commands. A reader that has gone away (`| head -1`) ends a command; it is no reason to panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};
use std::process::exit;

/// As the standard one, in this module and those below it.
macro_rules! println {
    () => {
        $crate::cli::output::line(format_args!(""))
    };
    ($($arguments:tt)*) => {
        $crate::cli::output::line(format_args!($($arguments)*))
    };
}
pub(crate) use println;

/// Prints a line. Nobody is left to tell if that fails: then the command is over.
pub(crate) fn line(text: Arguments<'_>) {
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        exit(match error.kind() {
            ErrorKind::BrokenPipe => 0, // whoever asked has read enough
            _ => {
                eprintln!("laneway: cannot write the answer: {error}");
                1
            }
        });
    }
}
