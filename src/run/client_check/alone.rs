//! `harness client-check` without a server: a client must start, report that it cannot connect, and end.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::checked_client::{CheckRefusal, CheckedClient};
use super::{CheckPlace, ClientCheck};

/// The step without a server.
const NOTHING: &str = "open without a server";
/// The step with a server of another protocol.
const GARBAGE: &str = "open at a server of another kind";

/// Checks with no server, and with one that speaks another protocol. Returns whether the client is fit for further steps.
pub async fn check(check: &ClientCheck, place: &CheckPlace) -> bool {
    let Ok(listener) = TcpListener::bind(("127.0.0.1", 0)).await else {
        check.not_judged("without a server", "this machine gives no port");
        return true;
    };
    let address = listener.local_addr();
    let garbage = address.map_or(String::new(), |address| address.to_string());
    // a port below those of the kernel, at which no process listens
    let nothing = "127.0.0.1:1".to_owned();
    let speaking = tokio::spawn(speak_garbage(listener));
    let started = refusal(check, place, NOTHING, nothing).await;
    let went_on = started && refusal(check, place, GARBAGE, garbage).await;
    speaking.abort();
    went_on
}

/// Opens a client that cannot connect. Returns whether its process could be started and spoke the protocol.
async fn refusal(check: &ClientCheck, place: &CheckPlace, step: &str, endpoint: String) -> bool {
    let mut client = match CheckedClient::start(check, place, 0, vec![endpoint]).await {
        Ok(client) => client,
        Err(why) => {
            check.wrong("start", why);
            return false;
        }
    };
    let opened = client.open().await;
    let seen = opened.in_words();
    let goes_on = match &opened.answer {
        Err(CheckRefusal::Fail(error) | CheckRefusal::Info(error)) if error.trim().is_empty() => {
            check.wrong(step, format!("{seen}; the reason is empty"));
            true
        }
        Err(CheckRefusal::Fail(_) | CheckRefusal::Info(_)) => {
            check.right(step, seen);
            true
        }
        Err(CheckRefusal::None(why)) => {
            let should = "answer `fail` with the reason within --open-limit, and keep running";
            let started = !why.contains("not found") && !why.contains("not of the client protocol");
            // a run restarts a client that ends: rude, and no reason to stop here
            check.wrong(step, format!("{why}\n{should}"));
            started
        }
        Ok(_) if step == GARBAGE => {
            let why = "it connects, and sends no request before its first acquire";
            check.not_judged(step, format!("{seen}: {why}"));
            true
        }
        Ok(_) => {
            let why = "although nothing listens at its endpoint: a client must use the given endpoints, and no others";
            check.wrong(step, format!("{seen}, {why}"));
            true
        }
    };
    let _ = place.clock.within(Duration::from_secs(2), client.close()).await;
    client.end().await;
    goes_on
}

/// Answers every connection with bytes that are of no protocol of a lock server.
async fn speak_garbage(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n\xff\xfe\0\0").await;
    }
}
