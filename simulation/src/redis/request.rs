//! Requests of clients to a simulated Redis ([`RedisRequest`]), and its answers, with the names and sizes of RESP.

use crate::network::{CallDigest, PassingMessage, WireMessage};

/// The scripts of the recipes, each one known to a server once it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedisScript {
    /// Deletes the key if it has the value.
    DelIf,
    /// The same, and publishes the value if it was deleted.
    DelIfAndPublish,
    /// Gives the key a new time to live if it has the value.
    ExpireIf,
}

impl RedisScript {
    /// Bytes of its text, as the client session has it.
    fn length(self) -> usize {
        match self {
            RedisScript::DelIf => 91,
            RedisScript::DelIfAndPublish => 113,
            RedisScript::ExpireIf => 102,
        }
    }
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisCommand {
    /// `HELLO 3`
    Hello,
    /// `SET key value NX [PX ttl]`; the time to live is in milliseconds.
    SetNx {
        key: String,
        value: String,
        ttl: Option<u64>,
    },
    Get {
        key: String,
    },
    GetSet {
        key: String,
        value: String,
    },
    /// `SET key value IFEQ value PX ttl` of Valkey: the value stays, and it has a new time to live.
    SetIfEq {
        key: String,
        value: String,
        ttl: u64,
    },
    /// `DELIFEQ key value` of Valkey.
    DelIfEq {
        key: String,
        value: String,
    },
    /// In milliseconds.
    Pexpire {
        key: String,
        ttl: u64,
    },
    Del {
        key: String,
    },
    ScriptLoad(RedisScript),
    EvalSha(ScriptCall),
    Subscribe {
        channel: String,
    },
    /// A replica asks for all data, and for all that follows.
    Psync,
}

/// A script on a key. `ttl` and `channel` are the arguments that some scripts take after the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptCall {
    pub script: RedisScript,
    pub key: String,
    pub value: String,
    pub ttl: u64,
    pub channel: String,
}

/// A command with its number on its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisRequest {
    pub number: u64,
    pub command: RedisCommand,
}

/// The answer of a server to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisValue {
    Nil,
    Okay,
    Text(String),
    Integer(i64),
    /// `-CODE text`
    Error {
        code: &'static str,
        text: &'static str,
    },
}

/// A change of the data, from a master to its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisEffect {
    /// `expires` is by the wall clock, in milliseconds since 1970.
    Set {
        key: String,
        value: String,
        expires: Option<u64>,
    },
    ExpireAt {
        key: String,
        expires: u64,
    },
    Delete {
        key: String,
    },
    Publish {
        channel: String,
        message: String,
    },
}

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisMessage {
    Reply {
        number: u64,
        name: &'static str,
        value: RedisValue,
    },
    /// A message of a channel.
    Published { channel: String, message: String },
    /// To a replica: all data, as effects on an empty store; and how many changes the master has seen.
    Snapshot(Vec<RedisEffect>, u64),
    /// To a replica: a change since then.
    Effect(RedisEffect),
}

impl RedisCommand {
    pub fn name(&self) -> &'static str {
        match self {
            RedisCommand::Hello => "HELLO",
            RedisCommand::SetNx { .. } | RedisCommand::SetIfEq { .. } => "SET",
            RedisCommand::Get { .. } => "GET",
            RedisCommand::GetSet { .. } => "GETSET",
            RedisCommand::Pexpire { .. } => "PEXPIRE",
            RedisCommand::Del { .. } => "DEL",
            RedisCommand::DelIfEq { .. } => "DELIFEQ",
            RedisCommand::ScriptLoad(_) => "SCRIPT",
            RedisCommand::EvalSha(_) => "EVALSHA",
            RedisCommand::Subscribe { .. } => "SUBSCRIBE",
            RedisCommand::Psync => "PSYNC",
        }
    }

    /// Visits the arguments after the name.
    fn arguments(&self, mut visit: impl FnMut(&[u8])) {
        match self {
            RedisCommand::Hello => visit(b"3"),
            RedisCommand::SetNx { key, value, ttl } => {
                visit(key.as_bytes());
                visit(value.as_bytes());
                visit(b"NX");
                if let Some(ttl) = ttl {
                    visit(b"PX");
                    visit_number(*ttl, &mut visit);
                }
            }
            RedisCommand::SetIfEq { key, value, ttl } => {
                visit(key.as_bytes());
                visit(value.as_bytes());
                visit(b"IFEQ");
                visit(value.as_bytes());
                visit(b"PX");
                visit_number(*ttl, &mut visit);
            }
            RedisCommand::Get { key } | RedisCommand::Del { key } => visit(key.as_bytes()),
            RedisCommand::GetSet { key, value } | RedisCommand::DelIfEq { key, value } => {
                visit(key.as_bytes());
                visit(value.as_bytes());
            }
            RedisCommand::Pexpire { key, ttl } => {
                visit(key.as_bytes());
                visit_number(*ttl, &mut visit);
            }
            RedisCommand::ScriptLoad(script) => {
                visit(b"LOAD");
                visit(&vec![*script as u8; script.length()]);
            }
            RedisCommand::EvalSha(call) => {
                // a digest of forty letters
                visit(&[call.script as u8; 40]);
                visit(b"1");
                visit(call.key.as_bytes());
                visit(call.value.as_bytes());
                match call.script {
                    RedisScript::DelIf => {}
                    RedisScript::DelIfAndPublish => visit(call.channel.as_bytes()),
                    RedisScript::ExpireIf => visit_number(call.ttl, &mut visit),
                }
            }
            RedisCommand::Subscribe { channel } => visit(channel.as_bytes()),
            RedisCommand::Psync => {
                visit(b"?");
                visit(b"-1");
            }
        }
    }
}

/// Visits a number as it is written, without room of its own: this is asked for each message.
fn visit_number(number: u64, visit: &mut impl FnMut(&[u8])) {
    let mut digits = [0; 20];
    let (mut first, mut left) = (digits.len(), number);
    loop {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return visit(&digits[first..]);
        }
    }
}

/// Returns the length of a bulk string: `$5\r\n` before, `\r\n` after.
fn bulk(length: usize) -> usize {
    let digits = length.checked_ilog10().unwrap_or(0) as usize + 1;
    length + digits + 5
}

impl WireMessage for RedisRequest {
    fn passing(&self) -> PassingMessage<'_> {
        let name = self.command.name();
        let mut digest = CallDigest::of(name);
        self.command.arguments(|argument| digest = digest.bytes(argument));
        PassingMessage::Request {
            number: self.number,
            name,
            digest: digest.value(),
        }
    }

    fn bytes(&self) -> usize {
        let mut bytes = 4 + bulk(self.command.name().len());
        self.command.arguments(|argument| bytes += bulk(argument.len()));
        bytes
    }
}

fn effect_bytes(effect: &RedisEffect) -> usize {
    match effect {
        RedisEffect::Set { key, value, expires } => {
            13 + bulk(key.len()) + bulk(value.len()) + expires.map_or(0, |_| 10 + bulk(13))
        }
        RedisEffect::ExpireAt { key, .. } => 19 + bulk(key.len()) + bulk(13),
        RedisEffect::Delete { key } => 13 + bulk(key.len()),
        RedisEffect::Publish { channel, message } => 17 + bulk(channel.len()) + bulk(message.len()),
    }
}

impl WireMessage for RedisMessage {
    fn passing(&self) -> PassingMessage<'_> {
        match self {
            RedisMessage::Reply { number, name, value } => PassingMessage::Reply {
                number: *number,
                name,
                refuses: matches!(
                    value,
                    RedisValue::Nil | RedisValue::Integer(0) | RedisValue::Error { .. }
                ),
            },
            RedisMessage::Published { channel, .. } => PassingMessage::Notification {
                name: "message",
                subject: channel,
            },
            // no tap reads messages between servers
            RedisMessage::Snapshot(..) | RedisMessage::Effect(_) => PassingMessage::Control,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            RedisMessage::Reply { name: "HELLO", .. } => 150,
            RedisMessage::Reply { value, .. } => match value {
                RedisValue::Nil => 3,
                RedisValue::Okay => 5,
                RedisValue::Text(text) => bulk(text.len()),
                RedisValue::Integer(number) => 4 + number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize,
                RedisValue::Error { code, text } => 4 + code.len() + text.len(),
            },
            RedisMessage::Published { channel, message } => 17 + bulk(channel.len()) + bulk(message.len()),
            RedisMessage::Snapshot(effects, _) => 18 + effects.iter().map(effect_bytes).sum::<usize>(),
            RedisMessage::Effect(effect) => effect_bytes(effect),
        }
    }
}
