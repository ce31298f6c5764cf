//! The command as users type it, on real servers: what must be caught is caught, what must hold holds, and every fault is
//! seen biting. Tests below `docker` need an engine with the images; `make test` provides both and says so if it cannot.

mod accidents;
mod clocks;
mod command;
mod faults;
mod foreign;
mod locks;
mod processes;
mod rifts;
mod settings;
mod suite;
