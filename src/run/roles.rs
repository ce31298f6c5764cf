//! Roles of the servers: polled once a second, shown, and written into the history at each change.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness_checkers::history::{NemesisFact, Role};

use crate::cluster::NodeControl;
use crate::run::context::RunContext;
use crate::run::locked::locked;

/// The time between two polls of the servers.
const EVERY: Duration = Duration::from_secs(1);

/// Every server's name with its role, at the last poll.
#[derive(Default)]
pub struct ServerRoles(Mutex<Vec<(String, Role)>>);

impl ServerRoles {
    /// Polls until it is dropped. A server that does not answer only delays the next poll of the others.
    pub async fn watch(&self, servers: NodeControl, run: Arc<RunContext>) {
        loop {
            let roles = servers.roles().await.into_iter().map(|(name, serving)| {
                let role = serving.map_or(Role::NotServing, |serving| Role::parse(&serving.role));
                (name, role)
            });
            if let Some(changed) = self.see(roles.collect()) {
                // this is no window of the plan: servers change roles by themselves
                let fact = NemesisFact::Roles(changed.into_iter().collect());
                run.recorder.nemesis(&fact);
            }
            run.clock.sleep(EVERY).await;
        }
    }

    /// Returns `n2 leader`, for each.
    pub fn in_words(&self) -> Vec<String> {
        let roles = locked(&self.0);
        roles.iter().map(|(name, role)| format!("{name} {role}")).collect()
    }

    /// Stores the result of a poll; returns it if it differs from the previous one.
    fn see(&self, now: Vec<(String, Role)>) -> Option<Vec<(String, Role)>> {
        let mut before = locked(&self.0);
        (*before != now).then(|| {
            before.clone_from(&now);
            now
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(roles: &[Role]) -> Vec<(String, Role)> {
        let named = roles.iter().enumerate();
        named.map(|(at, role)| (format!("n{}", at + 1), role.clone())).collect()
    }

    #[test]
    fn only_what_changed_is_to_be_written_down_and_the_last_is_shown() {
        let roles = ServerRoles::default();
        let first = answer(&[Role::Leader, Role::Follower]);
        assert_eq!(roles.see(first.clone()), Some(first.clone()));
        assert_eq!(roles.see(first.clone()), None);
        let second = answer(&[Role::NotServing, Role::Follower]);
        assert_eq!(roles.see(second.clone()), Some(second));
        assert_eq!(roles.in_words(), ["n1 not serving", "n2 follower"]);
        assert!(roles.see(first).is_some());
    }
}
