//! The login guard of etcd: a user with a role over all keys, and `root`, which etcd requires.
//!
//! <https://etcd.io/docs/v3.5/op-guide/authentication/rbac/>

use std::sync::Arc;

use harness_workloads::Login;
use harness_workloads::etcd::wire::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, Permission, READ_WRITE,
};
use harness_workloads::etcd::{EtcdChannel, LoginToken, ask};
use tonic::Status;

use super::channel::{plain_channel, said};
use crate::cluster::Endpoints;

/// The name of the user and of the role with all rights.
pub(super) const ROOT: &str = "root";

pub async fn guard(servers: Endpoints, login: Arc<Login>) -> Result<(), String> {
    let channel = LoginToken::default().on(plain_channel(&servers));
    tell(channel, &login).await.map_err(said)
}

async fn tell(channel: EtcdChannel, login: &Login) -> Result<(), Status> {
    for name in [ROOT, &login.user] {
        let role = AuthRoleAddRequest { name: name.to_owned() };
        ask(channel.clone(), role).await?;
        let user = AuthUserAddRequest {
            name: name.to_owned(),
            password: login.password.clone(),
        };
        ask(channel.clone(), user).await?;
        let granted = AuthUserGrantRoleRequest {
            user: name.to_owned(),
            role: name.to_owned(),
        };
        ask(channel.clone(), granted).await?;
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
    ask(channel.clone(), role).await?;
    ask(channel, AuthEnableRequest {}).await
}
