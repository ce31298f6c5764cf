//! The consequences of a client's contract for `harness client-check`: the steps, and the properties that are not judged.

use harness_workloads::{Contract, IssuedBy};

use super::ClientCheck;
use crate::run::terms::Terms;

/// Adds remarks about the contract.
pub fn add_remarks(check: &ClientCheck, terms: &Terms, answered: bool) {
    let contract = &terms.contract;
    if !answered && *contract == Contract::default() {
        check.not_judged(
            "the contract",
            "the answer to `open` has no `contract`: only contradictions between the replies are judged",
        );
    } else {
        check.right("the contract", contract.to_string());
    }
    check.right("the model", terms.demand.model());
    for (step, why) in not_judged(terms) {
        check.not_judged(step, why);
    }
}

/// Returns the properties that are not judged for clients with these terms, with reasons.
fn not_judged(terms: &Terms) -> Vec<(&'static str, String)> {
    let contract = &terms.contract;
    let without = |field: &str| format!("the contract does not promise `{field}`");
    let mut told = Vec::new();
    if contract.fifo != Some(true) {
        told.push(("order of waiters (HL006)", without("fifo")));
    }
    if !matches!(contract.token, Some(IssuedBy::Server | IssuedBy::Own)) {
        told.push(("fencing tokens (HL003)", without("token")));
    }
    let promises = terms.promises();
    let server = contract.owner == Some(IssuedBy::Server) || contract.token == Some(IssuedBy::Server);
    if promises.watched == Some(false) {
        let why = "the observer cannot see who holds this lock (`value` none, or `permits`)";
        told.push(("the server's own grants (HL007, HL009)", why.into()));
    } else if !server {
        let why = "neither `owner` nor `token` is promised to be \"server\", so a reply cannot be joined to a grant";
        told.push(("the server's own grants (HL007, HL009)", why.into()));
    }
    if contract.reentrant == Some(true) && !terms.demand.nested {
        told.push(("reentrancy", "no model has it together with modes or permits".into()));
    }
    if contract.lease.is_none() {
        told.push(("whether a dead holder must be replaced", without("lease")));
    }
    told
}
