//! Standard output of commands. A reader that has gone away (`| head -1`) is no reason to panic.

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

/// Prints a line. If nobody reads it any more, the command goes on to its end: its exit code still says how it went.
pub(crate) fn line(text: Arguments<'_>) {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            eprintln!("laneway: cannot write the answer: {error}");
            exit(1);
        }
    }
}
