//! The terminal, taken for a full screen and given back as it was: at the end, after an error, and after a panic.

use std::io;

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;

/// A terminal in raw mode on its other screen. Dropping it gives it back.
#[derive(Debug)]
pub struct FullScreen {
    pub terminal: DefaultTerminal,
}

impl FullScreen {
    /// Takes the terminal. From here on a panic of any thread gives it back before it says why.
    pub fn enter() -> io::Result<Self> {
        match ratatui::try_init() {
            Ok(mut terminal) => {
                show_cursor_after_panic();
                terminal.hide_cursor()?;
                Ok(Self { terminal })
            }
            Err(error) => {
                ratatui::restore(); // it may have got half-way
                Err(error)
            }
        }
    }
}

/// The hook that comes with the terminal leaves the cursor to the terminal's own end, which a panic elsewhere does not bring.
fn show_cursor_after_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let _nobody_to_tell = execute!(io::stdout(), Show);
        hook(info);
    }));
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        ratatui::restore(); // the cursor comes back when the terminal itself is dropped
    }
}
