//! Pages in a real Chromium, from `file://`: no error, no request, keys and links work, readable without scripts.
//!
//! The tests below `browser` need a Chromium; `make test` installs one and says so if it cannot.

mod browser;
pub mod chromium;
mod sample;
