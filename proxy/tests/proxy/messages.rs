//! Taps and message rules over real sockets: a rule matches the message that it names, the client and its server see no
//! hole, and a tap that understands nothing lets everything pass.

use std::sync::Arc;
use std::time::Duration;

use harness_proxy::tap::{MessageKind, MessageName, Protocol};
use harness_proxy::{
    ActiveRule, ClientFilter, ConnectionTap, Label, LabelScheme, LabelSet, LinkTap, MessageAction, MessageRule,
    MessageRuleSpec, TapHub, TapNotification,
};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::rig::{Rig, arrives, counted, is_silent, passes, soon, until_end, until_reset};

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(3600);

const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

const IDLE: Label = Label::new(0, "idle");
const WAITS: Label = Label::new(1, "a waiter");
const WORKS: Label = Label::new(2, "working");
const LABELS: LabelScheme = LabelScheme {
    labels: &[IDLE, WAITS, WORKS],
    retrying: LabelSet::of(&[WAITS]),
};
const ANYONE: ClientFilter = ClientFilter::new("anyone", LabelSet::ALL);
const WAITER: ClientFilter = ClientFilter::new("waiter", LabelSet::of(&[WAITS]));

/// A link with a tap.
struct TapRig {
    rig: Rig,
    tap: Arc<LinkTap>,
    exchange: Arc<TapHub>,
    notices: mpsc::Receiver<TapNotification>,
}

impl TapRig {
    async fn new() -> Self {
        Self::of(Protocol::Resp).await
    }

    async fn of(protocol: Protocol) -> Self {
        let (sender, notices) = mpsc::channel(1000);
        let exchange = TapHub::new(protocol, LABELS, 2, sender);
        let tap = LinkTap::new(&exchange, 1, "c1->n1".into());
        let tapped = Arc::clone(&tap);
        let rig = Rig::with(|proxy, server| proxy.tapped("c1->n1".into(), server, 7, tapped)).await;
        Self {
            rig,
            tap,
            exchange,
            notices,
        }
    }

    async fn connect(&self) -> (TcpStream, TcpStream) {
        self.rig.connect().await
    }

    /// Applies one of several rules on the link, each in a layer of its own, that matches the n-th message of all.
    fn on_any(&self, layer: u32, occurrence: u32, action: MessageAction) -> ActiveRule {
        self.armed(layer, nth(MessageKind::any(), occurrence, action))
    }

    fn rule(&self, name: &str, occurrence: u32, whose: ClientFilter, fate: MessageAction) -> ActiveRule {
        let message = Protocol::Resp.spoken(name).unwrap();
        let meant = MessageRuleSpec {
            whose,
            ..nth(message, occurrence, fate)
        };
        self.armed(1, meant)
    }

    /// Applies a rule that drops the reply to the n-th `SET` that was accepted.
    fn drops_accepted(&self, occurrence: u32) -> ActiveRule {
        let message = Protocol::Resp.spoken("SET").unwrap();
        let meant = MessageRuleSpec {
            accepted: true,
            ..nth(message, occurrence, MessageAction::DropReply)
        };
        self.armed(1, meant)
    }

    fn armed(&self, layer: u32, meant: MessageRuleSpec) -> ActiveRule {
        ActiveRule::apply(vec![Arc::clone(&self.rig.link)], layer, MessageRule::new(meant))
    }
}

/// Selects the n-th of these messages, of any client.
fn nth(message: MessageKind, occurrence: u32, action: MessageAction) -> MessageRuleSpec {
    MessageRuleSpec {
        message,
        occurrence,
        whose: ANYONE,
        action,
        accepted: false,
        refuse: None,
    }
}

#[tokio::test]
async fn a_dropped_request_never_reaches_the_server_and_its_connection_ends() {
    let rig = TapRig::new().await;
    let armed = rig.rule("SET", 2, ANYONE, MessageAction::DropRequest);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, SET).await;
    // the one that is meant is between two others, in one piece with them
    client.write_all(&[GET, SET, GET].concat()).await.unwrap();
    let reached = until_reset(&mut server).await;
    assert!(GET.starts_with(&reached), "{}", String::from_utf8_lossy(&reached));
    until_reset(&mut client).await;
    let matched = armed.rule().matched().expect("it matched");
    assert_eq!((matched.message.as_str(), matched.client.as_str()), ("SET", "c1"));
    assert!(matched.done);
}

#[tokio::test]
async fn a_dropped_reply_is_of_a_request_that_the_server_answered() {
    let rig = TapRig::new().await;
    let armed = rig.rule("set", 1, ANYONE, MessageAction::DropReply);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, &[GET, SET].concat()).await;
    assert!(
        !armed.rule().matched().expect("found").done,
        "not before the server answered"
    );
    passes(&mut server, &mut client, b"$1\r\nv\r\n").await;
    server.write_all(b"+OK\r\n").await.unwrap();
    assert_eq!(until_reset(&mut client).await, b"");
    assert!(armed.rule().matched().expect("it matched").done);
}

#[tokio::test]
async fn a_delay_of_a_reply_has_not_acted_before_the_server_answers() {
    let rig = TapRig::new().await;
    let late = MessageAction::DelayReply(Duration::from_millis(50));
    let armed = rig.rule("SET", 1, ANYONE, late);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, SET).await;
    assert!(armed.rule().matched().is_some() && !armed.rule().has_acted());
    passes(&mut server, &mut client, b"+OK\r\n").await;
    assert!(armed.rule().has_acted());
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_leaves_the_rule_to_the_next_request() {
    let rig = TapRig::new().await;
    let armed = rig.rule("SET", 1, ANYONE, MessageAction::DropReply);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, SET).await;
    drop((client, server));
    let (mut client, mut server) = rig.connect().await;
    counted(|| armed.rule().matched(), Option::is_none).await;
    passes(&mut client, &mut server, SET).await;
    server.write_all(b"+OK\r\n").await.unwrap();
    until_reset(&mut client).await;
}

#[tokio::test]
async fn a_call_that_its_client_gives_up_leaves_the_rule_to_the_next_request() {
    let rig = TapRig::of(Protocol::Grpc).await;
    let txn = Protocol::Grpc.spoken("Txn").unwrap();
    let armed = rig.armed(1, nth(txn, 1, MessageAction::DropReply));
    let (mut client, mut server) = rig.connect().await;
    // the headers of a call and an empty message
    let headers = [&[0_u8, 0, 9, 1, 4, 0, 0, 0, 1, 0x83, 0x04, 6][..], &b"/a/Txn"[..]].concat();
    let message = [0_u8, 0, 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0];
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    passes(&mut client, &mut server, &[&preface[..], &headers, &message].concat()).await;
    assert!(armed.rule().matched().is_some());
    passes(&mut client, &mut server, &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]).await;
    assert!(armed.rule().matched().is_none());
}

#[tokio::test]
async fn a_delayed_request_waits_with_everything_behind_it_and_outlives_its_client() {
    let rig = TapRig::new().await;
    let armed = rig.rule("SET", 1, ANYONE, MessageAction::DelayRequest(NEVER));
    let (mut client, mut server) = rig.connect().await;
    client.write_all(&[GET, SET, GET].concat()).await.unwrap();
    arrives(&mut server, GET).await;
    drop(client);
    is_silent(&mut server).await;
    drop(armed);
    let late = until_end(&mut server).await;
    assert_eq!(late, [SET, GET].concat(), "late, in order, whole");
}

#[tokio::test]
async fn a_delayed_message_goes_on_by_itself() {
    let rig = TapRig::new().await;
    let late = Duration::from_millis(150);
    let armed = rig.rule("GET", 1, ANYONE, MessageAction::DelayReply(late));
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, GET).await;
    let answered = std::time::Instant::now();
    passes(&mut server, &mut client, b"$1\r\nv\r\n+late\r\n").await;
    assert!(answered.elapsed() >= late);
    assert!(armed.rule().matched().expect("it matched").done);
}

#[tokio::test]
async fn each_rule_counts_the_messages_that_another_acts_on() {
    let rig = TapRig::new().await;
    let first = rig.on_any(1, 1, MessageAction::DelayReply(Duration::ZERO));
    let second = rig.on_any(2, 2, MessageAction::DropRequest);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, SET).await;
    passes(&mut server, &mut client, b"+OK\r\n").await;
    client.write_all(GET).await.unwrap();
    until_reset(&mut client).await;
    let names = [first, second].map(|rule| rule.rule().matched().expect("it matched").message);
    assert_eq!(names, ["SET", "GET"]);
}

#[tokio::test]
async fn rules_wait_for_replies_of_several_requests_of_one_connection() {
    let rig = TapRig::new().await;
    let first = rig.on_any(1, 1, MessageAction::DelayReply(Duration::ZERO));
    let second = rig.on_any(2, 2, MessageAction::DropReply);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, &[GET, SET].concat()).await;
    passes(&mut server, &mut client, b"$1\r\nv\r\n").await;
    server.write_all(b"+OK\r\n").await.unwrap();
    until_reset(&mut client).await;
    assert!(
        [first, second]
            .iter()
            .all(|rule| rule.rule().matched().expect("it matched").done)
    );
}

#[tokio::test]
async fn two_rules_act_on_two_messages_that_came_in_one_piece() {
    let rig = TapRig::new().await;
    let late = rig.on_any(1, 1, MessageAction::DelayRequest(Duration::from_millis(50)));
    let dropped = rig.on_any(2, 2, MessageAction::DropRequest);
    let (mut client, mut server) = rig.connect().await;
    client.write_all(&[SET, GET, SET].concat()).await.unwrap();
    let reached = until_reset(&mut server).await;
    assert!(SET.starts_with(&reached), "{}", String::from_utf8_lossy(&reached));
    for (armed, message) in [(late, "SET"), (dropped, "GET")] {
        let matched = armed.rule().matched().expect("it matched");
        assert_eq!((matched.message.as_str(), matched.done), (message, true));
    }
}

#[tokio::test]
async fn a_rule_of_a_message_that_is_dropped_or_behind_one_that_is_matches_the_next() {
    for sent in [[SET, GET].concat(), GET.to_vec()] {
        let rig = TapRig::new().await;
        let _dropped = rig.on_any(1, 1, MessageAction::DropRequest);
        let get = Protocol::Resp.spoken("GET").unwrap();
        let late = rig.armed(2, nth(get, 1, MessageAction::DelayRequest(NEVER)));
        let (mut client, _server) = rig.connect().await;
        client.write_all(&sent).await.unwrap();
        until_reset(&mut client).await;
        assert_eq!(late.rule().matched(), None);
        let (mut client, mut server) = rig.connect().await;
        client.write_all(GET).await.unwrap();
        soon(late.rule().found()).await;
        is_silent(&mut server).await;
    }
}

#[tokio::test]
async fn a_reply_that_two_rules_mean_comes_as_late_as_the_latest_and_both_know_when() {
    let rig = TapRig::new().await;
    let late = Duration::from_millis(150);
    let at_once = rig.on_any(1, 1, MessageAction::DelayReply(Duration::ZERO));
    let later = rig.on_any(2, 1, MessageAction::DelayReply(late));
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, GET).await;
    let answered = std::time::Instant::now();
    passes(&mut server, &mut client, b"$1\r\nv\r\n").await;
    assert!(answered.elapsed() >= late);
    for armed in [at_once, later] {
        let asked = armed.rule().matched().expect("it matched").at;
        assert!(armed.rule().found().await - asked >= late.as_nanos() as u64);
    }
}

#[tokio::test]
async fn a_message_that_its_number_names_is_no_other_one_where_its_reply_never_comes() {
    let rig = TapRig::new().await;
    let armed = rig.on_any(1, 1, MessageAction::DropReply);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, SET).await;
    drop(server);
    assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0, "it ends with its server");
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, GET).await;
    passes(&mut server, &mut client, b"$1\r\nv\r\n").await;
    let matched = armed.rule().matched().expect("it matched");
    assert_eq!((matched.message.as_str(), matched.done), ("SET", false));
}

#[tokio::test]
async fn only_a_message_of_a_client_that_is_meant_is_matched() {
    let rig = TapRig::new().await;
    let armed = rig.rule("SET", 1, WAITER, MessageAction::DropRequest);
    let (mut client, mut server) = rig.connect().await;
    for label in [IDLE, WORKS] {
        rig.exchange.labels.set(1, label);
        passes(&mut client, &mut server, SET).await;
    }
    rig.exchange.labels.set(1, WAITS);
    client.write_all(SET).await.unwrap();
    until_reset(&mut client).await;
    assert_eq!(armed.rule().matched().map(|matched| matched.role), Some("a waiter"));
    assert_eq!(armed.rule().passed(), "SET ×1", "of waiters");
}

#[tokio::test]
async fn a_client_that_lost_a_message_is_refused_as_the_rule_says() {
    let rig = TapRig::new().await;
    let set = Protocol::Resp.spoken("SET").unwrap();
    let meant = MessageRuleSpec {
        refuse: Some(NEVER),
        ..nth(set, 1, MessageAction::DropRequest)
    };
    let armed = rig.armed(1, meant);
    let (mut client, _server) = rig.connect().await;
    client.write_all(SET).await.unwrap();
    until_reset(&mut client).await;
    // the reset comes after the connection was made, or in its place
    let refused = match TcpStream::connect(rig.rig.link.listen()).await {
        Ok(mut again) => soon(again.read(&mut [0])).await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(armed.rule().refusals(), 1);
    drop(armed);
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, SET).await;
}

#[tokio::test]
async fn messages_are_counted_and_a_waiter_that_asks_the_same_again_retries() {
    let mut rig = TapRig::new().await;
    let (mut client, mut server) = rig.connect().await;
    rig.exchange.labels.set(1, WAITS);
    passes(&mut client, &mut server, &[SET, GET, SET, SET].concat()).await;
    server
        .write_all(b"_\r\n$1\r\nv\r\n>3\r\n$7\r\nmessage\r\n$2\r\nl0\r\n$0\r\n\r\n_\r\n+OK\r\n")
        .await
        .unwrap();
    counted(|| rig.exchange.counts().columns(), |columns| *columns == [4, 4, 1, 2]).await;
    let notice = rig.notices.recv().await.expect("a notice");
    assert_eq!((notice.client, &*notice.subject), (1, "l0"));
    assert_eq!(rig.exchange.lost().0, 0);
}

#[tokio::test]
async fn a_tap_that_lost_its_place_says_so_once_and_the_bytes_go_on() {
    let rig = TapRig::new().await;
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, GET).await;
    for _ in 0..3 {
        passes(&mut server, &mut client, b"?nothing that Redis says\r\n").await;
    }
    passes(&mut client, &mut server, GET).await;
    let (connections, why) = rig.exchange.lost();
    assert_eq!(connections, 1);
    assert!(why.is_some_and(|why| why.contains("c1->n1")), "it says where");
    assert_eq!(rig.exchange.counts().requests, 1, "nothing is counted from there on");
}

fn fates() -> impl Strategy<Value = MessageAction> {
    let time = Duration::from_millis(3);
    prop_oneof![
        Just(MessageAction::DropRequest),
        Just(MessageAction::DropReply),
        Just(MessageAction::DelayRequest(time)),
        Just(MessageAction::DelayReply(time)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever rule lies on a link, each side gets a beginning of what the other one sent, and all of it if nothing
    /// was dropped.
    #[test]
    fn what_arrives_is_a_beginning_of_what_was_sent(
        fate in fates(), occurrence in 1_u32..6, pieces in proptest::collection::vec(1_usize..60, 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(conversation(fate, occurrence, pieces));
    }
}

async fn conversation(fate: MessageAction, occurrence: u32, pieces: Vec<usize>) {
    let rig = TapRig::new().await;
    let armed = rig.rule("SET", occurrence, ANYONE, fate);
    let (client, server) = rig.connect().await;
    let asked = [SET, GET].repeat(4).concat();
    let answers = b"+OK\r\n$1\r\nv\r\n".repeat(4);
    let talk = |stream: TcpStream, said: Vec<u8>, pieces: Vec<usize>| async move {
        let (mut reads, mut writes) = stream.into_split();
        let writing = async {
            let mut rest = &said[..];
            for length in pieces.iter().cycle() {
                let (piece, others) = rest.split_at((*length).min(rest.len()));
                if rest.is_empty() {
                    break;
                }
                if writes.write_all(piece).await.is_err() {
                    return false;
                }
                rest = others;
                tokio::task::yield_now().await;
            }
            writes.shutdown().await.is_ok()
        };
        let reading = async {
            let mut got = Vec::new();
            let whole = reads.read_to_end(&mut got).await.is_ok();
            (got, whole)
        };
        // a reset is told once, to the first call: a write or a read
        let (wrote, (got, read)) = tokio::join!(writing, reading);
        (got, wrote && read)
    };
    let server = async {
        // answers come after what they answer
        let mut stream = server;
        let mut got = vec![0; SET.len()];
        if stream.read_exact(&mut got).await.is_err() {
            return (None, false);
        }
        let (rest, whole) = talk(stream, answers.clone(), pieces.clone()).await;
        (Some([got, rest].concat()), whole)
    };
    let both = async { tokio::join!(talk(client, asked.clone(), pieces.clone()), server) };
    let ((to_client, client_whole), (to_server, server_whole)) = soon(both).await;
    assert!(answers.starts_with(&to_client));
    assert!(to_server.is_none_or(|to_server| asked.starts_with(&to_server) && (!server_whole || to_server == asked)));
    assert!(!client_whole || to_client == answers);
    drop(armed);
}

#[tokio::test]
async fn a_rule_of_accepted_requests_passes_by_those_whose_replies_say_that_nothing_was_done() {
    let rig = TapRig::new().await;
    let armed = rig.drops_accepted(2);
    let (mut client, mut server) = rig.connect().await;
    for reply in ["$-1\r\n", "+OK\r\n", "_\r\n", "-ERR no\r\n"] {
        passes(&mut client, &mut server, SET).await;
        passes(&mut server, &mut client, reply.as_bytes()).await;
        assert_eq!(armed.rule().matched(), None);
    }
    passes(&mut client, &mut server, SET).await;
    server.write_all(b"+OK\r\n").await.unwrap();
    until_reset(&mut client).await;
    assert!(armed.rule().matched().is_some_and(|matched| matched.done));
    assert_eq!(armed.rule().passed(), "SET ×5");
    assert!(rig.exchange.is_sometimes_refused(MessageName::new(b"SET")));
}

/// PostgreSQL skips what follows an error: such requests have no reply.
#[tokio::test]
async fn requests_that_are_never_answered_do_not_hide_one_that_is_accepted() {
    let rig = TapRig::new().await;
    let armed = rig.drops_accepted(1);
    let connection = ConnectionTap::new(&rig.tap);
    let set = MessageName::new(b"SET");
    for number in 0..1000 {
        assert!(connection.request(number, set, number, 0).is_none());
    }
    assert!(connection.reply(998, set, true, 1).is_none());
    assert!(connection.reply(999, set, false, 2).is_some());
    assert!(armed.rule().matched().is_some_and(|matched| matched.at == 0));
}

#[tokio::test]
async fn what_is_refused_after_a_lost_reply_is_counted_until_its_client_does_something_else() {
    let rig = TapRig::new().await;
    let armed = rig.drops_accepted(1);
    let (set, get) = (MessageName::new(b"SET"), MessageName::new(b"GET"));
    rig.exchange.labels.set(1, WAITS);
    let first = ConnectionTap::new(&rig.tap);
    first.request(1, set, 1, 5);
    assert!(first.reply(1, set, false, 6).is_some());
    first.done(armed.rule(), 6);
    let again = ConnectionTap::new(&rig.tap);
    for (number, (name, refused)) in [(set, true), (get, true), (set, true), (set, false)]
        .into_iter()
        .enumerate()
    {
        again.reply(number as u64, name, refused, 10 + number as u64);
    }
    rig.exchange.labels.set(1, WORKS);
    again.reply(9, set, true, 99);
    let replies = rig.exchange.lost_replies();
    let [counted] = &replies[..] else {
        panic!("one reply was lost: {replies:?}");
    };
    assert_eq!((counted.client, counted.name, counted.at), (1, set, 5));
    assert_eq!((counted.refused, &counted.times[..]), (2, &[10, 12][..]));

    drop(armed);
    let armed = rig.drops_accepted(1);
    rig.exchange.labels.set(1, WAITS);
    first.request(2, set, 2, 5);
    assert!(first.reply(2, set, false, 6).is_some());
    first.done(armed.rule(), 6);
    (0..1000).for_each(|at| assert!(again.reply(at, set, true, at).is_none()));
    let many = rig.exchange.lost_replies().pop().expect("the last one");
    assert_eq!(many.refused, 1000);
    assert!((32..=64).contains(&many.times.len()), "{:?}", many.times);
    let steps: std::collections::BTreeSet<u64> = many.times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!((many.times[0], steps.len()), (0, 1), "spread evenly: {:?}", many.times);
}
