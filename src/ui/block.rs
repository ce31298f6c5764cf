//! A block of lines at the bottom of a terminal: lines scroll above it, it is redrawn in place, and vanishes at the end.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

pub struct ScreenBlock {
    screen: MultiProgress,
    bar: ProgressBar,
}

impl Default for ScreenBlock {
    fn default() -> Self {
        let screen = MultiProgress::new();
        let bar = screen.add(ProgressBar::new_spinner());
        bar.set_style(ProgressStyle::with_template("{msg}").expect("a template without fields of its own"));
        Self { screen, bar }
    }
}

impl ScreenBlock {
    /// Draws the block anew.
    pub fn draw(&self, text: String) {
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// Puts a line above the block.
    pub fn say(&self, line: String) {
        let _ = self.screen.println(line);
    }

    /// Removes the block.
    pub fn end(&self) {
        self.bar.finish_and_clear();
        let _ = self.screen.clear();
    }
}
