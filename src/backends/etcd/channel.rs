//! Channels to real servers, for requests beside the observer's: plain ones ([`plain_channel`]), and those with a login.

use std::net::SocketAddr;

use harness_workloads::Login;
use harness_workloads::etcd::{EtcdChannel, LoginToken, log_in};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::cluster::Endpoints;
use crate::limits::PROBE;

/// Returns a channel to the servers that answer. It leaves a silent one.
pub fn plain_channel(servers: &Endpoints) -> Channel {
    let endpoint = |address: &SocketAddr| {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address makes an endpoint");
        endpoint
            .connect_timeout(PROBE)
            .tcp_nodelay(true)
            .keep_alive_while_idle(true)
            .http2_keep_alive_interval(PROBE)
            .keep_alive_timeout(PROBE)
    };
    Channel::balance_list(servers.servers().iter().map(endpoint))
}

/// Adds a token for this login to the channel, if there is one.
pub async fn logged_in(channel: Channel, login: Option<&Login>) -> Result<EtcdChannel, Status> {
    let token = match login {
        None => LoginToken::default(),
        Some(login) => log_in(channel.clone(), login).await?,
    };
    Ok(token.on(channel))
}

/// Returns the message of an error.
pub fn said(status: Status) -> String {
    status.message().to_owned()
}
