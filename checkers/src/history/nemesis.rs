//! Facts of the nemesis: the harness's own lines in a history, about faults, phases, servers and its observer.
//!
//! A line of the nemesis has an `f` and fields. [`NemesisFact`] is both of them as one value: the recorder writes [`NemesisFact::f`] and
//! [`NemesisFact::fields`], and [`NemesisFact::read`] returns the same value. Every line can be read, so histories of other recorders
//! stay readable.
//!
//! ```
//! use harness_checkers::history::{NemesisFact, PhaseFact};
//!
//! let fact = NemesisFact::Phase(PhaseFact::WarmUp { control_acquires: 41 });
//! assert_eq!(fact.f(), "phase");
//! let fields = fact.fields();
//! assert_eq!(serde_json::to_string(&fields).unwrap(), r#"{"control_acquires":41,"phase":"warm-up"}"#);
//! assert_eq!(NemesisFact::read("phase", fields), fact);
//! ```

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::answers::Role;
use super::phase_fact::PhaseFact;
use super::window_facts::{WindowHeal, WindowStart, fields_of, lenient, take, with_phase, without_phase};

/// The `f` of lines that begin a phase of the run.
pub(super) const PHASE: &str = "phase";
/// The `f` of lines about the observer's connections.
const OBSERVER: &str = "observer";
/// The `f` of lines about the servers' roles.
const ROLES: &str = "roles";
/// The `f` of lines about one server.
const SERVER: &str = "server";
/// The `f` of lines about locks that are removed while they are not in use.
const CHURN: &str = "churn";
/// The `f` of lines about standstills of the harness.
const STALL: &str = "stall";
/// The `f` of lines about overload of the machine.
const BUSY: &str = "busy";
/// The `f` of lines about changes through the proxy's API.
const PROXY_API: &str = "proxy-api";
/// Columns of a line that are no fields of its fact.
const COLUMNS: [&str; 5] = ["index", "time", "process", "type", "f"];

/// One fact of the nemesis: `f` and fields of one line.
///
/// In JSON it is an object of its fields with `f` among them.
#[derive(Debug, Clone, PartialEq)]
pub enum NemesisFact {
    /// The beginning of a phase of the run.
    Phase(PhaseFact),
    /// The start of a fault window. `f` is the fault's name.
    Start {
        /// The fault's name.
        fault: String,
        /// The fields of the start.
        start: WindowStart,
    },
    /// The heal of a fault window. `f` is the fault's name.
    Heal {
        /// The fault's name.
        fault: String,
        /// The fields of the heal.
        heal: WindowHeal,
    },
    /// A lost or restored connection of the observer to the servers.
    Observer(ObserverFact),
    /// The roles of all servers, by server (`n1`), written after each change.
    Roles(BTreeMap<String, Role>),
    /// The end of a server that no fault of the plan killed.
    ServerEnded(ServerEnd),
    /// A standstill of the harness that ends now: the machine was overloaded, or stopped it.
    Stall {
        /// Its length, in milliseconds.
        lasted_ms: u64,
    },
    /// Overload of the machine that ends now.
    Busy {
        /// Its length, in milliseconds.
        lasted_ms: u64,
        /// The number of processes that ran or waited, for each processor.
        per_processor: f64,
    },
    /// Locks that are used by turns.
    Churn(ChurnFact),
    /// A change of the proxy through its API, and not by the plan.
    ProxyChange(ProxyChange),
    /// A line of another recorder, or of another version.
    Other {
        /// The `f` of the line.
        f: String,
        /// All its fields.
        fields: Map<String, Value>,
    },
}

/// The unplanned end of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerEnd {
    /// `n1`
    pub server: String,
    /// `signal 9`, `exit status 1`, `its container was removed`
    pub how: String,
    /// The file with its output.
    pub log: String,
}

impl ServerEnd {
    /// Returns a sentence. `at_ns`: the time at which the end was seen, in nanoseconds of the history.
    pub fn in_words(&self, at_ns: u64) -> String {
        let Self { server, how, log } = self;
        format!(
            "{server} ended by itself at {:.1}s ({how}); its log: {log}",
            at_ns as f64 / 1e9
        )
    }
}

/// One line of the nemesis as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Nemesis {
    /// The `index` of its line.
    pub index: u64,
    /// The time, in nanoseconds of the history.
    pub time_ns: u64,
    /// The fact.
    pub fact: NemesisFact,
    /// The position of its event.
    pub(super) position: u32,
    /// The whole line.
    pub(super) raw: String,
}

/// The observer's connection to a server, or to a group of servers that it listens to as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "lowercase")]
pub enum ObserverFact {
    /// It is lost since `since_ns`, in nanoseconds of the history (`None`: since this line), and until it is back; events of that time are
    /// not recorded.
    Lost {
        /// `master`, `master 2`, `ensemble`.
        #[serde(default, deserialize_with = "lenient")]
        watched: String,
        /// The time of the loss, in nanoseconds of the history.
        #[serde(default, deserialize_with = "lenient", rename = "since")]
        since_ns: Option<u64>,
    },
    /// It is restored.
    Back {
        /// The watched server or group.
        #[serde(default, deserialize_with = "lenient")]
        watched: String,
    },
}

/// Locks that are used by turns, and removed from the servers while they are not in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "lowercase")]
pub enum ChurnFact {
    /// The first turn.
    Begin {
        /// The length of each turn, in milliseconds.
        #[serde(default, deserialize_with = "lenient")]
        turn_ms: u64,
    },
    /// The removal of the leftovers of a lock.
    Removed {
        /// The name of the lock.
        #[serde(default, deserialize_with = "lenient")]
        lock: String,
    },
}

/// One change through the proxy's API.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProxyChange {
    /// The link or proxy: `c3->n1`.
    pub proxy: String,
    /// The change, in words: `toxic put on`.
    pub did: String,
    /// The toxic, as the API shows it: `name`, `type`, `stream`, `toxicity`, `attributes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toxic: Option<Map<String, Value>>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl NemesisFact {
    /// Returns the two lines of a window without a target, with the reason: it starts and heals without an effect.
    pub fn missed(fault: &str, number: u32, title: &str, why: &str) -> [Self; 2] {
        let start = WindowStart {
            number,
            title: title.to_owned(),
            ..WindowStart::default()
        };
        let heal = WindowHeal {
            number: Some(number),
            missed: Some(why.to_owned()),
            ..WindowHeal::default()
        };
        let fault = fault.to_owned();
        [
            Self::Start {
                fault: fault.clone(),
                start,
            },
            Self::Heal { fault, heal },
        ]
    }

    /// Returns the `f` of its line.
    pub fn f(&self) -> &str {
        match self {
            Self::Phase(_) => PHASE,
            Self::Start { fault, .. } | Self::Heal { fault, .. } => fault,
            Self::Observer(_) => OBSERVER,
            Self::Roles(_) => ROLES,
            Self::ServerEnded(_) => SERVER,
            Self::Stall { .. } => STALL,
            Self::Busy { .. } => BUSY,
            Self::Churn(_) => CHURN,
            Self::ProxyChange(_) => PROXY_API,
            Self::Other { f, .. } => f,
        }
    }

    /// Returns all other fields of its line.
    pub fn fields(&self) -> Map<String, Value> {
        match self {
            Self::Phase(phase) => fields_of(phase),
            Self::Start { start, .. } => with_phase("start", start),
            Self::Heal { heal, .. } => with_phase("heal", heal),
            Self::Observer(observed) => fields_of(observed),
            Self::Roles(roles) => with_phase("seen", &json!({ "roles": roles })),
            Self::ServerEnded(end) => with_phase("ended", end),
            Self::Stall { lasted_ms } => with_phase("over", &json!({ "lasted_ms": lasted_ms })),
            Self::Busy {
                lasted_ms,
                per_processor,
            } => with_phase(
                "over",
                &json!({ "lasted_ms": lasted_ms, "per_processor": per_processor }),
            ),
            Self::Churn(churn) => fields_of(churn),
            Self::ProxyChange(change) => with_phase("change", change),
            Self::Other { fields, .. } => fields.clone(),
        }
    }

    /// Returns the fact of a line by its `f` and its fields. Columns of every line (`index`, `time`, `process`, `type`, `f`) may be among
    /// the fields and are ignored.
    ///
    /// A line of an unknown `f` without a phase counts as the start of a window of that fault, as do lines of Jepsen's nemesis.
    pub fn read(f: &str, mut fields: Map<String, Value>) -> Self {
        for column in COLUMNS {
            fields.remove(column);
        }
        let phase = fields.get("phase").and_then(Value::as_str).unwrap_or_default();
        let known = match (f, phase) {
            (PHASE, _) => said(&fields).map(Self::Phase),
            (OBSERVER, "lost" | "back") => said(&fields).map(Self::Observer),
            (ROLES, "seen") => Some(Self::Roles(roles(&fields))),
            (SERVER, "ended") => said(&fields).map(Self::ServerEnded),
            (STALL, "over") => fields
                .get("lasted_ms")
                .and_then(Value::as_u64)
                .map(|lasted_ms| Self::Stall { lasted_ms }),
            (BUSY, "over") => busy(&fields),
            (CHURN, "begin" | "removed") => said(&fields).map(Self::Churn),
            (PROXY_API, "change") => Some(Self::ProxyChange(ProxyChange::read(fields.clone()))),
            (_, "heal") => Some(Self::Heal {
                fault: f.to_owned(),
                heal: WindowHeal::read(without_phase(&fields)),
            }),
            (_, "start") => Some(Self::started(f, &fields)),
            _ if !fields.get("phase").is_some_and(Value::is_string) => Some(Self::started(f, &fields)),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Other {
            f: f.to_owned(),
            fields,
        })
    }

    fn started(f: &str, fields: &Map<String, Value>) -> Self {
        Self::Start {
            fault: f.to_owned(),
            start: WindowStart::read(without_phase(fields)),
        }
    }
}

impl ProxyChange {
    fn read(mut fields: Map<String, Value>) -> Self {
        fields.remove("phase");
        Self {
            proxy: take(&mut fields, "proxy").unwrap_or_default(),
            did: take(&mut fields, "did").unwrap_or_default(),
            toxic: take(&mut fields, "toxic"),
            extra: fields,
        }
    }
}

impl Serialize for NemesisFact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = self.fields();
        fields.insert("f".to_owned(), self.f().into());
        fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for NemesisFact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let f: String = take(&mut fields, "f").ok_or_else(|| serde::de::Error::missing_field("f"))?;
        Ok(Self::read(&f, fields))
    }
}

/// Reads a value from the fields of a line, if they have its form; other fields are ignored.
fn said<T: DeserializeOwned>(fields: &Map<String, Value>) -> Option<T> {
    T::deserialize(Value::Object(fields.clone())).ok()
}

fn busy(fields: &Map<String, Value>) -> Option<NemesisFact> {
    Some(NemesisFact::Busy {
        lasted_ms: fields.get("lasted_ms")?.as_u64()?,
        per_processor: fields.get("per_processor")?.as_f64()?,
    })
}

/// Returns the roles; servers whose role is no text are left out.
fn roles(fields: &Map<String, Value>) -> BTreeMap<String, Role> {
    let roles = fields.get("roles").and_then(Value::as_object).into_iter().flatten();
    roles
        .filter_map(|(server, role)| Some((server.clone(), Role::parse(role.as_str()?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{EffectCounters, MessageMatch, Requirement};

    /// Lines that are the same when they are written and read.
    const LINES: [&str; 25] = [
        r#"{"each":null,"f":"phase","phase":"control"}"#,
        r#"{"each":3,"f":"phase","phase":"control"}"#,
        r#"{"control_acquires":41,"f":"phase","phase":"warm-up"}"#,
        r#"{"f":"phase","phase":"faults","windows":4}"#,
        r#"{"f":"phase","phase":"recovery"}"#,
        r#"{"at_ns":7,"class":"two-holders","f":"phase","lock":"l0","phase":"violation","property":"HL002","summary":"c0 and c1 hold l0"}"#,
        r#"{"f":"phase","phase":"end","unfinished":["c3"],"wire":{"clients":{"c0":{"notifications":1,"replies":2,"requests":2,"retries":0}},"lost":0,"why":null}}"#,
        r#"{"cut":["c3->n1"],"f":"partition","holder":"c3","holder_works_ms":2500,"phase":"start","targets":["c3"],"title":"holder | every server","window":1}"#,
        r#"{"f":"pause-holder","phase":"start","targets":[],"title":"holder","window":2}"#,
        r#"{"evidence":{"acquires":9,"held_bytes":7,"links":3,"locks_lost":1,"packets_marked":5,"unknown":0},"f":"partition","phase":"heal","window":1}"#,
        r#"{"evidence":{},"f":"pause-holder","missed":"no client held a lock","phase":"heal","window":2}"#,
        r#"{"counters":[{"key":"servers_killed","noun":"server","outcome":"killed"}],"evidence":{},"f":"server-kill","no_effect_hint":"more servers","phase":"heal","window":3}"#,
        r#"{"clock_step_ms":-4000,"f":"clock","phase":"start","targets":["n1"],"title":"n1: its wall clock steps 4000 ms back","window":4}"#,
        r#"{"f":"roles","phase":"seen","roles":{"n1":"leader","n2":"not serving","n3":"learner"}}"#,
        r#"{"f":"server","how":"signal 9","log":"nodes/n1/server.log","phase":"ended","server":"n1"}"#,
        r#"{"f":"stall","lasted_ms":10021,"phase":"over"}"#,
        r#"{"f":"busy","lasted_ms":1003,"per_processor":12.5,"phase":"over"}"#,
        r#"{"f":"churn","phase":"begin","turn_ms":500}"#,
        r#"{"f":"churn","lock":"l0","phase":"removed"}"#,
        r#"{"f":"observer","phase":"lost","since":1990000000,"watched":"master"}"#,
        r#"{"f":"observer","phase":"back","watched":"master 2"}"#,
        r#"{"did":"toxic put on","f":"proxy-api","phase":"change","proxy":"c0->n1","toxic":{"name":"slow"}}"#,
        r#"{"evidence":{"stopped_ms":9},"f":"pause-holder","phase":"heal","requirement":{"breaks":"HL001","stopped_ms":1500},"window":1}"#,
        r#"{"evidence":{},"f":"drop-reply","matched":{"client":"c3","done":true,"link":"c3->n1","message":"SET","role":"waiter","time":7},"phase":"heal"}"#,
        r#"{"f":"else","more":{"a":[1]},"phase":"seen"}"#,
    ];

    #[test]
    fn lines_come_back_as_they_were_written() {
        for line in LINES {
            let fact: NemesisFact = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&fact).unwrap(), line);
            assert_eq!(NemesisFact::read(fact.f(), fact.fields()), fact);
        }
        let others = LINES.map(|line| serde_json::from_str::<NemesisFact>(line).unwrap());
        let others = others.iter().filter(|fact| matches!(fact, NemesisFact::Other { .. }));
        assert_eq!(others.count(), 1, "only the last is not known");
    }

    #[test]
    fn counters_that_no_reader_knows_survive_and_what_is_no_count_does_no_harm() {
        let line =
            r#"{"f":"new-fault","phase":"heal","evidence":{"leaves_shaken":7,"links":2,"words":"many"},"window":3}"#;
        let NemesisFact::Heal { fault, heal } = serde_json::from_str(line).unwrap() else {
            panic!("a heal")
        };
        assert_eq!((fault.as_str(), heal.number), ("new-fault", Some(3)));
        assert_eq!(
            heal.evidence,
            EffectCounters::from_iter([("leaves_shaken", 7), ("links", 2)])
        );
        assert_eq!(heal.evidence.sum(["links", "leaves_shaken", "none"]), 9);
    }

    #[test]
    fn a_field_of_another_shape_stays_as_it_is() {
        let line = r#"{"f":"cut","phase":"start","client":4,"targets":"c7 and c8","title":5,"window":1}"#;
        let NemesisFact::Start { start, .. } = serde_json::from_str(line).unwrap() else {
            panic!("a start")
        };
        assert!(start.targets.is_empty() && start.extra.len() == 3, "{start:?}");
        assert!(start.names_client(4) && start.names_client(7) && start.names_client(8) && !start.names_client(5));
    }

    #[test]
    fn a_window_names_the_clients_of_its_targets_links_and_message() {
        let start = WindowStart {
            title: "holder c1".into(),
            targets: vec!["c2".into()],
            cut: Some(vec!["c3->n1".into()]),
            holder: Some("c4".into()),
            verb: Some("c5".into()),
            ..WindowStart::default()
        };
        let named: Vec<u32> = (0..40).filter(|client| start.names_client(*client)).collect();
        assert_eq!(named, [1, 2, 3, 4]);
        let message = MessageMatch {
            message: "SET c9".into(),
            client: "c6".into(),
            link: "c6->n1".into(),
            role: "waiter".into(),
            done: true,
            accepted: false,
            time_ns: 1,
        };
        let heal = WindowHeal {
            matched: Some(message),
            requirement: Some(Requirement::default()),
            ..WindowHeal::default()
        };
        assert!(heal.names_client(6) && !heal.names_client(9) && !WindowHeal::default().names_client(6));
    }

    #[test]
    fn a_window_that_missed_starts_and_heals_with_its_reason() {
        let lines = NemesisFact::missed("pause-holder", 2, "holder", "no client held a lock");
        let lines = lines.map(|line| serde_json::to_string(&line).unwrap());
        assert_eq!(lines, [LINES[8], LINES[10]]);
    }
}
