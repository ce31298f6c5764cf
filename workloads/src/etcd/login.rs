//! Logging in to etcd ([`log_in`]): a member makes a token, which goes with every request ([`LoginToken`]).
//!
//! A member keeps tokens in memory: it forgets them when it is not asked with them for some minutes, when authentication is switched
//! off, and, where its log no longer has them, when it is started again. Source: <https://etcd.io/docs/v3.5/learning/design-auth-v3/>

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::wire::etcdserverpb::AuthenticateRequest;
use super::wire::etcdserverpb::auth_client::AuthClient;
use crate::login::Login;

/// A channel whose requests carry a token, where there is one.
pub type EtcdChannel = InterceptedService<Channel, LoginToken>;

/// The token that a member gave for a login; none where nobody logs in.
#[derive(Clone, Default)]
pub struct LoginToken(Option<MetadataValue<Ascii>>);

impl Interceptor for LoginToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

impl LoginToken {
    /// Returns a channel whose requests carry the token.
    pub fn on(self, channel: Channel) -> EtcdChannel {
        InterceptedService::new(channel, self)
    }
}

/// Logs in at a member.
///
/// # Errors
///
/// The member's answer, also where it does not know the user or the password is another.
pub async fn log_in(channel: Channel, login: &Login) -> Result<LoginToken, Status> {
    let request = AuthenticateRequest {
        name: login.user.clone(),
        password: login.password.clone(),
    };
    let answer = AuthClient::new(channel).authenticate(request).await?.into_inner();
    let token = MetadataValue::try_from(answer.token);
    let token = token.map_err(|_| Status::internal("a token that no request can carry"))?;
    Ok(LoginToken(Some(token)))
}

/// The words of a member about a token that it gave before users or rights were changed.
const OLD_REVISION: &str = "revision of auth store is old";

/// Whether a request was refused because its token is not known (any more): then nothing was done.
pub fn is_stale(refused: &Status) -> bool {
    refused.code() == Code::Unauthenticated || refused.message().contains(OLD_REVISION)
}
