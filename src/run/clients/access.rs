//! The access of a client process to the servers: its login, and its TLS.

use std::sync::Arc;

use harness_tls::TlsFiles;
use harness_workloads::{BackendId, Login};
use tokio::process::Command;

/// The access of a child, which its environment has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientAccess {
    /// The store, if its variables are known.
    pub backend: Option<BackendId>,
    /// `None` if its servers need no login; the child then gets no login of harness's own environment either, but the name of a
    /// user that the servers know, if a client library would take that of the system's.
    pub login: Option<Arc<Login>>,
    /// Its TLS; `None` if its links read plain text. The child then gets no files of harness's own environment either.
    pub tls: Option<TlsFiles>,
}

impl ClientAccess {
    /// Sets the variables of a command, and removes those that are not the run's.
    pub(super) fn set_variables(&self, command: &mut Command) {
        let Some(backend) = self.backend else { return };
        self.set_tls_variables(backend, command);
        let variables = backend.login_variables();
        command.env_remove(variables.user).env_remove(variables.password);
        match &self.login {
            Some(login) => drop(command.envs(login.environment(backend))),
            None => drop(command.envs(variables.open_user.map(|user| (variables.user, user)))),
        }
    }

    fn set_tls_variables(&self, backend: BackendId, command: &mut Command) {
        let of_product = match backend {
            BackendId::Etcd => Some(["ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"]),
            _ => None,
        };
        for names in [Some(TlsFiles::VARIABLES), of_product].into_iter().flatten() {
            for (place, name) in names.into_iter().enumerate() {
                match &self.tls {
                    Some(files) => command.env(name, files.paths()[place]),
                    None => command.env_remove(name),
                };
            }
        }
    }
}
