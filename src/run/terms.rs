//! The terms of a run ([`Terms`]): the contract of its clients, and its consequences. They are settled before the history begins,
//! since its header has them.

use std::time::Duration;

use harness_checkers::history::event::{Origin, Promises, Wakes};
use harness_workloads::{Contract, IssuedBy, KeyValue, Wakeup};

use crate::backends::lock_keys::LockKeys;
use crate::config::{Clients, Config, Demand};
use crate::faults::{NO_CLOCK_CONCERN, Target};
use crate::plan::{Plan, PlannedWindow};

/// The contract of the clients, the demand on them, and the place of their locks.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The answer to `open`. All clients of a run have the same.
    answered: Option<Contract>,
    /// The answer, completed by the options.
    pub contract: Contract,
    pub demand: Demand,
    pub keys: LockKeys,
    /// Whether the place of the locks is known; `None` if the observer uses the default place.
    pub watched: Option<bool>,
    /// Whether the clients are another program.
    foreign: bool,
}

impl Terms {
    /// Returns the terms for clients with this answer; the error is about a wrong answer.
    pub fn of(config: &Config, answered: Option<Contract>) -> Result<Self, String> {
        let mut contract = answered.clone().unwrap_or_default();
        let mut watched = Some(true);
        if let Clients::Foreign { promise, .. } = &config.who {
            contract = contract.completed_by(promise);
            // an observer that finds locks by their names finds them anywhere
            let by_name = config.backend.values.is_empty();
            watched = (by_name || contract.keys.is_some()).then_some(true);
        }
        let demand = Demand::of(config, &contract)?;
        // of several holders of one lock, the observer shows the first
        let several = demand.is_shared(false);
        if several || contract.value == Some(KeyValue::None) {
            watched = Some(false);
        }
        Ok(Self {
            keys: LockKeys::of(config.backend, &contract)?.marked(config.attach.mark.as_deref()),
            answered,
            contract,
            demand,
            watched,
            foreign: matches!(config.who, Clients::Foreign { .. }),
        })
    }

    /// Refuses a client with another answer than the first one, with both answers.
    pub fn confirm(&self, answer: Option<&Contract>) -> Result<(), String> {
        if answer == self.answered.as_ref() {
            return Ok(());
        }
        let words = |contract: Option<&Contract>| contract.map_or("no contract".to_owned(), ToString::to_string);
        Err(format!(
            "promises something else than the first client that was asked\n  then: {}\n  now:  {}\nhint: every `open` must answer the same `contract`",
            words(self.answered.as_ref()),
            words(answer)
        ))
    }

    /// Refuses a plan with a fault that cannot affect clients of this contract, with a hint.
    pub fn admit(&self, plan: &Plan) -> Result<(), String> {
        let steps_clocks = |window: &PlannedWindow| {
            let of_clients = !matches!(window.injection.target, Target::Servers(_));
            of_clients && window.injection.action.needs().wall_clocks
        };
        let stepped = plan.windows.iter().any(steps_clocks);
        if stepped && self.contract.wall_clock == Some(false) {
            return Err(NO_CLOCK_CONCERN.to_owned());
        }
        Ok(())
    }

    /// Returns the longest hold that a fault on its holder may cause. A client without renewal is not made to work past its
    /// lease: the workload would break it. A recipe is: it raises `lost`, or ignores its lease on purpose.
    pub fn longest_hold(&self, lease: Duration) -> Duration {
        match self.contract.renews {
            Some(false) if self.foreign && self.contract.extends != Some(true) => lease / 2,
            _ => Duration::MAX,
        }
    }

    /// Returns the longest of the rare long holds of a load: past its lease if the lock renews it.
    pub fn long_hold(&self, lease: Duration) -> Duration {
        if self.contract.outlasts_its_lease() {
            lease * 2
        } else {
            lease / 2
        }
    }

    /// Returns the promises of the lock for the header of the history.
    pub fn promises(&self) -> Promises {
        let contract = &self.contract;
        let origin = |issued| match issued {
            IssuedBy::Server => Origin::Server,
            IssuedBy::Own => Origin::Own,
            IssuedBy::None => Origin::None,
        };
        Promises {
            wakes: match contract.wakes {
                Some(Wakeup::Notified) => Some(Wakes::Notified),
                Some(Wakeup::Polling) => Some(Wakes::Polls),
                Some(Wakeup::Unreported) | None => None,
            },
            fifo: contract.fifo.unwrap_or(false),
            tokens: matches!(contract.token, Some(IssuedBy::Server | IssuedBy::Own)),
            lease: contract.lease,
            // a recipe is judged as a lock, also one without a lease
            replaces: (!self.foreign && contract.lease == Some(false)).then_some(true),
            // the client or the application renews it during the whole hold
            renews: match contract.extends {
                Some(true) => Some(true),
                _ => contract.renews,
            },
            reentrant: contract.reentrant,
            owner: contract.owner.map(origin),
            token: contract.token.map(origin),
            watched: self.watched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(typed: &[&str]) -> Config {
        let mut config = Config::example();
        config.who = Clients::Foreign {
            command: "./my-lock".into(),
            promise: answer(typed),
        };
        config
    }

    fn answer(promises: &[&str]) -> Contract {
        Contract::promised(promises).unwrap()
    }

    #[test]
    fn a_client_without_a_contract_promises_nothing() {
        let terms = Terms::of(&foreign(&[]), None).unwrap();
        assert_eq!(terms.promises(), Promises::default());
        assert_eq!(terms.demand.model(), "mutex");
    }

    #[test]
    fn the_header_has_what_is_answered_and_what_is_typed() {
        let answered = answer(&["renews=false", "owner=server", "token=own", "keys=/locks/{lock}"]);
        let promises = Terms::of(&foreign(&["owner=own"]), Some(answered)).unwrap().promises();
        assert_eq!((promises.owner, promises.token), (Some(Origin::Own), Some(Origin::Own)));
        assert_eq!((promises.renews, promises.tokens), (Some(false), true));
        assert_eq!(promises.watched, Some(true));
    }

    #[test]
    fn a_lock_that_is_kept_elsewhere_or_has_several_holders_is_not_watched() {
        for promise in ["value=none", "permits=2"] {
            let terms = Terms::of(&foreign(&[]), Some(answer(&[promise, "keys=/locks/{lock}"]))).unwrap();
            assert_eq!(terms.promises().watched, Some(false), "{promise}");
        }
    }

    #[test]
    fn a_client_that_does_not_renew_is_not_made_to_hold_past_its_lease() {
        let lease = Duration::from_secs(2);
        let longest = |promise: &str| Terms::of(&foreign(&[promise]), None).unwrap().longest_hold(lease);
        assert_eq!(longest("renews=false"), lease / 2);
        assert_eq!(longest("renews=true"), Duration::MAX);
        assert_eq!(longest("lease=true"), Duration::MAX, "it does not say");
        let extended = Terms::of(&foreign(&["renews=false", "extends=true"]), None).unwrap();
        assert_eq!(
            extended.longest_hold(lease),
            Duration::MAX,
            "the application extends it"
        );
        assert_eq!(extended.promises().renews, Some(true));
    }

    #[test]
    fn a_second_client_that_promises_something_else_is_refused_with_both_answers() {
        let terms = Terms::of(&foreign(&["fifo=true"]), Some(answer(&["renews=true"]))).unwrap();
        assert_eq!(terms.confirm(Some(&answer(&["renews=true"]))), Ok(()));
        let sentence = terms.confirm(Some(&answer(&["renews=false"]))).unwrap_err();
        assert!(sentence.contains(r#"then: {"renews":true}"#), "{sentence}");
        assert!(sentence.contains(r#"now:  {"renews":false}"#), "{sentence}");
        assert!(terms.confirm(None).unwrap_err().contains("now:  no contract"));
    }
}
