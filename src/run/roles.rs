//! What the servers are to each other: asked again and again, shown, and written down whenever it changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::cluster::RoleProbe;
use crate::run::context::RunContext;

/// Servers are asked this often.
const EVERY: Duration = Duration::from_secs(1);
/// The role of a server that does not serve.
const NONE: &str = "not serving";

/// Every server's name with its role, as last asked.
#[derive(Default)]
pub struct Roles(Mutex<Vec<(String, String)>>);

impl Roles {
    /// Asks until it is dropped. One that does not answer holds back nobody but the others' next question.
    pub async fn watch(&self, probe: RoleProbe, run: Arc<RunContext>) {
        loop {
            let roles = probe.roles().await;
            let named = roles.into_iter().map(|(name, serving)| {
                let role = serving.map_or_else(|| NONE.to_owned(), |serving| serving.role);
                (name, role)
            });
            if let Some(changed) = self.see(named.collect()) {
                run.recorder.nemesis("roles", line(&changed));
            }
            sleep(EVERY).await;
        }
    }

    /// `n2 leader`, for each.
    pub fn in_words(&self) -> Vec<String> {
        let roles = self.0.lock().expect("no one panics while holding the roles");
        roles.iter().map(|(name, role)| format!("{name} {role}")).collect()
    }

    /// Takes an answer; returns it if it is not the one before.
    fn see(&self, now: Vec<(String, String)>) -> Option<Vec<(String, String)>> {
        let mut before = self.0.lock().expect("no one panics while holding the roles");
        (*before != now).then(|| {
            before.clone_from(&now);
            now
        })
    }
}

/// No window of the plan: servers change by themselves.
fn line(roles: &[(String, String)]) -> Map<String, Value> {
    let roles: Map<String, Value> = roles
        .iter()
        .map(|(name, role)| (name.clone(), role.as_str().into()))
        .collect();
    Map::from_iter([("phase".to_owned(), "seen".into()), ("roles".to_owned(), roles.into())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(roles: &[&str]) -> Vec<(String, String)> {
        let named = roles.iter().enumerate();
        named
            .map(|(at, role)| (format!("n{}", at + 1), (*role).to_owned()))
            .collect()
    }

    #[test]
    fn only_what_changed_is_to_be_written_down_and_the_last_is_shown() {
        let roles = Roles::default();
        let first = answer(&["leader", "follower"]);
        assert_eq!(roles.see(first.clone()), Some(first.clone()));
        assert_eq!(roles.see(first.clone()), None);
        let second = answer(&[NONE, "follower"]);
        assert_eq!(roles.see(second.clone()), Some(second));
        assert_eq!(roles.in_words(), ["n1 not serving", "n2 follower"]);
        assert!(roles.see(first).is_some());
    }

    #[test]
    fn a_line_names_every_server_with_its_role() {
        let line = Value::from(line(&answer(&["leader", NONE])));
        let wanted = r#"{"phase":"seen","roles":{"n1":"leader","n2":"not serving"}}"#;
        assert_eq!(line, serde_json::from_str::<Value>(wanted).unwrap());
    }
}
