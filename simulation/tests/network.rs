//! The network of a world, seen from its two ends: the messages that arrive, in which order, and those that do not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::{Behaviour, Cut, Flow};
use harness_simulation::World;
use harness_simulation::network::{
    ConnectionEnding, ConnectionRefused, LinkHook, LinkLatency, MessageVerdict, PassingMessage, Port, PortEvent,
    ServerSide, SimulatedLink, WireMessage,
};

const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Note(u64);

impl WireMessage for Note {
    fn passing(&self) -> PassingMessage<'_> {
        PassingMessage::Request {
            number: self.0,
            name: "note",
            digest: self.0,
        }
    }
    fn bytes(&self) -> usize {
        10
    }
}

/// The log of a server: notes by number, and 0 for the end of a connection.
type Seen = Rc<RefCell<Vec<u64>>>;

/// Starts a server that answers each note with its tenfold, in the process `n1`; returns its log.
fn serve(world: World, port: Port<Note, Note>) -> Seen {
    let seen = Seen::default();
    let (log, listener) = (seen.clone(), port.listen());
    let serving = async move {
        let mut connections: Vec<ServerSide<Note, Note>> = Vec::new();
        loop {
            match listener.next().await {
                PortEvent::Opened(connection) => connections.push(connection),
                PortEvent::Message(number, Note(note)) => {
                    log.borrow_mut().push(note);
                    let connection = connections.iter().find(|connection| connection.number() == number);
                    connection.expect("it was opened").send(Note(note * 10));
                }
                PortEvent::Over(number) => {
                    log.borrow_mut().push(0);
                    connections.retain(|connection| connection.number() != number);
                }
            }
        }
    };
    world.process("n1").spawn(serving).detach();
    seen
}

fn set_up(world: World) -> (SimulatedLink, Port<Note, Note>, Seen) {
    let port = Port::new(world);
    let seen = serve(world, port);
    (
        SimulatedLink::new(world, "c0->n1", 0, LinkLatency::default()),
        port,
        seen,
    )
}

#[test]
fn what_was_sent_arrives_in_order_after_its_sender_closed() {
    World::run(1, async |world: World| {
        let (link, port, seen) = set_up(world);
        let end = link.connect(port).await.unwrap();
        link.apply(1, Behaviour::STALL);
        for note in 1..=5 {
            end.send(Note(note));
        }
        drop(end);
        world.sleep(1000 * MS).await;
        assert!(seen.borrow().is_empty());
        assert_eq!(link.counts().held_bytes, 50);
        link.heal(1);
        world.sleep(MS).await;
        assert_eq!(*seen.borrow(), [1, 2, 3, 4, 5, 0]);
        assert_eq!(link.live(), 0, "both ends are gone");
    });
}

#[test]
fn a_reset_overtakes_what_is_on_its_way_and_both_ends_hear_of_it() {
    World::run(1, async |world: World| {
        let (link, port, seen) = set_up(world);
        let end = link.connect(port).await.unwrap();
        end.send(Note(1));
        assert_eq!(end.receive().await, Ok(Note(10)));
        end.send(Note(2));
        link.reset_connections();
        assert_eq!(end.receive().await, Err(ConnectionEnding::Reset));
        end.send(Note(3));
        world.sleep(10 * MS).await;
        assert_eq!(*seen.borrow(), [1, 0]);
        assert_eq!((link.live(), link.counts().resets), (0, 1));
        // a new one is taken
        let end = link.connect(port).await.unwrap();
        end.send(Note(4));
        assert_eq!(end.receive().await, Ok(Note(40)));
    });
}

#[test]
fn what_arrived_before_a_reset_can_still_be_read() {
    World::run(1, async |world: World| {
        let (link, port, _) = set_up(world);
        let end = link.connect(port).await.unwrap();
        end.send(Note(1));
        world.sleep(10 * MS).await;
        link.reset_connections();
        assert_eq!(end.receive().await, Ok(Note(10)));
        assert_eq!(end.receive().await, Err(ConnectionEnding::Reset));
    });
}

#[test]
fn a_connect_through_a_stalled_link_is_answered_when_the_kernel_repeats_it() {
    World::run(1, async |world: World| {
        let (link, port, _) = set_up(world);
        link.apply(1, Behaviour::STALL);
        let connected = Rc::new(Cell::new(None));
        let at = connected.clone();
        let dialling = async move {
            let end = link.connect(port).await.unwrap();
            at.set(Some(world.now()));
            drop(end);
        };
        world.process("c0").spawn(dialling).detach();
        world.sleep(1500 * MS).await;
        assert_eq!(connected.get(), None);
        link.heal(1);
        world.sleep(1000 * MS).await;
        assert_eq!(connected.get(), None, "the kernel repeats it at 1 s and at 3 s");
        world.sleep(1000 * MS).await;
        let at = connected.get().expect("it got through");
        assert!(at > 2999 * MS && at < 3010 * MS, "{at:?}");
        assert_eq!(link.counts().held_connects, 2);
    });
}

#[test]
fn nobody_who_listens_is_a_refusal_and_a_killed_server_closes_behind_its_answers() {
    World::run(1, async |world: World| {
        let (link, port, seen) = set_up(world);
        let end = link.connect(port).await.unwrap();
        end.send(Note(1));
        while seen.borrow().is_empty() {
            world.sleep(MS / 100).await;
        }
        world.process("n1").kill();
        assert_eq!(end.receive().await, Ok(Note(10)), "it was sent before");
        assert_eq!(end.receive().await, Err(ConnectionEnding::Closed));
        assert_eq!(link.connect(port).await.err(), Some(ConnectionRefused));
        assert_eq!(link.counts().refused, 1);
        let again = serve(world, port);
        let end = link.connect(port).await.unwrap();
        end.send(Note(2));
        assert_eq!(end.receive().await, Ok(Note(20)));
        assert_eq!(*again.borrow(), [2]);
    });
}

#[test]
fn a_stopped_server_takes_connections_and_answers_when_it_goes_on() {
    World::run(1, async |world: World| {
        let (link, port, seen) = set_up(world);
        let server = world.process("n1");
        server.stop();
        let end = link.connect(port).await.expect("the kernel takes it");
        end.send(Note(1));
        world.sleep(1000 * MS).await;
        assert!(seen.borrow().is_empty());
        server.go_on();
        assert_eq!(end.receive().await, Ok(Note(10)));
    });
}

#[test]
fn a_delay_holds_each_direction_for_its_own_time() {
    World::run(1, async |world: World| {
        let (link, port, seen) = set_up(world);
        let end = link.connect(port).await.unwrap();
        let late = Behaviour::each_way(Flow::PASS, Flow::delayed(70 * MS));
        link.apply(1, late);
        link.apply(2, late);
        let asked = world.now();
        end.send(Note(1));
        world.sleep(MS).await;
        assert_eq!(*seen.borrow(), [1]);
        assert_eq!(end.receive().await, Ok(Note(10)));
        let took = world.now() - asked;
        assert!(took > 140 * MS && took < 141 * MS, "{took:?}");
        assert_eq!(link.counts().delayed_bytes, 10);
    });
}

/// Judges notes by their number.
struct NoteJudge(fn(u64) -> MessageVerdict, RefCell<Vec<u64>>);

/// The note whose delay goes on when its link lets go.
const HELD: u64 = 2;

impl LinkHook for NoteJudge {
    fn passes(&self, _: u64, message: &dyn WireMessage) -> MessageVerdict {
        let PassingMessage::Request { number, .. } = message.passing() else {
            unreachable!("a note is a request")
        };
        (self.0)(number)
    }

    fn ended(&self, connection: u64) {
        self.1.borrow_mut().push(connection);
    }
}

#[test]
fn a_dropped_message_takes_its_connection_with_it_and_not_what_was_sent_before() {
    World::run(1, async |world: World| {
        let (link, port, seen) = set_up(world);
        let judge = |note| match note {
            3 => MessageVerdict::Drop,
            _ => MessageVerdict::Pass,
        };
        let judge = Rc::new(NoteJudge(judge, RefCell::default()));
        link.set_hook(Some(judge.clone()));
        let end = link.connect(port).await.unwrap();
        (1..=5).for_each(|note| end.send(Note(note)));
        world.sleep(10 * MS).await;
        assert_eq!(*seen.borrow(), [1, 2, 0]);
        assert_eq!(*judge.1.borrow(), [1], "the hook was told of the end");
        let end = link.connect(port).await.unwrap();
        end.send(Note(6));
        assert_eq!(end.receive().await, Ok(Note(60)));
    });
}

#[test]
fn a_delayed_message_keeps_its_place_until_its_time_or_until_it_is_released() {
    for release in [false, true] {
        World::run(1, async |world: World| {
            let (link, port, seen) = set_up(world);
            let judge = |note| match note {
                2 => MessageVerdict::Delay(500 * MS, Box::new(|| false)),
                _ => MessageVerdict::Pass,
            };
            link.set_hook(Some(Rc::new(NoteJudge(judge, RefCell::default()))));
            let end = link.connect(port).await.unwrap();
            (1..=3).for_each(|note| end.send(Note(note)));
            world.sleep(490 * MS).await;
            assert_eq!(*seen.borrow(), [1]);
            if release {
                link.release();
            }
            world.sleep(MS).await;
            assert_eq!(seen.borrow().len(), if release { 3 } else { 1 });
            world.sleep(20 * MS).await;
            assert_eq!(*seen.borrow(), [1, 2, 3]);
        });
    }
}

#[test]
fn a_release_lets_go_of_no_delay_that_goes_on() {
    World::run(1, async |world: World| {
        let (link, port, seen) = set_up(world);
        let judge = |note: u64| MessageVerdict::Delay(500 * MS, Box::new(move || note == HELD));
        link.set_hook(Some(Rc::new(NoteJudge(judge, RefCell::default()))));
        let (one, other) = (link.connect(port).await.unwrap(), link.connect(port).await.unwrap());
        one.send(Note(1));
        other.send(Note(HELD));
        world.sleep(10 * MS).await;
        assert!(seen.borrow().is_empty());
        link.release();
        world.sleep(10 * MS).await;
        assert_eq!(*seen.borrow(), [1]);
        world.sleep(490 * MS).await;
        assert_eq!(*seen.borrow(), [1, HELD]);
    });
}

#[test]
fn a_cut_resets_after_about_its_bytes_or_its_time() {
    World::run(5, async |world: World| {
        let (link, port, _) = set_up(world);
        let cut = |after, after_bytes| Behaviour {
            cut: Cut { after, after_bytes },
            ..Behaviour::default()
        };
        link.apply(1, cut(None, Some(200)));
        let end = link.connect(port).await.unwrap();
        let mut answered = 0;
        for note in 1..100 {
            end.send(Note(note));
            if end.receive().await.is_err() {
                break;
            }
            answered += 1;
        }
        assert!((4..=15).contains(&answered), "20 bytes each: {answered}");
        link.apply(1, cut(Some(100 * MS), None));
        let end = link.connect(port).await.unwrap();
        let begun = world.now();
        assert_eq!(end.receive().await, Err(ConnectionEnding::Reset));
        let lived = world.now() - begun;
        assert!(lived > 49 * MS && lived < 151 * MS, "{lived:?}");
    });
}

/// Returns notes with their arrival, over a link with every kind of disturbance.
fn transcript(seed: u64) -> Vec<(u64, u64)> {
    World::run(seed, async |world: World| {
        let (link, port, _) = set_up(world);
        let rough = Flow {
            jitter: 20 * MS,
            delay: 20 * MS,
            loss: Some(harness_proxy::Loss {
                per_mille: 200,
                timeout: 200 * MS,
            }),
            ..Flow::PASS
        };
        link.apply(1, Behaviour::both(rough));
        let end = link.connect(port).await.unwrap();
        let mut heard = Vec::new();
        for note in 1..50 {
            end.send(Note(note));
            heard.push((end.receive().await.unwrap().0, world.now_ns()));
        }
        heard
    })
}

#[test]
fn the_same_seed_gives_the_same_times_and_another_seed_others() {
    assert_eq!(transcript(1), transcript(1));
    assert_ne!(transcript(1), transcript(2));
}
