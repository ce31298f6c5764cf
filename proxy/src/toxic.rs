//! Toxics: the behaviours that Toxiproxy's API adds to one direction of a link, with Toxiproxy's own names, defaults and meanings.
//!
//! Pure. The effect of a toxic is a [`Flow`]; the connections that it applies to are decided by their seeds and its toxicity alone, so that
//! a toxic which is added or removed never changes the connections of another.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::behaviour::{Flow, Slice};
use super::direction::Direction;

/// One toxic on one link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Toxic {
    /// Unique on its link, whatever the stream.
    pub name: String,
    #[serde(flatten)]
    pub kind: ToxicKind,
    pub stream: Direction,
    /// The share of connections that it applies to, 0 to 1.
    pub toxicity: f32,
}

/// The kind of a toxic, with its attributes. A missing attribute is 0, and one below 0 counts as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "attributes", rename_all = "snake_case")]
pub enum ToxicKind {
    /// Every chunk arrives `latency` ms later, give or take `jitter`. The end of the stream is not delayed.
    Latency {
        #[serde(default)]
        latency: i64,
        #[serde(default)]
        jitter: i64,
    },
    /// At most `rate` KB a second; none at all, and nothing lost, at 0.
    Bandwidth {
        #[serde(default)]
        rate: i64,
    },
    /// The end of the stream arrives `delay` ms later.
    SlowClose {
        #[serde(default)]
        delay: i64,
    },
    /// Nothing gets through; the connection ends after `timeout` ms without a byte, or, at 0, when the toxic goes.
    Timeout {
        #[serde(default)]
        timeout: i64,
    },
    /// Nothing gets through, and the connection is reset after `timeout` ms.
    ResetPeer {
        #[serde(default)]
        timeout: i64,
    },
    /// Chunks come as slices of `average_size` bytes, give or take `size_variation`, `delay` µs apart.
    Slicer {
        #[serde(default)]
        average_size: i64,
        #[serde(default)]
        size_variation: i64,
        #[serde(default)]
        delay: i64,
    },
    /// The connection ends when `bytes` have passed.
    LimitData {
        #[serde(default)]
        bytes: i64,
    },
    /// No effect.
    Noop {},
}

/// The reason for which a toxic is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidToxic {
    Type,
    Attributes(String),
}

impl ToxicKind {
    /// Parses a toxic as Toxiproxy does: an unknown type is another error than attributes that do not fit.
    pub fn parse(name: &str, attributes: &Value) -> Result<Self, InvalidToxic> {
        let none = serde_json::json!({});
        let read = |attributes: &Value| {
            serde_json::from_value::<Self>(serde_json::json!({ "type": name, "attributes": attributes }))
        };
        // each attribute has a default: what cannot be read without any is of no type
        read(&none).map_err(|_| InvalidToxic::Type)?;
        let given = if attributes.is_null() { &none } else { attributes };
        let kind = read(given).map_err(|error| InvalidToxic::Attributes(error.to_string()))?;
        match kind {
            Self::Slicer { average_size, .. } if average_size <= 0 => {
                Err(InvalidToxic::Attributes("average_size must be above 0".into()))
            }
            kind => Ok(kind),
        }
    }

    /// `latency`, as it is typed.
    pub fn name(&self) -> String {
        self.fields().0
    }

    pub fn attributes(&self) -> Value {
        self.fields().1
    }

    fn fields(&self) -> (String, Value) {
        let mut whole = serde_json::to_value(self).expect("a kind is plain data");
        let name = whole["type"].as_str().unwrap_or_default().to_owned();
        (name, whole["attributes"].take())
    }

    fn flow(&self) -> Flow {
        let pass = Flow::PASS;
        match *self {
            Self::Latency { latency, jitter } => Flow {
                delay: milliseconds(latency),
                jitter: milliseconds(jitter),
                ..pass
            },
            Self::Bandwidth { rate } if rate <= 0 => Flow::FREEZE,
            Self::Bandwidth { rate } => Flow::slowed(u32::try_from(rate.saturating_mul(1000)).unwrap_or(u32::MAX)),
            Self::SlowClose { delay } => Flow {
                end_delay: milliseconds(delay),
                ..pass
            },
            Self::Timeout { timeout } => Flow {
                discard: true,
                close_after_silence: (timeout > 0).then(|| milliseconds(timeout)),
                ..pass
            },
            Self::ResetPeer { timeout } => Flow {
                reset_after: Some(milliseconds(timeout)),
                ..pass
            },
            Self::Slicer {
                average_size,
                size_variation,
                delay,
            } => Flow::sliced(Slice {
                size: natural(average_size).clamp(1, u64::from(u32::MAX)) as u32,
                variation: natural(size_variation).min(natural(average_size)) as u32,
                gap: Duration::from_micros(natural(delay)),
            }),
            Self::LimitData { bytes } => Flow {
                limit: Some(natural(bytes)),
                ..pass
            },
            Self::Noop {} => pass,
        }
    }
}

impl Toxic {
    /// Makes a toxic for every connection, with Toxiproxy's default name.
    pub fn new(kind: ToxicKind, stream: Direction) -> Self {
        Self {
            name: format!("{}_{}", kind.name(), stream.name()),
            kind,
            stream,
            toxicity: 1.0,
        }
    }

    /// Whether it applies to the connection with this seed.
    pub fn is_for(&self, connection: u64) -> bool {
        if self.toxicity >= 1.0 {
            return true;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(connection ^ digest(&self.name));
        rng.random::<f32>() < self.toxicity
    }
}

/// Returns `flow` with the effects of all toxics of one stream on the connection with this seed.
pub fn with_toxics(flow: Flow, toxics: &[Toxic], stream: Direction, connection: u64) -> Flow {
    let mine = toxics
        .iter()
        .filter(|toxic| toxic.stream == stream && toxic.is_for(connection));
    mine.fold(flow, |flow, toxic| flow.join(toxic.kind.flow()))
}

/// Hashes by FNV-1a: the same number for the same name on every machine, in every version.
fn digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Longer than any run; what is above would overflow a clock.
const LONGEST_MS: u64 = 365 * 24 * 3_600_000;

fn milliseconds(number: i64) -> Duration {
    Duration::from_millis(natural(number).min(LONGEST_MS))
}

fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn toxicity_is_the_share_of_connections() {
        for (toxicity, expected) in [(0.0, 0..=0), (0.5, 430..=570), (1.0, 1000..=1000)] {
            let toxic = Toxic {
                name: "a".to_owned(),
                toxicity,
                ..Toxic::new(ToxicKind::Timeout { timeout: 0 }, Direction::ToServer)
            };
            let hit = (0..1000).filter(|seed| toxic.is_for(*seed)).count();
            assert!(expected.contains(&hit), "{hit} of 1000 at {toxicity}");
        }
    }

    #[test]
    fn a_toxic_reads_as_toxiproxy_writes_it() {
        let toxic = Toxic::new(ToxicKind::Latency { latency: 5, jitter: 0 }, Direction::ToClient);
        let text = serde_json::to_string(&toxic).unwrap();
        let expected = json!({
            "name": "latency_downstream", "type": "latency", "stream": "downstream", "toxicity": 1.0,
            "attributes": { "latency": 5, "jitter": 0 },
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        let parse = |name: &str, attributes: Value| ToxicKind::parse(name, &attributes);
        assert_eq!(parse("slow_close", Value::Null), Ok(ToxicKind::SlowClose { delay: 0 }));
        assert_eq!(parse("packet_loss", Value::Null), Err(InvalidToxic::Type));
        for (name, unfit) in [("latency", json!({ "latency": "5" })), ("slicer", json!({}))] {
            assert!(matches!(parse(name, unfit), Err(InvalidToxic::Attributes(_))), "{name}");
        }
        assert_eq!(parse("latency", json!({ "latency": -5 })).unwrap().flow(), Flow::PASS);
    }

    #[test]
    fn toxics_of_one_stream_add_up_and_leave_the_other_alone() {
        let toxics = [
            Toxic::new(ToxicKind::Latency { latency: 5, jitter: 1 }, Direction::ToServer),
            Toxic::new(ToxicKind::LimitData { bytes: 10 }, Direction::ToServer),
        ];
        let up = with_toxics(Flow::PASS, &toxics, Direction::ToServer, 1);
        assert_eq!((up.delay, up.limit), (Duration::from_millis(5), Some(10)));
        assert!(with_toxics(Flow::PASS, &toxics, Direction::ToClient, 1).is_pass());
    }
}
