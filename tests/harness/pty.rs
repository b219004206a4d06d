//! The binary on a terminal: a pseudo-terminal of its own, read by a terminal emulator, so that tests see what people see.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};
use tokio::process::{Child, Command};

use super::process::laneway;
use super::wait;

const ROWS: u16 = 50;
pub const COLUMNS: u16 = 160;

/// A command that runs on a terminal.
pub struct OnTerminal {
    pub child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    keyboard: File,
    /// Keeps the terminal open after the command has ended, so that its last words can be read.
    terminal: OwnedFd,
}

impl OnTerminal {
    /// Runs the binary under test with standard input, output and error on a terminal that is its own.
    pub fn start(args: &[&str]) -> Self {
        Self::start_program(laneway().as_std().get_program(), args)
    }

    /// The same with another program.
    pub fn start_program(program: &OsStr, args: &[&str]) -> Self {
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let mut command = Command::new("setsid"); // a session of its own, which the terminal then controls
        command.arg("--ctty").arg(program).args(args);
        for (name, _) in laneway().as_std().get_envs() {
            command.env_remove(name);
        }
        command.env_remove("NO_COLOR"); // what this shows does not depend on who runs the tests
        let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
        command.env("TERM", "xterm-256color").stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = command.kill_on_drop(true).spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let mut output = File::from(pty.master.try_clone().unwrap());
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends with an error when the last descriptor of the terminal is closed.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self { child, screen, keyboard: File::from(pty.master), terminal: pty.slave }
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// What stands on the screen now.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows what is asked for.
    pub async fn shows(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let seen = wait::until_within(2 * wait::PATIENCE, what, async || is_there(&self.text()));
        if tokio::time::timeout(wait::PATIENCE, seen).await.is_err() {
            panic!("it does not show {what}:\n{}", self.text());
        }
    }

    /// The colours of all cells that show a character.
    pub fn colours_of(&self, glyph: &str) -> Vec<vt100::Color> {
        let parser = self.screen.lock().unwrap();
        let cells = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column)));
        let cells = cells.filter_map(|(row, column)| parser.screen().cell(row, column));
        cells.filter(|cell| cell.contents() == glyph).map(vt100::Cell::fgcolor).collect()
    }

    /// Whether it is as a shell expects it: the normal screen, a cursor, lines and an echo.
    pub fn is_restored(&self) -> bool {
        let parser = self.screen.lock().unwrap();
        let flags = tcgetattr(&self.terminal).unwrap().local_flags;
        let cooked = flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        cooked && !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
    }

    /// Waits for its end. Returns its exit code, or -1 after a signal.
    pub async fn ended(&mut self) -> i32 {
        let end = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        end.unwrap_or_else(|_| panic!("it does not end:\n{}", self.text())).unwrap().code().unwrap_or(-1)
    }
}
