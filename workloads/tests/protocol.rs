//! Serving the client protocol: requests, replies and signals, and the errors when a request breaks the protocol.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::protocol::{
    AcquireRequest, ClientOp, FailReason, LockSignalKind, Message, OpenRequest, Request,
};
use harness_workloads::{
    LockClient, LockError, LockGrant, LockResult, RecipeOptions, ServeError, SignalSink, serve, serve_with,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split};
use tokio::task::LocalSet;

/// A lock whose name decides its answers.
struct Scripted {
    /// Times that it still refuses to open.
    refusals: u32,
    signals: SignalSink,
    closed: Rc<RefCell<u32>>,
}

#[async_trait(?Send)]
impl LockClient for Scripted {
    async fn open(&mut self) -> LockResult<LockGrant> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(LockError::Refused(FailReason::Other("it is just beginning".into())));
        }
        Ok(LockGrant::to("0x1", None))
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        match request.lock.as_str() {
            "busy" => Err(LockError::BUSY),
            "unknown" => Err(LockError::Unknown("no answer".into())),
            "slow" => {
                tokio::time::sleep(Duration::from_millis(request.wait_ms)).await;
                self.signals.woken("slow", "NodeDeleted lock-0000000003");
                Ok(LockGrant {
                    token: Some(2),
                    owner: None,
                })
            }
            _ => Ok(LockGrant::to("0x1", Some(1))),
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        self.signals.lost(lock, "Disconnected");
        Err(LockError::NOT_HELD)
    }

    async fn close(&mut self) {
        *self.closed.borrow_mut() += 1;
    }
}

/// The other end of the pipes: the harness of a client.
struct ProtocolPeer {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    next: u64,
}

/// Returns a harness, and the pipes of the process that it speaks with.
fn peer() -> (ProtocolPeer, ReadHalf<DuplexStream>, WriteHalf<DuplexStream>) {
    let (near, far) = duplex(1 << 16);
    let (stdin, stdout) = split(far);
    let (output, input) = split(near);
    let lines = BufReader::new(output).lines();
    (ProtocolPeer { lines, input, next: 0 }, stdin, stdout)
}

impl ProtocolPeer {
    async fn send(&mut self, client: u32, op: ClientOp) -> u64 {
        self.next += 1;
        let request = Request {
            id: self.next,
            client,
            op,
        };
        self.say(&serde_json::to_string(&request).unwrap()).await;
        self.next
    }

    async fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Message {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn open(&mut self, client: u32) {
        let id = self.send(client, ClientOp::Open(open("zk"))).await;
        assert_eq!(self.receive().await, ok(id, None, Some("0x1")));
    }
}

/// Returns the answer to a request that was granted this.
fn ok(id: u64, token: Option<u64>, owner: Option<&str>) -> Message {
    Message::Ok {
        id,
        token,
        owner: owner.map(str::to_owned),
        contract: None,
    }
}

fn open(backend: &str) -> OpenRequest {
    OpenRequest::plain(backend, vec!["127.0.0.1:1".into()], Duration::from_secs(1))
}

fn acquire(lock: &str, wait_ms: u64) -> ClientOp {
    ClientOp::Acquire(AcquireRequest {
        lock: lock.into(),
        wait_ms,
        ..AcquireRequest::default()
    })
}

/// Serves scripted locks to a harness; returns how serving ended, and how many clients were closed.
fn served(script: impl AsyncFnOnce(&mut ProtocolPeer)) -> (Result<(), ServeError>, u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (mut harness, stdin, stdout) = peer();
        let closed = Rc::new(RefCell::new(0));
        let count = closed.clone();
        let serving = tokio::task::spawn_local(async move {
            let maker = move |open: &OpenRequest, signals| {
                Ok(Box::new(Scripted {
                    refusals: match open.backend.as_str() {
                        "begins" => 3,
                        "never" => u32::MAX,
                        _ => 0,
                    },
                    signals,
                    closed: count.clone(),
                }) as Box<dyn LockClient>)
            };
            serve_with(&maker, None, stdin, stdout).await
        });
        script(&mut harness).await;
        harness.input.shutdown().await.unwrap();
        let ended = serving.await.unwrap();
        let closed = *closed.borrow();
        (ended, closed)
    })
}

#[test]
fn each_outcome_has_its_reply() {
    let (ended, _) = served(async |harness| {
        harness.open(3).await;
        let id = harness.send(3, acquire("l", 0)).await;
        assert_eq!(harness.receive().await, ok(id, Some(1), Some("0x1")));
        let id = harness.send(3, acquire("busy", 0)).await;
        let error = FailReason::Busy;
        assert_eq!(harness.receive().await, Message::Fail { id, error });
        let id = harness.send(3, acquire("unknown", 0)).await;
        let error = "no answer".into();
        assert_eq!(harness.receive().await, Message::Info { id, error });
    });
    ended.unwrap();
}

#[test]
fn a_signal_carries_its_client_and_the_monotonic_clock_and_comes_before_the_reply_it_led_to() {
    let (ended, _) = served(async |harness| {
        harness.open(7).await;
        let clock = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
        let before = Duration::from(clock());
        let id = harness.send(7, ClientOp::Release { lock: "l".into() }).await;
        let Message::Signal(signal) = harness.receive().await else {
            panic!("no signal")
        };
        assert_eq!(
            (signal.client, signal.f, signal.cause.as_str()),
            (7, LockSignalKind::Lost, "Disconnected")
        );
        let at = Duration::from_nanos(signal.at);
        assert!(before <= at && at <= Duration::from(clock()));
        let error = FailReason::NotHeld(None);
        assert_eq!(harness.receive().await, Message::Fail { id, error });
    });
    ended.unwrap();
}

#[test]
fn clients_of_one_process_do_not_wait_for_each_other() {
    let (ended, closed) = served(async |harness| {
        harness.open(1).await;
        harness.open(2).await;
        let slow = harness.send(1, acquire("slow", 100)).await;
        let quick = harness.send(2, acquire("l", 0)).await;
        assert!(matches!(harness.receive().await, Message::Ok { id, .. } if id == quick));
        assert!(matches!(harness.receive().await, Message::Signal(signal) if signal.f == LockSignalKind::Woken));
        assert!(matches!(harness.receive().await, Message::Ok { id, .. } if id == slow));
    });
    ended.unwrap();
    assert_eq!(closed, 2, "the end of the input closes all");
}

#[test]
fn a_store_that_is_just_beginning_is_waited_for() {
    let (ended, _) = served(async |harness| {
        let begun = tokio::time::Instant::now();
        let id = harness.send(1, ClientOp::Open(open("begins"))).await;
        assert!(matches!(harness.receive().await, Message::Ok { id: answered, .. } if answered == id));
        assert!(begun.elapsed() < Duration::from_secs(1));
        let id = harness.send(2, ClientOp::Open(open("never"))).await;
        let error = FailReason::Other("it is just beginning".into());
        assert_eq!(harness.receive().await, Message::Fail { id, error });
        assert!(begun.elapsed() > Duration::from_secs(8));
    });
    ended.unwrap();
}

#[test]
fn a_closed_client_may_be_opened_again() {
    let (ended, closed) = served(async |harness| {
        harness.open(1).await;
        let id = harness.send(1, ClientOp::Close).await;
        assert_eq!(harness.receive().await, ok(id, None, None));
        harness.open(1).await;
    });
    ended.unwrap();
    assert_eq!(closed, 2);
}

/// Returns the reason for which a request could not be read, which ended serving.
fn refused(script: impl AsyncFnOnce(&mut ProtocolPeer)) -> String {
    let error = served(script).0.unwrap_err().to_string();
    let reason = error.strip_prefix("reading a request: ");
    reason.unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn a_line_that_is_no_request_ends_serving_and_is_quoted() {
    for line in ["nonsense", r#"{"id":1}"#, r#"{"id":1,"client":1,"op":"juggle"}"#] {
        let reason = refused(async |harness| harness.say(line).await);
        assert!(reason.ends_with(line), "{reason}");
    }
}

#[test]
fn a_request_out_of_turn_ends_serving_with_a_reason() {
    let reason = refused(async |harness| assert_eq!(harness.send(4, acquire("l", 0)).await, 1));
    assert_eq!(reason, "client 4 is not open");
    let reason = refused(async |harness| {
        harness.open(4).await;
        harness.send(4, ClientOp::Open(open("zk"))).await;
    });
    assert_eq!(reason, "client 4 is open already");
    let reason = refused(async |harness| {
        harness.open(4).await;
        for _ in 0..3 {
            harness.send(4, acquire("slow", 50)).await;
        }
    });
    assert_eq!(reason, "client 4 has a request open already");
}

#[test]
fn a_recipe_refuses_another_backend_with_a_sentence() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (mut harness, stdin, stdout) = peer();
        let options = RecipeOptions::named("etcd-mutex").unwrap();
        let serving = tokio::task::spawn_local(serve(options, stdin, stdout));
        let id = harness.send(1, ClientOp::Open(open("zk"))).await;
        let error = FailReason::Other("etcd-mutex is a recipe for etcd, not for zk".into());
        assert_eq!(harness.receive().await, Message::Fail { id, error });
        harness.input.shutdown().await.unwrap();
        serving.await.unwrap().unwrap();
    });
}
