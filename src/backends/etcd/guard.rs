//! The login guard of etcd: a user with a role over all keys, and `root`, which etcd requires.
//!
//! <https://etcd.io/docs/v3.5/op-guide/authentication/rbac/>

use std::sync::Arc;

use harness_workloads::Login;
use harness_workloads::etcd::wire::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, Permission, READ_WRITE,
};

use super::dialled::GrpcConnection;
use crate::backends::stored_data::connect_to_any;
use crate::cluster::Endpoints;

/// The name of the user and of the role with all rights.
pub(super) const ROOT: &str = "root";

pub async fn guard(servers: Endpoints, login: Arc<Login>) -> Result<(), String> {
    let servers = servers.with_login(None);
    let store = connect_to_any(|| servers.accesses(), GrpcConnection::answering).await?;
    for name in [ROOT, &login.user] {
        let role = AuthRoleAddRequest { name: name.to_owned() };
        store.ask(&role).await?;
        let user = AuthUserAddRequest {
            name: name.to_owned(),
            password: login.password.clone(),
        };
        store.ask(&user).await?;
        let granted = AuthUserGrantRoleRequest {
            user: name.to_owned(),
            role: name.to_owned(),
        };
        store.ask(&granted).await?;
    }
    // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
    let all = Permission {
        perm_type: READ_WRITE,
        key: vec![0],
        range_end: vec![0],
    };
    let role = AuthRoleGrantPermissionRequest {
        name: login.user.clone(),
        perm: Some(all),
    };
    store.ask(&role).await?;
    store.ask(&AuthEnableRequest {}).await
}
