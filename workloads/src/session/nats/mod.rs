//! The session with NATS ([`NatsSession`]), for all servers, and the messages of JetStream that it needs ([`api`]).

pub mod api;
mod client_session;
mod connection;
mod frames;
mod key_request;

pub use api::KeyMessage;
pub use client_session::{NatsServers, NatsSession};
pub use connection::{NatsConnection, NatsError, NatsGreeting, NatsReply, NatsRequest, lone_answer, lone_request};
pub use key_request::{KeyAnswer, KeyDial, KeyLine, KeyOutcome, KeyRequest};
