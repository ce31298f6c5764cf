//! Serves lock clients over the client protocol: requests in, replies and signals out, one JSON object a line.
//!
//! One process may serve several clients: their requests run concurrently, those of one client one after another. The
//! end of the input closes all of them. Nothing but protocol lines may be written to the output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use crate::client::{LockClient, LockError, LockGrant, LockResult, SignalSink};
use crate::contract::Contract;
use crate::host::{RecipeHost, TokioHost};
use crate::protocol::{ClientOp, FailReason, Message, OpenRequest, Request};
use crate::recipe::RecipeOptions;

/// The time in which the clients must close when the input has ended.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// The time for which a client that cannot open is asked again: a server that has just begun may refuse, and on a busy machine a session
/// may take longer to begin than a short lease.
const OPENS: Duration = Duration::from_secs(8);
/// Between two of these.
const OPEN_PAUSE: Duration = Duration::from_millis(20);

/// The reason for which serving ended before its input did.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("reading a request: {cause} in the line {line}")]
    Malformed { line: String, cause: serde_json::Error },
    #[error("reading a request: {0}")]
    OutOfTurn(String),
    #[error("writing to harness: {0}")]
    Io(#[from] io::Error),
}

/// Makes the client of an `open` request; the error is a sentence that says why it cannot.
pub type ClientFactory<'a> = &'a dyn Fn(&OpenRequest, SignalSink) -> Result<Box<dyn LockClient>, String>;

/// Serves one recipe. Wants a current-thread runtime inside a `LocalSet`; see [`serve_process`].
pub async fn serve(
    options: RecipeOptions,
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin,
) -> Result<(), ServeError> {
    let contract = options.contract();
    let maker = move |open: &OpenRequest, signals| options.client(open, signals);
    serve_with(&maker, Some(&contract), stdin, stdout).await
}

/// Serves the clients that `maker` makes, each with the promises of `contract`. Their `open` is called again for eight seconds while it
/// fails.
pub async fn serve_with(
    maker: ClientFactory<'_>,
    contract: Option<&Contract>,
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin,
) -> Result<(), ServeError> {
    let (out, messages) = mpsc::unbounded_channel();
    tokio::try_join!(
        read_requests(maker, contract, stdin, out),
        write_messages(messages, stdout)
    )?;
    Ok(())
}

/// Serves one recipe over this process's stdin and stdout, on a runtime made for it, until the input ends.
pub fn serve_process(options: RecipeOptions) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = LocalSet::new().block_on(&runtime, async move {
        match pipes() {
            Ok((stdin, stdout)) => serve(options, stdin, stdout).await,
            Err(_) => serve(options, tokio::io::stdin(), tokio::io::stdout()).await,
        }
    });
    runtime.shutdown_background();
    served
}

/// Opens stdin and stdout without a thread in between, which they allow when they are pipes.
fn pipes() -> io::Result<(pipe::Receiver, pipe::Sender)> {
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let stdout = pipe::Sender::from_file(stdout)?;
    Ok((pipe::Receiver::from_file(stdin)?, stdout))
}

/// One served client: the sender of its requests, and the task that serves them.
struct ServedClient {
    requests: mpsc::Sender<Request>,
    task: JoinHandle<()>,
}

async fn read_requests(
    maker: ClientFactory<'_>,
    contract: Option<&Contract>,
    stdin: impl AsyncRead + Unpin,
    out: mpsc::UnboundedSender<Message>,
) -> Result<(), ServeError> {
    let mut lines = BufReader::new(stdin).lines();
    let machine = TokioHost::shared();
    let mut clients: BTreeMap<u32, ServedClient> = BTreeMap::new();
    let host = |lock| host(lock, contract.cloned(), out.clone());
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        let request: Request = serde_json::from_str(&line).map_err(|cause| ServeError::Malformed {
            line: line.clone(),
            cause,
        })?;
        dispatch(maker, &host, &machine, request, &mut clients, &out)?;
    }
    let tasks: Vec<_> = clients.into_values().map(|client| client.task).collect();
    let closed = async {
        for task in tasks {
            // a client that panicked has said so on stderr
            let _ = task.await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_LIMIT, closed).await;
    Ok(())
}

fn dispatch(
    maker: ClientFactory<'_>,
    host: &dyn Fn(Box<dyn LockClient>) -> ServedClient,
    machine: &Rc<dyn RecipeHost>,
    request: Request,
    clients: &mut BTreeMap<u32, ServedClient>,
    out: &mpsc::UnboundedSender<Message>,
) -> Result<(), ServeError> {
    let (client, id) = (request.client, request.id);
    clients.retain(|_, served| !served.task.is_finished());
    if let ClientOp::Open(open) = &request.op {
        if clients.contains_key(&client) {
            return Err(ServeError::OutOfTurn(format!("client {client} is open already")));
        }
        let signals_out = out.clone();
        // the other end may be gone, and the signal is of no interest then
        let send = Rc::new(move |signal| drop(signals_out.send(Message::Signal(signal))));
        match maker(open, SignalSink::new(client, machine.clone(), send)) {
            Ok(lock) => drop(clients.insert(client, host(lock))),
            Err(error) => {
                let error = FailReason::Other(error);
                let _ = out.send(Message::Fail { id, error });
                return Ok(());
            }
        }
    }
    let Some(served) = clients.get(&client) else {
        return Err(ServeError::OutOfTurn(format!("client {client} is not open")));
    };
    let sent = served.requests.try_send(request);
    sent.map_err(|_| ServeError::OutOfTurn(format!("client {client} has a request open already")))
}

fn host(
    mut lock: Box<dyn LockClient>,
    contract: Option<Contract>,
    out: mpsc::UnboundedSender<Message>,
) -> ServedClient {
    let (requests, mut inbox) = mpsc::channel::<Request>(1);
    let task = tokio::task::spawn_local(async move {
        while let Some(request) = inbox.recv().await {
            let last = request.op == ClientOp::Close;
            let outcome = match &request.op {
                ClientOp::Open(_) => open(&mut *lock).await,
                op => perform(&mut *lock, op).await,
            };
            let promised = contract.clone().filter(|_| matches!(request.op, ClientOp::Open(_)));
            let _ = out.send(reply(request.id, outcome, promised));
            if last {
                return;
            }
        }
        lock.close().await;
    });
    ServedClient { requests, task }
}

/// Opens a client; the error is that of the last try before [`OPENS`] is over.
async fn open(lock: &mut dyn LockClient) -> LockResult<LockGrant> {
    let limit = Instant::now() + OPENS;
    loop {
        match lock.open().await {
            Err(_) if Instant::now() < limit => tokio::time::sleep(OPEN_PAUSE).await,
            answer => return answer,
        }
    }
}

/// Carries out a request on a client.
pub async fn perform(lock: &mut dyn LockClient, op: &ClientOp) -> LockResult<LockGrant> {
    match op {
        ClientOp::Open(_) => lock.open().await,
        ClientOp::Acquire(acquire) => lock.acquire(acquire).await,
        ClientOp::Release { lock: name } => lock.release(name).await.map(|()| LockGrant::default()),
        ClientOp::Extend { lock: name } => lock.extend(name).await.map(|()| LockGrant::default()),
        ClientOp::Close => {
            lock.close().await;
            Ok(LockGrant::default())
        }
    }
}

/// Makes the reply to the request of this number from its outcome; `contract` goes into the reply to an `open`.
pub fn reply(id: u64, outcome: LockResult<LockGrant>, contract: Option<Contract>) -> Message {
    match outcome {
        Ok(LockGrant { token, owner }) => Message::Ok {
            id,
            token,
            owner,
            contract: contract.map(Box::new),
        },
        Err(LockError::Refused(error)) => Message::Fail { id, error },
        Err(LockError::Unknown(error)) => Message::Info { id, error },
    }
}

/// Writes every message that is ready in one go, and flushes.
async fn write_messages(
    mut messages: mpsc::UnboundedReceiver<Message>,
    mut stdout: impl AsyncWrite + Unpin,
) -> Result<(), ServeError> {
    let mut text = Vec::new();
    while let Some(message) = messages.recv().await {
        text.clear();
        let mut next = Some(message);
        while let Some(message) = next {
            serde_json::to_writer(&mut text, &message).expect("a message is plain data");
            text.push(b'\n');
            next = messages.try_recv().ok();
        }
        stdout.write_all(&text).await?;
        stdout.flush().await?;
    }
    Ok(())
}
