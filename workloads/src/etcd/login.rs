//! Logging in to etcd ([`log_in`]): a member makes a token, which goes with every request.
//!
//! A member keeps tokens in memory: it forgets them when it is not asked with them for some minutes, when authentication is switched
//! off, and, where its log no longer has them, when it is started again. Source: <https://etcd.io/docs/v3.5/learning/design-auth-v3/>

use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::methods::{LoginToken, ask};
use super::wire::AuthenticateRequest;
use crate::login::Login;

/// Logs in at a member.
///
/// # Errors
///
/// The member's answer, also where it does not know the user or the password is another.
pub(super) async fn log_in(channel: Channel, login: &Login) -> Result<LoginToken, Status> {
    let request = AuthenticateRequest {
        name: login.user.clone(),
        password: login.password.clone(),
    };
    let answer = ask(LoginToken::default().on(channel), request).await?;
    let token = MetadataValue::try_from(answer.token);
    let token = token.map_err(|_| Status::internal("a token that no request can carry"))?;
    Ok(LoginToken(Some(token)))
}

/// The words of a member about a token that it gave before users or rights were changed.
const OLD_REVISION: &str = "revision of auth store is old";

/// Whether a request was refused because its token is not known (any more): then nothing was done.
pub(super) fn is_stale(refused: &Status) -> bool {
    refused.code() == Code::Unauthenticated || refused.message().contains(OLD_REVISION)
}
