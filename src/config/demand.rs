//! The demand of a run on its clients beyond plain acquires ([`Demand`]): reads, tries, nested holds, permits. The
//! options request them, and the contract of the clients allows them.

use harness_workloads::{Contract, IssuedBy};

use super::{Clients, Config};

/// Percentage of acquires in read mode for a foreign client with such a mode, if no option sets it.
const READS: u32 = 50;
/// Percentage of tries with `--fault any`, if the lock is known to support them.
const TRIES: u32 = 10;

/// The calls that are requested from the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Percentage of acquires in read mode.
    pub reads: u32,
    /// Whether the lock has a read mode, requested or not.
    modes: bool,
    /// Percentage of acquires that do not wait.
    pub tries: u32,
    /// Whether a holder sometimes acquires its lock a second time, and releases it twice.
    pub nested: bool,
    /// Maximum number of holders of a lock at once, each with one permit.
    pub permits: Option<u32>,
    /// Percentage of odd turns.
    pub odd_turns: u32,
    /// The calls that odd turns may have.
    pub odd: OddTurns,
}

/// The unusual calls that the lock's promises allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OddTurns {
    /// Leave a lost lock unreleased: it ends unless the client renews it; then only the release may end that.
    pub leaves_losses: bool,
    /// Release a lock twice. For a semaphore, that adds a permit.
    pub releases_twice: bool,
    /// Acquire a lock that is held: the lock must refuse it.
    pub asks_again: bool,
    /// Extend a lease that is over: the lock refuses it, or the client has the lock again. That would need a new token
    /// if there are tokens, and the reply has none.
    pub extends_late: bool,
}

impl OddTurns {
    fn of(contract: &Contract, foreign: bool, is_shared: bool) -> Self {
        let ends_by_itself = contract.lease == Some(true) && contract.renews == Some(false);
        Self {
            leaves_losses: ends_by_itself || !foreign,
            releases_twice: contract.permits.is_none(),
            asks_again: contract.reentrant == Some(false) && contract.tries == Some(true) && !is_shared,
            extends_late: contract.extends == Some(true)
                && contract.lease != Some(false)
                && matches!(contract.token, None | Some(IssuedBy::None))
                && contract.permits.is_none()
                && contract.reentrant != Some(true),
        }
    }
}

impl Demand {
    /// Returns the demand of `config` on clients with this contract. The error names the option that they cannot satisfy.
    pub fn of(config: &Config, contract: &Contract) -> Result<Self, String> {
        let foreign = matches!(config.who, Clients::Foreign { .. });
        let modes = contract.read == Some(true);
        let has_reads = foreign && modes && contract.permits.is_none();
        let usual = if has_reads { READS } else { 0 };
        let reads = config.mix.reads.unwrap_or(usual);
        let reentrant = contract.reentrant == Some(true);
        let is_shared = reads > 0 || modes || contract.permits.is_some();
        let has_tries = contract.tries == Some(true) && !is_shared && !reentrant;
        let usual = if config.has_any_fault() && has_tries { TRIES } else { 0 };
        let tries = config.mix.tries.unwrap_or(usual);
        let who = config.recipe_name();
        if reads > 0 && contract.read == Some(false) {
            return Err(format!(
                "--reads needs a read mode, and {who} has none\nhint: --recipe zk-read-write, or a --client that promises read=true"
            ));
        }
        if reads > 0 && contract.permits.is_some() {
            return Err(format!(
                "--reads needs a lock with modes, and {who} has permits: no model has both\nhint: leave --reads out"
            ));
        }
        if tries > 0 && contract.tries == Some(false) {
            return Err(format!(
                "--tries needs a try-lock, and {who} promises tries=false\nhint: leave --tries out"
            ));
        }
        if tries > 0 && (is_shared || (reentrant && !foreign)) {
            let why = "--tries needs an exclusive lock: no model has `busy` answers of shared or reentrant locks";
            return Err(format!("{why}\nhint: leave --tries out"));
        }
        if reads > 0 && reentrant && !foreign {
            let why = "--reentrant cannot be combined with --reads: no model has both";
            return Err(format!("{why}\nhint: leave one of the two out"));
        }
        if contract.permits == Some(0) {
            return Err(format!(
                "{who} promises permits=0: a lock that no client can hold\nhint: promise the number of permits, or leave permits out"
            ));
        }
        Ok(Self {
            reads,
            modes,
            tries,
            nested: reentrant && !modes && reads == 0 && tries == 0 && contract.permits.is_none(),
            permits: contract.permits,
            odd_turns: config.mix.odd_turns,
            odd: OddTurns::of(contract, foreign, is_shared),
        })
    }

    /// Returns the model of the lock, by its name in the checkers.
    pub fn model(&self) -> String {
        match *self {
            Self {
                permits: Some(permits), ..
            } => format!("semaphore={permits}"),
            Self { nested: true, .. } => "reentrant".to_owned(),
            Self { reads: 1.., .. } | Self { modes: true, .. } => "read-write".to_owned(),
            Self { tries: 1.., .. } => "try-lock".to_owned(),
            _ => "mutex".to_owned(),
        }
    }

    /// Whether several clients may hold a lock at once, for reading or with permits.
    pub fn is_shared(&self, read: bool) -> bool {
        read || self.permits.is_some_and(|permits| permits > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ANY_FAULT, FaultRequest};

    fn of(reads: Option<u32>, tries: Option<u32>, promises: &[&str]) -> Result<Demand, String> {
        let mut config = Config::example();
        config.who = Clients::Foreign {
            command: "python3 my_lock.py".into(),
            promise: Contract::default(),
        };
        (config.mix.reads, config.mix.tries) = (reads, tries);
        Demand::of(&config, &Contract::promised(promises)?)
    }

    #[test]
    fn what_a_contract_promises_is_asked_for_and_judged() {
        for (reads, tries, promises, model) in [
            (None, None, vec![], "mutex"),
            (None, Some(20), vec!["tries=true"], "try-lock"),
            (None, None, vec!["read=true"], "read-write"),
            (Some(0), None, vec!["read=true"], "read-write"),
            (Some(80), None, vec![], "read-write"),
            (None, None, vec!["reentrant=true"], "reentrant"),
            (None, Some(20), vec!["reentrant=true"], "try-lock"),
            (None, None, vec!["reentrant=true", "read=true"], "read-write"),
            (None, None, vec!["permits=3", "read=true"], "semaphore=3"),
        ] {
            let demand = of(reads, tries, &promises).unwrap();
            assert_eq!(demand.model(), model, "{promises:?}");
            assert_eq!(demand.nested, model == "reentrant", "{promises:?}");
        }
        assert_eq!(of(None, None, &["read=true"]).unwrap().reads, READS);
        assert_eq!(of(Some(0), None, &["read=true"]).unwrap().reads, 0);
    }

    #[test]
    fn another_application_does_what_the_contract_allows() {
        let odd = |promises: &[&str]| {
            let OddTurns {
                leaves_losses,
                releases_twice,
                asks_again,
                ..
            } = of(None, None, promises).unwrap().odd;
            [leaves_losses, releases_twice, asks_again]
        };
        for (promises, allowed) in [
            (vec![], [false, true, false]),
            (vec!["lease=true", "renews=true"], [false, true, false]),
            (vec!["lease=true", "renews=false"], [true, true, false]),
            (vec!["reentrant=false", "tries=true"], [false, true, true]),
            (vec!["reentrant=true", "tries=true"], [false, true, false]),
            (vec!["reentrant=false", "tries=true", "read=true"], [false, true, false]),
            (
                vec!["reentrant=false", "tries=true", "permits=2"],
                [false, false, false],
            ),
        ] {
            assert_eq!(odd(&promises), allowed, "{promises:?}");
        }
    }

    #[test]
    fn every_fault_comes_with_tries_where_an_exclusive_lock_promises_them() {
        let tries = |typed: Option<u32>, promises: &[&str]| {
            let mut config = Config::example();
            config.faults = vec![FaultRequest::read(ANY_FAULT)];
            config.mix.tries = typed;
            let contract = Contract::promised(promises).unwrap();
            Demand::of(&config, &contract).unwrap().tries
        };
        assert_eq!(tries(None, &["tries=true"]), TRIES);
        assert_eq!(tries(Some(0), &["tries=true"]), 0);
        for other in [
            vec![],
            vec!["tries=false"],
            vec!["tries=true", "permits=2"],
            vec!["tries=true", "reentrant=true"],
        ] {
            assert_eq!(tries(None, &other), 0, "{other:?}");
        }
    }
}
