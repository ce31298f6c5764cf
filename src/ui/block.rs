//! A block of lines at the bottom of a terminal: lines scroll above it, it is redrawn in place, and removed at the end.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

pub struct ScreenBlock {
    screen: MultiProgress,
    bar: ProgressBar,
}

impl Default for ScreenBlock {
    fn default() -> Self {
        let screen = MultiProgress::new();
        let bar = screen.add(ProgressBar::new_spinner());
        bar.set_style(style(DRAWN));
        Self { screen, bar }
    }
}

/// The template of a block that the caller draws.
const DRAWN: &str = "{msg}";
/// The template of a wait: its subject and its time.
const WAITING: &str = "\n {spinner} {elapsed}  {wide_msg}";
/// Time between two frames of the spinner.
const SPIN: Duration = Duration::from_millis(120);

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constant")
}

impl ScreenBlock {
    /// Shows the subject and the time of a wait until the block is drawn again. A line that is too long is cut.
    pub fn wait(&self, what: String, begins: bool) {
        if begins {
            self.bar.set_style(style(WAITING));
            self.bar.reset_elapsed();
            self.bar.enable_steady_tick(SPIN);
        }
        self.bar.set_message(what);
    }

    /// Ends a wait: nothing is shown until the block is drawn.
    pub fn end_wait(&self) {
        self.bar.disable_steady_tick();
        self.bar.set_style(style(DRAWN));
        self.bar.set_message("");
    }

    /// Redraws the block.
    pub fn draw(&self, text: String) {
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// Prints a line above the block.
    pub fn say(&self, line: String) {
        let _ = self.screen.println(line);
    }

    /// Removes the block.
    pub fn end(&self) {
        self.bar.finish_and_clear();
        let _ = self.screen.clear();
    }
}
