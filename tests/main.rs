//! The command as users type it, on models and on real servers, and its screens and pages: one program, so that one is linked.

mod command;
mod fixtures;
mod machine;
mod make_run;
mod outcome;
mod page;
mod placements;
mod real;
mod real_servers;
mod refusals;
mod screens;
mod simulated;
mod stored;
mod virtual_time;
