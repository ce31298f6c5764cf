//! The configuration of an experiment that a hunt draws, set option by option without a command line.

use std::str::FromStr;

use crate::config::{Config, FaultRequest, NO_FAULT, parse_duration};

/// Sets an option to its value in a draw, as if it had been typed. The error names an option that draws do not have.
pub fn set_drawn(config: &mut Config, name: &str, value: &str) -> Result<(), String> {
    match name {
        "clients" => config.clients = number(value)?,
        "locks" => config.locks = number(value)?,
        "tries" => config.mix.tries = Some(number(value)?),
        "odd-turns" => config.mix.odd_turns = number(value)?,
        "per-process" => config.per_process = number(value)?,
        "hold" => config.hold = parse_duration(value)?,
        "wait" => config.wait = parse_duration(value)?,
        "think" => config.load.think = parse_duration(value)?,
        "vary" => config.vary = parse_duration(value)?,
        "churn" => config.churn = Some(parse_duration(value)?),
        "window" => config.window = Some(parse_duration(value)?),
        "fault" => config.faults = faults(value),
        _ => return Err(format!("`{name}` is not an option that a hunt draws")),
    }
    Ok(())
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn faults(text: &str) -> Vec<FaultRequest> {
    let typed = text.split(',').filter(|fault| *fault != NO_FAULT);
    typed.map(FaultRequest::read).collect()
}
