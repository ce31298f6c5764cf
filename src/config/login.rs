//! The login of a run: one that is made for the run, or for attached servers the one in the environment.

use std::sync::Arc;

use harness_workloads::Login;

use super::Config;
use crate::backends::{self, Topology};
use crate::cluster::LoginGuard;

/// The refusals of servers and client libraries for a login that is missing or wrong.
const REFUSALS: [&str; 10] = [
    "NOAUTH",
    "WRONGPASS",
    "Authentication",
    "authentication failed",
    "user name is empty",
    "password missing",
    "Access denied",
    "NoAuth",
    "not authorized",
    "Authorization Violation",
];

impl Config {
    /// Returns the login of the run; `None` if its servers need none. With `--auth` each call makes another one.
    pub fn login(&self) -> Option<Arc<Login>> {
        let login = match self.attach.is_attached() {
            true => Login::of_environment(self.backend.id?),
            false => self.auth.then(Login::random),
        };
        login.map(Arc::new)
    }

    /// Returns the error, with a hint at the variables of the login if the servers refused it.
    pub fn with_login_hint(&self, why: String) -> String {
        let Some(id) = self
            .backend
            .id
            .filter(|_| REFUSALS.iter().any(|refusal| why.contains(refusal)))
        else {
            return why;
        };
        let variables = id.login_variables();
        format!(
            "{why}\nhint: set {} and {}, with which clients log in (docs/authentication.md)",
            variables.user, variables.password
        )
    }

    /// Refuses options that cannot be combined with `--tls`. The error has a hint.
    pub fn check_tls(&self) -> Result<(), String> {
        if !self.tls {
            return Ok(());
        }
        if self.attach.is_attached() {
            return Err("--tls is for servers that harness starts: it has no certificates for those of --servers\nhint: leave --tls out; clients can speak TLS through the links, which then cannot read messages".into());
        }
        if self.topology != Topology::Plain {
            return Err("--tls does not work with --topology sentinel and cluster yet: sentinels and replicas would not speak it\nhint: leave one of the two out".into());
        }
        if !self.backend.software.speaks_tls {
            return Err(format!(
                "--tls is for {}, and not for {} yet\nhint: leave --tls out",
                backends::names(" and ", |backend| backend.software.speaks_tls),
                self.backend
            ));
        }
        Ok(())
    }

    /// Refuses options that cannot be combined with `--auth`. The error has a hint.
    pub fn check_auth(&self) -> Result<(), String> {
        if !self.auth {
            return Ok(());
        }
        if self.attach.is_attached() {
            let variables = self.backend.id.map_or(String::new(), |id| {
                let variables = id.login_variables();
                format!(
                    "\nhint: leave --auth out, and set {} and {}",
                    variables.user, variables.password
                )
            });
            return Err(format!(
                "--auth is for servers that harness starts; those of --servers have their own logins{variables}"
            ));
        }
        if self.topology != Topology::Plain {
            return Err("--auth does not work with --topology sentinel and cluster yet: sentinels and replicas would not log in\nhint: leave one of the two out".into());
        }
        if matches!(self.backend.software.guard, LoginGuard::Unknown) {
            return Err(format!(
                "--auth is for the stores of harness; {} is described in a file, which cannot say how logins are made\nhint: leave --auth out",
                self.backend
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refused_login_has_the_hint() {
        let config = Config::example();
        for refusal in ["create: not authorized", "Authorization Violation"] {
            let hint = config.with_login_hint(format!("client c0 could not open its session: {refusal}"));
            assert!(hint.contains("ZK_USER and ZK_PASSWORD"), "{hint}");
        }
        let other = "client c0 could not open its session: connection refused";
        assert_eq!(config.with_login_hint(other.into()), other);
    }

    #[test]
    fn a_login_is_made_only_where_it_is_asked_for() {
        let mut config = Config::example();
        assert_eq!(config.login(), None);
        config.auth = true;
        assert!(config.login().is_some() && config.login() != config.login());
    }
}
