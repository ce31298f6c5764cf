//! An open window: the guard that a strike becomes. What it did to the target is undone when it is dropped, whoever
//! drops it: the schedule at its time, an interrupted run, or a panic that unwinds.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Step;
use super::field::{ClientProcess, Field, Hosts};
use super::promotion::{Prelude, Promotion};
use super::rift;
use super::servers::Struck;
use super::strike::{ClientBlow, Means, OnLinks, Rift, ServerBlow, Target};
use crate::evidence::Evidence;
use crate::network::{
    ActiveRule, LinkFault, MatchedMessage as StruckMessage, MessageAction, MessageRule, MessageRuleSpec,
};
use crate::wall_clock::WallClock;

pub struct Open {
    guard: Guard,
    /// The clients that it struck.
    pub clients: Vec<u32>,
    /// The servers that it struck, from 0.
    pub servers: Vec<u32>,
    /// Why the fault is not on as it should be, if so.
    pub trouble: Option<String>,
}

enum Guard {
    Links(LinkFault),
    Message(ActiveRule),
    Stopped(Stopped),
    Killed(u64),
    Servers(Struck),
    Promoted(Promotion),
    Clocks(Stepped),
}

impl Open {
    pub(super) async fn new(
        means: &Means,
        number: u32,
        field: &Field,
        target: &Target,
        prelude: Option<Prelude>,
    ) -> Self {
        match means {
            Means::Links(on_links) => links(*on_links, number, field, target).await,
            Means::Message(meant) => message(*meant, number, field),
            Means::Clients(blow) => clients(*blow, &*field.clients, target),
            Means::Servers(blow) => servers(*blow, field, target).await,
            Means::Failover { .. } => {
                let prelude = prelude.expect("a failover is prepared before it is aimed");
                let promotion = Promotion::strike(prelude, number, field).await;
                Self {
                    clients: Vec::new(),
                    servers: promotion.servers(),
                    guard: Guard::Promoted(promotion),
                    trouble: None,
                }
            }
            Means::Between(rift) => between(rift, number, field, target),
            Means::Clock(step) => clocks(*step, field, target),
        }
    }

    /// What a window goes on doing while it is open; most have done it all when they open.
    pub async fn act(&mut self) {
        if let Guard::Servers(struck) = &mut self.guard {
            struck.act().await;
        }
    }

    /// Heals, and tells what it did; it has been open for `lasted`. A `patient` heal waits until servers serve again.
    /// Beside it stands what went wrong, if something did.
    pub async fn heal(mut self, lasted: Duration, patient: bool) -> (Evidence, Option<String>) {
        match &mut self.guard {
            Guard::Servers(struck) => struck.heal(patient).await,
            Guard::Promoted(promotion) => promotion.heal(patient).await,
            _ => {}
        }
        let evidence = self.evidence(lasted);
        let lifted = match &mut self.guard {
            Guard::Links(hold) => hold.heal().await,
            _ => Ok(()),
        };
        (evidence, lifted.err())
    }

    /// What it did so far; it has been open for `lasted`.
    pub fn evidence(&self, lasted: Duration) -> Evidence {
        match &self.guard {
            Guard::Links(hold) => Evidence {
                links: hold.names().len() as u64,
                counts: hold.counts(),
                ..Evidence::default()
            },
            Guard::Message(armed) => on_message(armed.rule()),
            Guard::Stopped(stopped) => Evidence {
                clients_stopped: stopped.0.len() as u64,
                stopped_ms: stopped.for_how_long(lasted).as_millis() as u64,
                ..Evidence::default()
            },
            Guard::Killed(killed) => Evidence {
                clients_killed: *killed,
                ..Evidence::default()
            },
            Guard::Servers(struck) => struck.evidence(lasted),
            Guard::Promoted(promotion) => promotion.evidence(),
            Guard::Clocks(stepped) => stepped.evidence(),
        }
    }

    /// The names of the links it acts on.
    pub fn links(&self) -> Vec<String> {
        match &self.guard {
            Guard::Links(hold) => hold.names(),
            Guard::Promoted(promotion) => promotion.links(),
            _ => Vec::new(),
        }
    }

    /// The message that it struck, if it meant one and found it.
    pub fn message(&self) -> Option<StruckMessage> {
        match &self.guard {
            Guard::Message(armed) => armed.rule().matched(),
            _ => None,
        }
    }

    /// Why it found no message, when it meant one.
    pub fn why_no_message(&self) -> Option<String> {
        let Guard::Message(armed) = &self.guard else {
            return None;
        };
        let rule = armed.rule();
        let meant = rule.spec;
        let whose = meant.whose.name();
        match (rule.matched(), rule.passed()) {
            (Some(struck), _) if struck.done || !drops(&meant) => None,
            (Some(struck), _) => Some(format!("the reply to `{}` never came", struck.message)),
            (None, passed) if passed.is_empty() => Some(format!("no message of {whose} passed")),
            (None, passed) => Some(format!(
                "too few `{}` of {whose} passed; what passed is {passed}",
                meant.message.name()
            )),
        }
    }

    /// The names of everybody it struck.
    pub fn targets(&self) -> Vec<String> {
        let clients = self.clients.iter().map(|client| format!("c{client}"));
        let servers = self.servers.iter().map(|server| format!("n{}", server + 1));
        clients.chain(servers).collect()
    }

    /// Whether there was nobody to strike.
    pub fn is_empty(&self) -> bool {
        // whose message it will be is not known before it comes
        let waits = matches!(self.guard, Guard::Message(_));
        self.clients.is_empty() && self.servers.is_empty() && !waits
    }
}

async fn links(on_links: OnLinks, number: u32, field: &Field, target: &Target) -> Open {
    let struck = |client: u32, server: u32| match target {
        Target::Clients(clients) => clients.contains(&client),
        Target::Servers(servers) => servers.contains(&server),
        Target::Server(target) => server == *target,
        Target::Everyone => true,
        Target::Holder | Target::Waiter | Target::Leader => unreachable!("resolved when the window opens"),
    };
    let (mut clients, mut links) = (Vec::new(), Vec::new());
    for ((client, server), link) in &field.links {
        if struck(*client, *server) {
            clients.push(*client);
            links.push(Arc::clone(link));
        }
    }
    clients.dedup();
    let mut hold = LinkFault::apply(links, number, on_links.behaviour, on_links.reset_on_heal);
    if on_links.reset_first {
        hold.reset_connections();
    }
    let trouble = hold.settle().await.err();
    Open {
        guard: Guard::Links(hold),
        clients,
        servers: Vec::new(),
        trouble,
    }
}

/// A rule on every link: whoever sends the message is struck.
fn message(meant: MessageRuleSpec, number: u32, field: &Field) -> Open {
    let links = field.links.values().map(Arc::clone).collect();
    Open {
        guard: Guard::Message(ActiveRule::apply(links, number, MessageRule::new(meant))),
        clients: Vec::new(),
        servers: Vec::new(),
        trouble: None,
    }
}

fn drops(meant: &MessageRuleSpec) -> bool {
    matches!(meant.action, MessageAction::DropRequest | MessageAction::DropReply)
}

fn on_message(rule: &MessageRule) -> Evidence {
    let struck = rule.matched();
    let drops = drops(&rule.spec);
    let mut evidence = Evidence {
        links: u64::from(struck.is_some()),
        messages_dropped: u64::from(drops && struck.as_ref().is_some_and(|struck| struck.done)),
        messages_delayed: u64::from(!drops && struck.is_some()),
        ..Evidence::default()
    };
    evidence.counts.refused = rule.refusals();
    evidence
}

fn clients(blow: ClientBlow, hosts: &dyn Hosts, target: &Target) -> Open {
    let Target::Clients(aimed) = target else {
        unreachable!("a blow at clients names them")
    };
    let mut clients: Vec<u32> = Vec::new();
    let mut struck: Vec<Arc<dyn ClientProcess>> = Vec::new();
    for client in aimed {
        let Some(process) = hosts.process_of(*client) else {
            continue;
        };
        let landed = !clients.contains(client)
            && match blow {
                ClientBlow::Stop => process.stop(),
                ClientBlow::Kill => process.kill(),
            };
        if landed {
            clients.extend(process.clients());
            struck.push(process);
        }
    }
    let guard = match blow {
        ClientBlow::Stop => Guard::Stopped(Stopped(struck)),
        ClientBlow::Kill => Guard::Killed(struck.len() as u64),
    };
    Open {
        guard,
        clients,
        servers: Vec::new(),
        trouble: None,
    }
}

async fn servers(blow: ServerBlow, field: &Field, target: &Target) -> Open {
    let servers = match target {
        Target::Server(server) => vec![*server],
        Target::Servers(servers) => servers.clone(),
        _ => unreachable!("a blow at servers names them"),
    };
    let struck = Struck::strike(blow, field.clone(), servers.clone()).await;
    Open {
        guard: Guard::Servers(struck),
        clients: Vec::new(),
        servers,
        trouble: None,
    }
}

fn between(rift: &Rift, number: u32, field: &Field, target: &Target) -> Open {
    let servers = match target {
        Target::Server(server) => vec![*server],
        Target::Servers(servers) => servers.clone(),
        _ => unreachable!("a rift is around servers"),
    };
    let layers = rift::layers(rift, &servers, field);
    Open {
        guard: Guard::Links(LinkFault::apply_each(layers, number, rift.reset_on_heal)),
        clients: Vec::new(),
        servers,
        trouble: None,
    }
}

fn clocks(step: Step, field: &Field, target: &Target) -> Open {
    let (mut clients, mut servers, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    match target {
        Target::Server(server) => {
            servers.push(*server);
            clocks.extend(field.server_clocks.get(*server as usize).cloned());
        }
        Target::Clients(aimed) => {
            for process in aimed.iter().filter_map(|client| field.clients.process_of(*client)) {
                clients.extend(process.clients());
                clocks.extend(process.wall_clock());
            }
        }
        _ => unreachable!("a clock is that of a client or of a server"),
    }
    Open {
        guard: Guard::Clocks(Stepped::step(step, clocks)),
        clients,
        servers,
        trouble: None,
    }
}

/// Clocks that are stepped until this is dropped.
struct Stepped {
    step: Step,
    /// With the readings before the step.
    clocks: Vec<(Arc<WallClock>, u64)>,
}

impl Stepped {
    fn step(step: Step, clocks: Vec<Arc<WallClock>>) -> Self {
        let with_readings = |clock: Arc<WallClock>| {
            let before = clock.shifted_readings();
            clock.step(step.nanoseconds()).ok().map(|()| (clock, before))
        };
        Self {
            step,
            clocks: clocks.into_iter().filter_map(with_readings).collect(),
        }
    }

    fn evidence(&self) -> Evidence {
        let since = |(clock, before): &(Arc<WallClock>, u64)| clock.shifted_readings().saturating_sub(*before);
        Evidence {
            clocks_stepped: self.clocks.len() as u64,
            clock_readings: self.clocks.iter().map(since).sum(),
            ..Evidence::default()
        }
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        for (clock, _) in &self.clocks {
            let _ = clock.step(-self.step.nanoseconds());
        }
    }
}

/// Processes that stand still until this is dropped.
struct Stopped(Vec<Arc<dyn ClientProcess>>);

impl Stopped {
    /// Nothing, unless every one of them still stands still: one that ended meanwhile was stopped nobody knows how long.
    fn for_how_long(&self, lasted: Duration) -> Duration {
        if self.0.iter().all(|process| process.is_stopped()) {
            lasted
        } else {
            Duration::ZERO
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for process in &self.0 {
            process.go_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// One process that hosts clients 2 and 3, and what was done to it.
    #[derive(Clone, Default)]
    struct Pair(Arc<Mutex<Vec<&'static str>>>);

    impl Pair {
        fn done(&self) -> Vec<&'static str> {
            self.0.lock().unwrap().clone()
        }

        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }
    }

    fn stop(pair: &Pair, client: u32) -> Open {
        clients(ClientBlow::Stop, pair, &Target::Clients(vec![client]))
    }

    impl Hosts for Pair {
        fn process_of(&self, client: u32) -> Option<Arc<dyn ClientProcess>> {
            [2, 3].contains(&client).then(|| Arc::new(self.clone()) as _)
        }
    }

    impl ClientProcess for Pair {
        fn clients(&self) -> Vec<u32> {
            vec![2, 3]
        }

        fn stop(&self) -> bool {
            self.note("stop");
            true
        }

        fn is_stopped(&self) -> bool {
            self.done().last() == Some(&"stop")
        }

        fn go_on(&self) {
            self.note("go on");
        }

        fn wall_clock(&self) -> Option<Arc<WallClock>> {
            None
        }

        fn kill(&self) -> bool {
            self.note("kill");
            true
        }
    }

    #[test]
    fn a_stopped_process_goes_on_when_its_window_is_dropped() {
        let pair = Pair::default();
        let open = stop(&pair, 2);
        assert_eq!(
            open.targets(),
            ["c2", "c3"],
            "whoever lives in that process is struck, too"
        );
        assert_eq!(open.evidence(Duration::from_secs(3)).stopped_ms, 3000);
        drop(open);
        assert_eq!(pair.done(), ["stop", "go on"]);
    }

    #[test]
    fn a_stopped_process_goes_on_when_a_panic_unwinds() {
        let pair = Pair::default();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _open = stop(&pair, 3);
            panic!("in the middle of a window");
        }));
        assert!(unwound.is_err());
        assert_eq!(pair.done(), ["stop", "go on"]);
    }

    #[test]
    fn a_process_that_did_not_stay_stopped_was_not_stopped() {
        let pair = Pair::default();
        let open = stop(&pair, 2);
        pair.note("ended");
        assert_eq!(open.evidence(Duration::from_secs(3)).stopped_ms, 0);
    }

    #[test]
    fn a_process_is_struck_once_and_a_client_without_one_is_nobody() {
        let pair = Pair::default();
        let kill = |aimed| clients(ClientBlow::Kill, &pair, &Target::Clients(aimed));
        let open = kill(vec![2, 3]);
        assert_eq!(open.evidence(Duration::ZERO).clients_killed, 1);
        let nobody = kill(vec![7]);
        assert!(nobody.is_empty() && !nobody.evidence(Duration::ZERO).touched());
        assert_eq!(pair.done(), ["kill"]);
    }

    #[test]
    fn a_stepped_clock_is_stepped_back_when_its_window_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let clocks = crate::wall_clock::Clocks::lay_out(folder.path().join("clocks")).unwrap();
        let clock = clocks.clock("c0").unwrap();
        let step = Step {
            back: true,
            by: Duration::from_secs(7),
        };
        let stepped = Stepped::step(step, vec![Arc::clone(&clock)]);
        assert_eq!(clock.offset_nanoseconds(), -7_000_000_000);
        assert!(!stepped.evidence().touched(), "nobody looked at the clock");
        drop(stepped);
        assert_eq!(clock.offset_nanoseconds(), 0);
    }
}
