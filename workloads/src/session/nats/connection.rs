//! A connection to a NATS server ([`NatsConnection`]): requests and their answers, over any stream.
//!
//! It speaks the part of the protocol that a lock needs. Answers come to an inbox of the connection, each under the number of its
//! request, so that one that comes too late is not taken for another.

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frames::{ServerFrame, first_frame};
use crate::login::Login;

/// The reason for which a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// It was not sent.
    #[error("{0}")]
    Unsent(String),
    /// It was sent, or a part of it was.
    #[error("{0}")]
    Unanswered(String),
}

/// A message that has an answer.
#[derive(Debug, Clone, Default)]
pub struct NatsRequest {
    pub subject: String,
    pub headers: Vec<(&'static str, String)>,
    pub payload: Vec<u8>,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct NatsReply {
    /// `NATS/1.0 503` and the like.
    pub headers: String,
    pub payload: Vec<u8>,
}

/// A server's description of itself when a client connects.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NatsGreeting {
    #[serde(default)]
    pub server_name: String,
    #[serde(default)]
    pub version: String,
    /// The name of its cluster, where it is one of several.
    pub cluster: Option<String>,
    #[serde(default)]
    tls_required: bool,
}

/// A connection over which requests are sent.
pub struct NatsConnection<S> {
    pub server: NatsGreeting,
    stream: S,
    received: Vec<u8>,
    inbox: String,
    requests: u64,
    /// Whether nothing can be sent any more: a part of a request may be lost.
    is_torn: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> NatsConnection<S> {
    /// Greets a server. `seed` is in the name of the inbox, which no other connection may have.
    pub async fn greet(stream: S, login: Option<&Login>, seed: u64) -> Result<Self, String> {
        let mut connection = NatsConnection {
            server: NatsGreeting::default(),
            stream,
            received: Vec::new(),
            inbox: format!("_INBOX.{seed:024x}."),
            requests: 0,
            is_torn: false,
        };
        let ServerFrame::Info(info) = connection.next_frame().await? else {
            return Err("its greeting is not that of a NATS server".to_owned());
        };
        connection.server = serde_json::from_slice(&info).map_err(|error| error.to_string())?;
        if connection.server.tls_required {
            return Err("it wants TLS".to_owned());
        }
        let hello = hello(login, &format!("{}*", connection.inbox)) + "PING\r\n";
        connection.send(hello.as_bytes()).await?;
        while connection.next_frame().await? != ServerFrame::Pong {}
        Ok(connection)
    }

    /// Sends a request, and waits for its answer.
    pub async fn ask(&mut self, request: &NatsRequest) -> Result<NatsReply, NatsError> {
        let mut answers = self.ask_all(std::slice::from_ref(request)).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Sends requests at once, and waits for all answers, which are in the order of the requests.
    pub async fn ask_all(&mut self, requests: &[NatsRequest]) -> Result<Vec<NatsReply>, NatsError> {
        if self.is_torn {
            return Err(NatsError::Unsent("the connection ended".to_owned()));
        }
        self.read_what_came().await.map_err(NatsError::Unsent)?;
        let first = self.requests;
        let mut bytes = Vec::new();
        for request in requests {
            write(&mut bytes, request, &format!("{}{}", self.inbox, self.requests));
            self.requests += 1;
        }
        self.send(&bytes).await.map_err(NatsError::Unanswered)?;
        let mut answers = vec![None; requests.len()];
        while answers.iter().any(Option::is_none) {
            let frame = self.next_frame().await.map_err(NatsError::Unanswered)?;
            let ServerFrame::Message {
                subject,
                headers,
                payload,
            } = frame
            else {
                continue;
            };
            let number = subject.strip_prefix(&self.inbox).and_then(|number| number.parse().ok());
            let place = number.and_then(|number: u64| number.checked_sub(first));
            if let Some(answer) = place.and_then(|place| answers.get_mut(place as usize)) {
                *answer = Some(NatsReply { headers, payload });
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Reads the bytes that have come, without a wait, so that the end of a connection is known before something is sent over it.
    async fn read_what_came(&mut self) -> Result<(), String> {
        loop {
            tokio::select! {
                biased;
                frame = self.next_frame() => drop(frame?),
                () = std::future::ready(()) => return Ok(()),
            }
        }
    }

    /// Returns the next frame but pings, which are answered. May be dropped at any time: nothing that came is lost.
    async fn next_frame(&mut self) -> Result<ServerFrame, String> {
        loop {
            while let Some((frame, length)) = first_frame(&self.received)? {
                self.received.drain(..length);
                match frame {
                    ServerFrame::Ping => self.send(b"PONG\r\n").await?,
                    ServerFrame::Error(why) => return Err(why),
                    frame => return Ok(frame),
                }
            }
            match self.stream.read_buf(&mut self.received).await {
                Ok(0) => return Err("the connection ended".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        // where this future is dropped, too
        self.is_torn = true;
        self.stream.write_all(bytes).await.map_err(|error| error.to_string())?;
        self.is_torn = false;
        Ok(())
    }
}

/// Returns the first bytes of a client that subscribes to `inbox`.
fn hello(login: Option<&Login>, inbox: &str) -> String {
    let (user, pass) = login.map(|login| (&login.user, &login.password)).unzip();
    let options = json!({
        "verbose": false, "pedantic": false, "protocol": 1, "headers": true, "no_responders": true,
        "lang": "rust", "version": "1", "name": "harness", "user": user, "pass": pass,
    });
    format!("CONNECT {options}\r\nSUB {inbox} 1\r\n")
}

/// Returns the bytes of a client that sends one request; its answer comes to `inbox`, which no other client may have.
pub fn lone_request(request: &NatsRequest, login: Option<&Login>, inbox: &str) -> Vec<u8> {
    let mut bytes = hello(login, inbox).into_bytes();
    write(&mut bytes, request, inbox);
    bytes
}

/// Returns the answer to a [`lone_request`] in the bytes of a server so far; `None` while it has not come.
pub fn lone_answer(mut bytes: &[u8]) -> Result<Option<(NatsGreeting, NatsReply)>, String> {
    let mut greeting = NatsGreeting::default();
    while let Some((frame, length)) = first_frame(bytes)? {
        bytes = &bytes[length..];
        match frame {
            ServerFrame::Info(info) => greeting = serde_json::from_slice(&info).map_err(|error| error.to_string())?,
            ServerFrame::Message { headers, payload, .. } => {
                return Ok(Some((greeting, NatsReply { headers, payload })));
            }
            ServerFrame::Error(why) => return Err(why),
            _ => {}
        }
    }
    Ok(None)
}

/// Appends a request whose answer is to come to `inbox`.
fn write(bytes: &mut Vec<u8>, request: &NatsRequest, inbox: &str) {
    let NatsRequest {
        subject,
        headers,
        payload,
    } = request;
    let mut head = String::new();
    if !headers.is_empty() {
        head.push_str("NATS/1.0\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
    }
    let total = head.len() + payload.len();
    let line = match head.is_empty() {
        true => format!("PUB {subject} {inbox} {total}\r\n"),
        false => format!("HPUB {subject} {inbox} {} {total}\r\n", head.len()),
    };
    bytes.extend_from_slice(line.as_bytes());
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{DuplexStream, duplex};

    use super::*;

    async fn greeted() -> (NatsConnection<DuplexStream>, DuplexStream) {
        let (near, mut far) = duplex(4096);
        far.write_all(b"INFO {\"server_name\":\"n1\",\"version\":\"2.9.10\"}\r\nPONG\r\n")
            .await
            .unwrap();
        let connection = NatsConnection::greet(near, None, 7).await.unwrap();
        let said = heard(&mut far).await;
        assert!(
            said.starts_with("CONNECT {") && said.ends_with("* 1\r\nPING\r\n"),
            "{said}"
        );
        (connection, far)
    }

    async fn heard(far: &mut DuplexStream) -> String {
        let mut said = vec![0; 4096];
        let length = far.read(&mut said).await.unwrap();
        String::from_utf8(said[..length].to_vec()).unwrap()
    }

    fn request(subject: &str) -> NatsRequest {
        NatsRequest {
            subject: subject.into(),
            ..NatsRequest::default()
        }
    }

    #[tokio::test]
    async fn an_answer_goes_to_its_request_however_late_and_in_whatever_order() {
        let (mut connection, mut far) = greeted().await;
        let first = request("a");
        let given_up = tokio::time::timeout(Duration::from_millis(10), connection.ask(&first)).await;
        assert!(given_up.is_err());
        let inbox = connection.inbox.clone();
        let answering = async {
            let mut said = String::new();
            while !said.contains("PUB c") {
                said += &heard(&mut far).await;
            }
            let answers =
                format!("MSG {inbox}0 1 4\r\nlate\r\nPING\r\nMSG {inbox}2 1 3\r\ntwo\r\nMSG {inbox}1 1 3\r\none\r\n");
            far.write_all(answers.as_bytes()).await.unwrap();
        };
        let two = [request("b"), request("c")];
        let (both, ()) = tokio::join!(connection.ask_all(&two), answering);
        let both = both.unwrap();
        assert_eq!((&both[0].payload[..], &both[1].payload[..]), (&b"one"[..], &b"two"[..]));
    }

    #[tokio::test]
    async fn an_end_that_came_before_a_request_is_known_before_it_is_sent() {
        let (mut connection, far) = greeted().await;
        drop(far);
        assert!(matches!(connection.ask(&request("a")).await, Err(NatsError::Unsent(_))));
    }

    #[tokio::test]
    async fn an_end_that_comes_after_a_request_leaves_it_unanswered() {
        let (mut connection, mut far) = greeted().await;
        let ending = async {
            assert!(heard(&mut far).await.starts_with("HPUB a _INBOX."));
            drop(far);
        };
        let asked = NatsRequest {
            headers: vec![("Nats-Expected-Last-Subject-Sequence", "0".into())],
            ..request("a")
        };
        let (answer, ()) = tokio::join!(connection.ask(&asked), ending);
        assert!(matches!(answer, Err(NatsError::Unanswered(_))));
    }
}
