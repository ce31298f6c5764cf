//! `drop-request`, `drop-reply`, `delay-request`, `delay-reply`, `kill-after`: acts on one message, by its name, its number and
//! its client. A dropped message ends its connection, so a stream never has a hole. `kill-after` holds the reply to a message
//! back until the process of its client is killed.

use std::time::Duration;

use async_trait::async_trait;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::message_arguments::{DELAY_REPLY, DELAY_REQUEST, DROP_REPLY, DROP_REQUEST, KILL};
use super::message_words::{accepted_in_words, in_words, result_in_words};
use super::next_message::NextMessage;
use super::points::{OFTEN, spoken};
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed, Inject,
    Injected, Injection, InjectionContext, NotInjected, Pace, Planned, Shape, Target, parse_duration,
};
use crate::client_role::{ANYONE, FILTERS};
use crate::config::suggest::similar;
use crate::evidence::{CLIENTS_KILLED, Evidence, EvidenceCounter};
use harness_proxy::tap::Protocol;
use harness_proxy::{ActiveRule, LinkCounts, MatchedMessage, MessageAction, MessageRule, MessageRuleSpec};

/// An act on a message; each is a fault of that name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnMessage {
    DropRequest,
    DropReply,
    DelayRequest,
    DelayReply,
    KillAfter,
}

/// The occurrences that a plan draws from when none is named.
const OCCURRENCES: std::ops::RangeInclusive<u32> = 1..=3;
/// Milliseconds of a delay that is shorter than any lease.
const SHORT_DELAY: std::ops::RangeInclusive<u64> = 50..=500;

/// The argument for requests whose replies show that the server changed something.
const ACCEPTED: &str = "accepted";

const MESSAGES_DROPPED: EvidenceCounter = EvidenceCounter::new("messages_dropped", "message", "dropped");
const MESSAGES_DELAYED: EvidenceCounter = EvidenceCounter::new("messages_delayed", "message", "delayed");

impl Fault for OnMessage {
    fn definition(&self) -> FaultDefinition {
        let (name, summary) = match self {
            Self::DropRequest => (
                "drop-request",
                "one request never reaches its server, and its connection ends",
            ),
            Self::DropReply => (
                "drop-reply",
                "one request is carried out, its reply never reaches the client, and the connection ends",
            ),
            Self::DelayRequest => (
                "delay-request",
                "one request reaches its server late, even if its client is gone",
            ),
            Self::DelayReply => ("delay-reply", "one reply reaches its client late"),
            Self::KillAfter => (
                "kill-after",
                "the process of a client is killed after the server has carried out one of its requests",
            ),
        };
        let dropped = FaultDefinition {
            name,
            summary,
            argument: DROP_REQUEST,
            family: FaultFamily::Messages,
            pace: Pace::Message,
            verb: "cut off",
            counters: &[MESSAGES_DROPPED],
            trace: &[MESSAGES_DROPPED],
            no_effect_hint: None,
        };
        match self {
            Self::DropRequest => dropped,
            Self::DropReply => FaultDefinition {
                argument: DROP_REPLY,
                ..dropped
            },
            Self::DelayRequest | Self::DelayReply => FaultDefinition {
                argument: if self.is_of_replies() {
                    DELAY_REPLY
                } else {
                    DELAY_REQUEST
                },
                verb: "slowed",
                counters: &[MESSAGES_DELAYED],
                trace: &[MESSAGES_DELAYED],
                ..dropped
            },
            Self::KillAfter => FaultDefinition {
                argument: KILL,
                verb: "killed",
                counters: &[CLIENTS_KILLED],
                trace: &[CLIENTS_KILLED],
                ..dropped
            },
        }
    }

    fn applies(&self, _: Option<&str>, shape: &Shape) -> Result<(), String> {
        match shape.protocol {
            Protocol::Opaque => Err(format!(
                "{} acts on one message, and harness does not read the messages of {}\nhint: `reset` and `flaky` end connections at any point",
                self.definition().name,
                shape.backend
            )),
            _ => Ok(()),
        }
    }

    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        // drawn even if it is not needed, so that an argument changes nothing else of the plan
        let drawn = rng.random_range(OCCURRENCES);
        let short = Duration::from_millis(rng.random_range(SHORT_DELAY));
        let Some(argument) = argument else {
            // longer than a lease, short, and one that leaves little of a lease to a library that counts it wrongly
            let late = [
                shape.lease * 5 / 4,
                short,
                shape.lease / 2,
                short.min(shape.lease / 4),
                shape.lease * 7 / 8,
            ];
            let next = NextMessage {
                fault: self.definition().name,
                occurrence: drawn,
                action: self.action(late[number as usize % late.len()]),
                of_replies: self.is_of_replies(),
            };
            let title = result_in_words("the message struck least so far", next.action, None, self.kills());
            return Ok(self.injection(MessageChoice::Next(next), title, next.action.delay()));
        };
        let wrong = |why: String| format!("{}={argument}: {why}", self.definition().name);
        let meant = self.parse(argument, drawn, shape).map_err(wrong)?;
        let takes = meant.action.delay() + meant.refuse.unwrap_or_default();
        Ok(self.injection(MessageChoice::Named(meant), in_words(&meant, self.kills()), takes))
    }
}

impl OnMessage {
    fn drops(self) -> bool {
        matches!(self, Self::DropRequest | Self::DropReply)
    }

    fn delays(self) -> bool {
        matches!(self, Self::DelayRequest | Self::DelayReply)
    }

    /// Whether it acts at the reply.
    fn is_of_replies(self) -> bool {
        matches!(self, Self::DropReply | Self::DelayReply | Self::KillAfter)
    }

    fn kills(self) -> bool {
        matches!(self, Self::KillAfter)
    }

    fn injection(self, choice: MessageChoice, title: String, takes: Duration) -> Injection {
        let kills = self.kills();
        let takes = if kills { Duration::ZERO } else { takes };
        let action = MessageInjection { choice, kills };
        Injection {
            takes,
            ..Injection::new(Target::Everyone, action, Acquires::GoOn, title, "resume")
        }
    }

    fn action(self, time: Duration) -> MessageAction {
        match self {
            Self::DropRequest => MessageAction::DropRequest,
            Self::DropReply => MessageAction::DropReply,
            Self::DelayRequest => MessageAction::DelayRequest(time),
            Self::DelayReply | Self::KillAfter => MessageAction::DelayReply(time),
        }
    }

    /// Parses `MESSAGE[:K][:WHOSE][:TIME or refuse=TIME]`, with any order after the message. `drawn` is the default of K.
    fn parse(self, argument: &str, drawn: u32, shape: &Shape) -> Result<MessageRuleSpec, String> {
        let mut parts = argument.split(':');
        let name = parts.next().unwrap_or_default();
        let message = spoken(shape.protocol, name).ok_or_else(|| {
            let near = similar(name, shape.protocol.names().iter().copied());
            let near: Vec<String> = near.iter().take(3).map(|near| format!("`{near}`")).collect();
            let meant = if near.is_empty() {
                String::new()
            } else {
                format!("did you mean {}? ", near.join(" or "))
            };
            format!(
                "there is no message `{name}` on {}\nhint: {meant}`harness list messages` shows all",
                shape.backend
            )
        })?;
        let mut meant = MessageRuleSpec {
            message,
            occurrence: drawn,
            whose: ANYONE,
            accepted: false,
            action: self.action(shape.lease * 5 / 4),
            refuse: None,
        };
        for part in parts {
            let whose = FILTERS.into_iter().find(|whose| whose.name() == part);
            if let Some(whose) = whose {
                meant.whose = whose;
            } else if part == ACCEPTED && self.is_of_replies() {
                meant.accepted = true;
            } else if let Ok(occurrence) = part.parse::<u32>() {
                let occurrence = Some(occurrence).filter(|number| *number > 0);
                meant.occurrence = occurrence.ok_or("the first occurrence is 1")?;
            } else if let Some(time) = part.strip_prefix("refuse=").filter(|_| self.drops()) {
                meant.refuse = Some(parse_duration(time)?);
            } else if let Some(time) = parse_duration(part).ok().filter(|_| self.delays()) {
                meant.action = self.action(time);
            } else {
                return Err(format!(
                    "`{part}` is not understood here; the argument is {}",
                    self.definition().argument
                ));
            }
        }
        Ok(meant)
    }
}

/// A rule on every link: the first message that it matches is dropped or delayed.
#[derive(Debug)]
struct MessageInjection {
    choice: MessageChoice,
    /// Whether the process of the client that sent the message is killed.
    kills: bool,
}

/// The choice of a message.
#[derive(Debug, Clone, Copy)]
enum MessageChoice {
    /// The one that the argument names.
    Named(MessageRuleSpec),
    /// Decided when the window starts.
    Next(NextMessage),
}

#[async_trait]
impl Inject for MessageInjection {
    fn toxics(&self) -> Result<Option<String>, String> {
        Err("Toxiproxy does not read messages, so it cannot name one".into())
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let links: Vec<_> = context.env.links.values().cloned().collect();
        let (meant, instead) = match self.choice {
            MessageChoice::Named(meant) => (meant, None),
            MessageChoice::Next(next) => {
                let meant = next.choose(&context.env.points, 0);
                let meant = meant.ok_or(NotInjected::Missed("no client has sent a message"))?;
                // a lock needs time without a kill: another client waits in the queue until its lease is over
                (meant, Some(next).filter(|_| !self.kills))
            }
        };
        let awaited = HealOnDrop::new(AwaitedMessage {
            armed: ActiveRule::apply(links, context.number, MessageRule::new(meant)),
            instead,
            did_not_come: None,
            env: context.env.clone(),
            kills: self.kills,
            killed: 0,
        });
        // the client is not known before its message comes
        Ok(Injected {
            title: Some(in_words(&meant, self.kills)),
            ..awaited.on(Affected::default())
        })
    }
}

/// A rule that waits for its message, or has found it.
struct AwaitedMessage {
    armed: ActiveRule,
    /// The choice of another message if this one does not come.
    instead: Option<NextMessage>,
    /// The first choice, if another message took its place.
    did_not_come: Option<MessageRuleSpec>,
    env: FaultEnv,
    /// Whether the process of the client that sent it is killed.
    kills: bool,
    killed: u64,
}

impl AwaitedMessage {
    fn drops(&self) -> bool {
        self.armed.rule().spec.action.ends()
    }

    /// Waits half of the time for the chosen message, and if none came until then, chooses one that comes often.
    async fn choose_another(&mut self, until: u64) {
        let Some(next) = self.instead.take() else { return };
        let now = self.env.clock.now_ns();
        let half = now + until.saturating_sub(now) / 2;
        let rule = self.armed.rule();
        if self.env.clock.until(half, rule.found()).await.is_some() || rule.matched().is_some() {
            return;
        }
        let meant = rule.spec;
        let another = next.choose(&self.env.points, OFTEN);
        let differs = |another: &MessageRuleSpec| (another.message, another.whose) != (meant.message, meant.whose);
        if let Some(another) = another.filter(differs) {
            self.did_not_come = Some(meant);
            self.armed.replace(MessageRule::new(another));
        }
    }

    /// Kills the process of the client whose message was matched.
    fn kill(&mut self) {
        let ends = self.found().and_then(|found| self.env.ends_of(&found));
        if let Some((client, _)) = ends {
            let processes = self.env.clients.processes_of(&[client]);
            self.killed = processes.iter().filter(|process| process.kill()).count() as u64;
        }
    }

    /// Returns the message that was matched. A reply that was held back until its client was killed never comes.
    fn found(&self) -> Option<MatchedMessage> {
        let found = self.armed.rule().matched()?;
        let done = if self.kills { self.killed > 0 } else { found.done };
        Some(MatchedMessage { done, ..found })
    }

    fn evidence(&self) -> Evidence {
        let rule = self.armed.rule();
        let acted = |meant: bool| u64::from(meant && !self.kills && rule.has_acted());
        let mut evidence = Evidence::of_links(usize::from(rule.matched().is_some()), LinkCounts::default())
            .with(&MESSAGES_DROPPED, acted(self.drops()))
            .with(&MESSAGES_DELAYED, acted(!self.drops()))
            .with(&CLIENTS_KILLED, self.killed);
        evidence.counts.refused = rule.refusals();
        evidence
    }

    /// Returns the reason for which no message was dropped or delayed, if none was.
    fn missed(&self) -> Option<String> {
        let rule = self.armed.rule();
        let whose = rule.spec.whose.name();
        match (self.found(), rule.passed()) {
            (Some(found), _) if self.kills && rule.has_acted() && !found.done => {
                Some(format!("the process of {} was not running", found.client))
            }
            (Some(_), _) if rule.has_acted() => None,
            (Some(found), _) => Some(format!("the reply to `{}` never came", found.message)),
            (None, passed) if passed.is_empty() => Some(format!("no message of {whose} passed")),
            (None, passed) => Some(format!(
                "too few {}`{}` of {whose} passed; these passed: {passed}",
                accepted_in_words(&rule.spec),
                rule.spec.message.name()
            )),
        }
    }
}

#[async_trait]
impl ActiveFault for AwaitedMessage {
    async fn act(&mut self, until: u64) {
        let clock = self.env.clock;
        self.choose_another(until).await;
        let rule = self.armed.rule();
        if !self.kills {
            let over = async { clock.sleep_until(rule.found().await).await };
            let _ = clock.until(until, over).await;
        } else if clock.until(until, rule.found()).await.is_some() {
            self.kill();
        }
    }

    fn ends_with_act(&self) -> bool {
        true
    }

    async fn heal(&mut self, _: Duration, _: bool) -> Healed {
        let instead = self.did_not_come.filter(|_| self.found().is_some());
        let instead = instead.map(|meant| {
            let (name, whose) = (meant.message.name(), meant.whose.name());
            format!("in place of `{name}` of {whose}, which did not come")
        });
        Healed {
            message: self.found(),
            missed: self.missed(),
            detail: instead,
            ..Healed::from(self.evidence())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_role::WAITER;

    fn planned(fault: OnMessage, argument: Option<&str>, protocol: Protocol) -> Result<MessageRuleSpec, String> {
        let shape = Shape {
            protocol,
            ..Shape::example()
        };
        let injection = fault.planned(argument, 0, &shape, 3)?;
        match injection.action_as::<MessageInjection>().choice {
            MessageChoice::Named(meant) => Ok(meant),
            MessageChoice::Next(_) => panic!("a message was named"),
        }
    }

    #[test]
    fn what_is_typed_is_what_is_meant_in_any_order() {
        for argument in ["create:2:waiter:refuse=2s", "CREATE:refuse=2s:waiter:2"] {
            let meant = planned(OnMessage::DropReply, Some(argument), Protocol::Zk).unwrap();
            assert_eq!((meant.message.name(), meant.occurrence), ("create", 2));
            assert_eq!((meant.whose, meant.action), (WAITER, MessageAction::DropReply));
            assert_eq!(meant.refuse, Some(Duration::from_secs(2)));
        }
        let meant = planned(OnMessage::KillAfter, Some("SET:accepted:1:waiter"), Protocol::Resp).unwrap();
        assert!(meant.accepted && meant.occurrence == 1);
        let meant = planned(OnMessage::DelayRequest, Some("DEL:3s"), Protocol::Resp).unwrap();
        assert_eq!(meant.action, MessageAction::DelayRequest(Duration::from_secs(3)));
        assert!(OCCURRENCES.contains(&meant.occurrence), "drawn from the seed");
    }

    #[test]
    fn an_unknown_message_is_refused_with_the_nearest_on_this_backend() {
        let why = planned(OnMessage::DropReply, Some("SET"), Protocol::Zk).unwrap_err();
        let parts = ["`SET`", "did you mean", "`setData`"];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        assert!(!why.contains("SETNX"), "{why}");
        let why = planned(OnMessage::DropReply, Some("foo"), Protocol::Resp).unwrap_err();
        assert!(why.ends_with("hint: `harness list messages` shows all"), "{why}");
    }

    #[test]
    fn on_a_protocol_that_no_tap_reads_no_message_can_be_meant() {
        let shape = |protocol| Shape {
            protocol,
            ..Shape::example()
        };
        let fault = OnMessage::DelayReply;
        assert_eq!(fault.applies(None, &shape(Protocol::Zk)), Ok(()));
        let why = fault.applies(None, &shape(Protocol::Opaque)).unwrap_err();
        assert!(why.starts_with("delay-reply acts on one message"), "{why}");
    }

    #[test]
    fn without_an_argument_delays_are_of_several_lengths() {
        let shape = Shape::example();
        let late = |number| {
            let seed = u64::from(number);
            let injection = OnMessage::DelayReply.planned(None, number, &shape, seed).unwrap();
            match injection.action_as::<MessageInjection>().choice {
                MessageChoice::Next(NextMessage {
                    action: MessageAction::DelayReply(time),
                    ..
                }) => time,
                other => panic!("{other:?}"),
            }
        };
        assert!(late(0) > shape.lease && late(1) <= Duration::from_millis(500) && late(2) == shape.lease / 2);
    }

    #[test]
    fn a_plan_says_in_words_what_will_happen() {
        let words = |fault: OnMessage, argument| {
            let kills = fault.kills();
            in_words(&planned(fault, Some(argument), Protocol::Resp).unwrap(), kills)
        };
        assert_eq!(
            words(OnMessage::DropReply, "SET:11:waiter:refuse=1s"),
            "the 11th `SET` of a waiter is carried out, its reply is lost; the connection ends, and the client is refused for \
             1000ms"
        );
        assert_eq!(
            words(OnMessage::DelayRequest, "DEL:2"),
            "the 2nd `DEL` of anyone reaches the server 2500ms late"
        );
        assert_eq!(
            words(OnMessage::KillAfter, "SETNX:1:waiter"),
            "the 1st `SETNX` of a waiter is carried out, and its client's process is killed before the reply comes"
        );
    }
}
