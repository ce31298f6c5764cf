//! `harness client-check` with lines that the protocol does not have: an unknown operation, broken JSON, a blank line.
//!
//! A run sends none of them. A client that answers `ok` to an unknown operation is wrong; whether it continues after the others
//! is reported and not judged.

use super::checked_client::{CheckRefusal, CheckedClient};
use super::{CheckGround, ClientCheck};

/// Lines without a request, and their names.
const NO_REQUESTS: [(&str, &str); 2] = [("a blank line", ""), ("a line that is not JSON", r#"{"id":"#)];

/// Checks them, each with a process of its own, since one may end by them.
pub async fn check(check: &ClientCheck, ground: &CheckGround) {
    for (step, line) in NO_REQUESTS {
        let Some(client) = opened(check, ground).await else {
            return;
        };
        client.send(line).await;
        let answer = client.release("l0").await;
        match &answer.answer {
            Err(CheckRefusal::None(why)) => {
                // its last words are a trace, which adds nothing
                let why = why.split(';').next().unwrap_or_default();
                check.not_judged(step, format!("it does not go on after `{line}`: {why}"));
            }
            _ => check.right(step, "it goes on with the next request"),
        }
        client.end().await;
    }
    let Some(client) = opened(check, ground).await else {
        return;
    };
    let answer = client.request_unknown_operation().await;
    let (step, seen) = ("an unknown operation", answer.in_words());
    match &answer.answer {
        Ok(_) => check.wrong(step, format!("{seen}; expected `fail`")),
        Err(CheckRefusal::None(_)) => check.not_judged(step, format!("it does not go on: {seen}; `fail` is better")),
        Err(_) => check.right(step, seen),
    }
    client.end().await;
}

/// The number of the client, after the two of the previous steps.
const NUMBER: u32 = 2;

/// Starts and opens a client. A failure was reported by an earlier step.
async fn opened(check: &ClientCheck, ground: &CheckGround) -> Option<CheckedClient> {
    let started = CheckedClient::start(check, &ground.place, NUMBER, ground.endpoints.clone()).await;
    let mut client = started.ok()?;
    client.open().await.is_ok().then_some(client)
}
