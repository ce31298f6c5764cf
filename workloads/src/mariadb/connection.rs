//! A connection to a MariaDB or MySQL server ([`MysqlConnection`]), on the packets of the `mysql_common` crate: statements in text,
//! one at a time, none sent twice.
//!
//! A task reads for as long as the connection lives, so that its end is known while nothing is asked: a lock of the session
//! ends with it. <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html>

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};

use mysql_common::auth::plugins::{self, AuthProc, ChallengeResponsePlugin};
use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    AuthPlugin, AuthSwitchRequest, CommonOkPacket, ErrPacket, HandshakePacket, HandshakeResponse, OkPacketDeserializer,
};
use mysql_common::proto::MySerialize;
use mysql_common::value::{TextValue, Value, ValueDeserializer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::login::Login;

/// The longest packet; a longer payload goes on in the next.
const LONGEST: usize = 0xff_ffff;
const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;

/// The client's capabilities: the protocol since 4.1, with methods of authentication by name.
const CAPABILITIES: CapabilityFlags = CapabilityFlags::CLIENT_LONG_PASSWORD
    .union(CapabilityFlags::CLIENT_PROTOCOL_41)
    .union(CapabilityFlags::CLIENT_TRANSACTIONS)
    .union(CapabilityFlags::CLIENT_SECURE_CONNECTION)
    .union(CapabilityFlags::CLIENT_PLUGIN_AUTH);

/// Codes of errors with which a server ends a connection.
/// <https://mariadb.com/docs/server/reference/error-codes/mariadb-error-code-reference>
const ENDS: [u16; 7] = [1053, 1152, 1158, 1160, 1184, 1927, 4031];

/// The reason for which there is no answer to a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MysqlError {
    /// The server refused the statement, and the connection goes on.
    #[error("{message} ({code})")]
    Refused { code: u16, message: String },
    /// The connection is over.
    #[error("{0}")]
    Ended(String),
}

impl MysqlError {
    fn ended(error: impl ToString) -> Self {
        MysqlError::Ended(error.to_string())
    }

    /// Returns the number of the server's error, where it gave one.
    pub fn code(&self) -> Option<u16> {
        match self {
            MysqlError::Refused { code, .. } => Some(*code),
            MysqlError::Ended(_) => None,
        }
    }
}

/// The answer to a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MysqlAnswer {
    /// The number of rows that it changed.
    pub affected: u64,
    /// The last `LAST_INSERT_ID`, or 0.
    pub last_id: u64,
    /// The rows, each with a text or null for each column.
    pub rows: Vec<Vec<Option<String>>>,
}

impl MysqlAnswer {
    /// Returns the first value of the first row.
    pub fn value(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }
}

/// One connection; it ends when it is dropped.
pub struct MysqlConnection {
    writer: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    packets: mpsc::UnboundedReceiver<Vec<u8>>,
    /// The task that reads, where it is one of its own.
    reader: Option<AbortHandle>,
    is_over: watch::Receiver<bool>,
    version: String,
    /// Whether an answer has not come to its end.
    asking: bool,
}

impl Drop for MysqlConnection {
    fn drop(&mut self) {
        if !self.asking {
            // so that the server does not note an aborted connection; behind a statement it would be a part of that
            let mut now = Context::from_waker(Waker::noop());
            let _ = Pin::new(&mut self.writer).poll_write(&mut now, &[1, 0, 0, 0, COM_QUIT]);
        }
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

/// A password, and the server's challenge that hides it.
struct Challenge<'a> {
    password: &'a [u8],
    nonce: &'a [u8],
}

impl plugins::Context for &Challenge<'_> {
    fn pass(&self) -> &[u8] {
        self.password
    }

    fn is_ipc_transport(&self) -> bool {
        false
    }

    fn is_tls_transport(&self) -> bool {
        false
    }

    fn scramble(&self) -> &[u8] {
        self.nonce
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        None
    }
}

impl MysqlConnection {
    /// Connects as `root` without a password, unless there is a login.
    pub async fn connect(address: impl ToSocketAddrs, login: Option<&Login>) -> Result<Self, MysqlError> {
        let stream = TcpStream::connect(address).await.map_err(MysqlError::ended)?;
        stream.set_nodelay(true).map_err(MysqlError::ended)?;
        let (mut connection, reading) = Self::over(stream, login).await?;
        connection.reader = Some(tokio::spawn(reading).abort_handle());
        Ok(connection)
    }

    /// Connects over an open stream; returns the task that reads, too: without it the connection has no answers. It lasts as long as
    /// either.
    pub async fn over<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static>(
        mut stream: S,
        login: Option<&Login>,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<S>), MysqlError> {
        let version = log_in(&mut stream, login).await?;
        let (mut from_server, writer) = tokio::io::split(stream);
        let (sender, packets) = mpsc::unbounded_channel();
        let (over, is_over) = watch::channel(false);
        let reading = async move {
            while let Ok((_, packet)) = read_packet(&mut from_server).await {
                if sender.send(packet).is_err() {
                    break;
                }
            }
            let _ = over.send(true);
        };
        let connection = MysqlConnection {
            writer: Box::new(writer),
            packets,
            reader: None,
            is_over,
            version,
            asking: false,
        };
        Ok((connection, reading))
    }

    /// Whether the server is a MariaDB, which differs from MySQL in a few functions.
    pub fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }

    /// Returns the server's version as it greets with it: `5.5.5-10.11.6-MariaDB`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Becomes true when the connection is over; so does the loss of its sender.
    pub fn is_over(&self) -> watch::Receiver<bool> {
        self.is_over.clone()
    }

    /// Sends a statement and reads its answer. Where its answer was not waited for, the connection is of no more use.
    pub async fn query(&mut self, statement: &str) -> Result<MysqlAnswer, MysqlError> {
        if std::mem::replace(&mut self.asking, true) {
            return Err(MysqlError::ended("an answer before this one was not read"));
        }
        let answer = self.ask(statement).await;
        self.asking = matches!(answer, Err(MysqlError::Ended(_)));
        answer
    }

    async fn ask(&mut self, statement: &str) -> Result<MysqlAnswer, MysqlError> {
        if let Ok(packet) = self.packets.try_recv() {
            // unasked, it says why the connection ends
            return Err(MysqlError::ended(refused(&packet, CAPABILITIES)));
        }
        let body = [&[COM_QUERY], statement.as_bytes()].concat();
        write_packet(&mut self.writer, 0, &body).await?;
        let first = self.packet().await?;
        match first.first() {
            Some(0) => ok(&first),
            Some(0xfb) => Err(MysqlError::ended("the server asks for a file")),
            _ => self.rows(&first).await,
        }
    }

    /// Returns the server's name for this session, which no other session has: the second in which the server started, in hexadecimal
    /// digits, and the number of the connection, as in `6b03626a.22`. Numbers begin again when a server starts.
    pub async fn session_name(&mut self) -> Result<String, MysqlError> {
        let schema = if self.is_mariadb() {
            "information_schema"
        } else {
            "performance_schema"
        };
        let statement = format!(
            "SELECT CONCAT(LOWER(HEX(UNIX_TIMESTAMP() - VARIABLE_VALUE)), '.', CONNECTION_ID()) \
             FROM {schema}.global_status WHERE VARIABLE_NAME = 'UPTIME'"
        );
        let answer = self.query(&statement).await?;
        let name = answer.value().map(str::to_owned);
        name.ok_or_else(|| MysqlError::ended("the server does not say when it started"))
    }

    async fn rows(&mut self, first: &[u8]) -> Result<MysqlAnswer, MysqlError> {
        let columns = ParseBuf(first).checked_eat_lenenc_int();
        let columns = columns.ok_or_else(|| MysqlError::ended("an answer that cannot be read"))?;
        // their descriptions, and the packet that ends them
        for _ in 0..=columns {
            self.packet().await?;
        }
        let mut answer = MysqlAnswer::default();
        loop {
            let packet = self.packet().await?;
            if packet[0] == 0xfe && packet.len() < 9 {
                return Ok(answer);
            }
            let mut rest = ParseBuf(&packet);
            let mut row = Vec::new();
            while !rest.is_empty() {
                let value: ValueDeserializer<TextValue> = rest.parse(()).map_err(MysqlError::ended)?;
                row.push(match value.0 {
                    Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                    _ => None,
                });
            }
            answer.rows.push(row);
        }
    }

    /// Reads the next packet, which is no error and not empty.
    async fn packet(&mut self) -> Result<Vec<u8>, MysqlError> {
        let packet = self.packets.recv().await;
        let packet = packet.ok_or_else(|| MysqlError::ended("the connection ended"))?;
        match packet.first() {
            Some(0xff) => Err(refused(&packet, CAPABILITIES)),
            Some(_) => Ok(packet),
            None => Err(MysqlError::ended("an empty answer")),
        }
    }
}

/// Logs in; returns the server's version.
async fn log_in(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    login: Option<&Login>,
) -> Result<String, MysqlError> {
    let (user, password) = login.map_or(("root", ""), |login| (&login.user, &login.password));
    let (mut number, greeting) = read_packet(stream).await.map_err(MysqlError::ended)?;
    if greeting.first() == Some(&0xff) {
        return Err(refused(&greeting, CapabilityFlags::empty()));
    }
    let greeting: HandshakePacket<'_> = ParseBuf(&greeting).parse(()).map_err(MysqlError::ended)?;
    let plugin = greeting.auth_plugin().unwrap_or(AuthPlugin::MysqlNativePassword);
    let nonce = greeting.nonce();
    let (mut method, first) = begin(&plugin, password.as_bytes(), &nonce)?;
    let response = HandshakeResponse::new(
        first.map(Cow::Owned),
        (5, 7, 0),
        Some(user.as_bytes()),
        None::<Vec<u8>>,
        Some(plugin),
        CAPABILITIES & greeting.capabilities(),
        None,
        1 << 30,
    );
    let mut body = Vec::new();
    response.serialize(&mut body);
    let mut nonce = nonce.clone();
    loop {
        write_packet(stream, number.wrapping_add(1), &body).await?;
        body = loop {
            let (sent, packet) = read_packet(stream).await.map_err(MysqlError::ended)?;
            number = sent;
            let next = match packet.first() {
                Some(0) => return Ok(greeting.server_version_str().into_owned()),
                Some(0xfe) => {
                    let switch: AuthSwitchRequest<'_> = ParseBuf(&packet).parse(()).map_err(MysqlError::ended)?;
                    nonce = switch.plugin_data().to_vec();
                    let (other, next) = begin(&switch.auth_plugin(), password.as_bytes(), &nonce)?;
                    method = other;
                    Some(next.unwrap_or_default())
                }
                Some(1) => answer_to(&mut method, password.as_bytes(), &nonce, &packet[1..])?,
                _ => return Err(refused(&packet, CAPABILITIES)),
            };
            if let Some(next) = next {
                break next;
            }
        };
    }
}

/// Begins to log in by a method; returns the method, and the first answer to the server.
fn begin(plugin: &AuthPlugin<'_>, password: &[u8], nonce: &[u8]) -> Result<(AuthProc, Option<Vec<u8>>), MysqlError> {
    let mut method = plugin.init().map_err(MysqlError::ended)?;
    let answer = answer_to(&mut method, password, nonce, nonce)?;
    Ok((method, answer))
}

fn answer_to(method: &mut AuthProc, password: &[u8], nonce: &[u8], sent: &[u8]) -> Result<Option<Vec<u8>>, MysqlError> {
    let challenge = Challenge { password, nonce };
    let answer = method.run(&challenge, sent).map_err(MysqlError::ended)?;
    Ok(answer.data().map(<[u8]>::to_vec))
}

fn ok(packet: &[u8]) -> Result<MysqlAnswer, MysqlError> {
    let parsed = ParseBuf(packet).parse::<OkPacketDeserializer<'_, CommonOkPacket>>(CAPABILITIES);
    let ok = parsed.map_err(MysqlError::ended)?.into_inner();
    Ok(MysqlAnswer {
        affected: ok.affected_rows(),
        last_id: ok.last_insert_id().unwrap_or_default(),
        rows: Vec::new(),
    })
}

/// Parses an error of the server.
fn refused(packet: &[u8], capabilities: CapabilityFlags) -> MysqlError {
    match ParseBuf(packet).parse::<ErrPacket<'_>>(capabilities) {
        Ok(ErrPacket::Error(error)) if !ENDS.contains(&error.error_code()) => MysqlError::Refused {
            code: error.error_code(),
            message: error.message_str().into_owned(),
        },
        Ok(ErrPacket::Error(error)) => MysqlError::ended(error.message_str()),
        _ => MysqlError::ended("an answer that cannot be read"),
    }
}

/// Reads one payload, which may be that of several packets; returns the number of the last of them, too.
async fn read_packet(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let mut payload = Vec::new();
    loop {
        let head = stream.read_u32_le().await?;
        let [a, b, c, number] = head.to_le_bytes();
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        let begin = payload.len();
        payload.resize(begin + length, 0);
        stream.read_exact(&mut payload[begin..]).await?;
        if length < LONGEST {
            return Ok((number, payload));
        }
    }
}

/// Writes a payload that is shorter than the longest packet.
async fn write_packet(stream: &mut (impl AsyncWrite + Unpin), number: u8, payload: &[u8]) -> Result<(), MysqlError> {
    if payload.len() >= LONGEST {
        return Err(MysqlError::Refused {
            code: 1153,
            message: "a statement of 16 MB or more".into(),
        });
    }
    let [a, b, c, _] = (payload.len() as u32).to_le_bytes();
    let packet = [&[a, b, c, number], payload].concat();
    stream.write_all(&packet).await.map_err(MysqlError::ended)
}
