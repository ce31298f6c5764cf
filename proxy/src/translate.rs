//! Translation of the behaviours of links into toxics, where a Toxiproxy has them. Pure: a plan asks it before anything is started.

use std::time::Duration;

use super::behaviour::{Behaviour, Flow};
use super::direction::Direction;
use super::toxic::{Toxic, ToxicKind};

/// Returns the toxics with the effect of `behaviour`, or a stronger one; `reset_on_heal` says whether the plan resets connections then. The
/// error says why there are none.
///
/// A stall that resumes is a bandwidth of 0, which loses nothing. One that ends with a reset is a `timeout` of 0, which
/// swallows what comes and, when it is taken away, closes the connections.
pub fn toxics_for(behaviour: &Behaviour, reset_on_heal: bool) -> Result<Vec<Toxic>, String> {
    let mut toxics = Vec::new();
    for stream in Direction::BOTH {
        let kinds = of_flow(stream.of(behaviour), reset_on_heal)?;
        toxics.extend(kinds.into_iter().map(|kind| Toxic::new(kind, stream)));
    }
    if let Some(after) = behaviour.cut.after {
        // on the way back, so that requests arrive and their answers are lost
        let reset = ToxicKind::ResetPeer {
            timeout: whole_ms(after),
        };
        toxics.push(Toxic::new(reset, Direction::ToClient));
    }
    if let Some(bytes) = behaviour.cut.after_bytes {
        // a limit is for one stream: half of it each, so that no connection lives longer than planned
        let limit = ToxicKind::LimitData {
            bytes: i64::from(bytes / 2),
        };
        toxics.extend(Direction::BOTH.map(|stream| Toxic::new(limit, stream)));
    }
    Ok(toxics)
}

/// Returns the words of a plan: `bandwidth upstream rate=0, timeout downstream timeout=0`.
pub fn in_words(toxics: &[Toxic]) -> String {
    let word = |toxic: &Toxic| {
        let attributes = toxic.kind.attributes();
        let given = attributes.as_object().into_iter().flatten();
        let mut given: Vec<String> = given.map(|(name, value)| format!(" {name}={value}")).collect();
        given.sort_unstable();
        format!("{}{}", toxic.kind.name(), given.concat())
    };
    let remark = |toxic: &Toxic| match toxic.kind {
        ToxicKind::Timeout { .. } => " (what is sent is lost, and the heal closes connections)",
        ToxicKind::ResetPeer { .. } => " (answers are lost, then the connection ends)",
        _ => "",
    };
    let both = |toxic: &Toxic| toxics.iter().filter(|other| other.kind == toxic.kind).count() == 2;
    let mut words = Vec::new();
    for toxic in toxics {
        let streams = if both(toxic) { "both ways" } else { toxic.stream.name() };
        let said = format!("{} {streams}{}", word(toxic), remark(toxic));
        if !words.contains(&said) {
            words.push(said);
        }
    }
    words.join(", ")
}

fn of_flow(flow: &Flow, reset_on_heal: bool) -> Result<Vec<ToxicKind>, String> {
    let known = Flow {
        stall: flow.stall,
        // a Toxiproxy acknowledges what it holds back
        blackhole: flow.blackhole,
        delay: flow.delay,
        jitter: flow.jitter,
        bytes_per_second: flow.bytes_per_second,
        slice: flow.slice,
        ..Flow::PASS
    };
    if known != *flow {
        return Err("Toxiproxy has no toxic for it".into());
    }
    let mut kinds = Vec::new();
    if flow.stall {
        kinds.push(if reset_on_heal {
            ToxicKind::Timeout { timeout: 0 }
        } else {
            ToxicKind::Bandwidth { rate: 0 }
        });
    }
    if !flow.delay.is_zero() || !flow.jitter.is_zero() {
        kinds.push(ToxicKind::Latency {
            latency: whole_ms(flow.delay),
            jitter: whole_ms(flow.jitter),
        });
    }
    if let Some(rate) = flow.bytes_per_second {
        if rate < 1000 {
            return Err(format!(
                "Toxiproxy counts bandwidth in whole kB a second, and {rate} bytes a second is less than one"
            ));
        }
        kinds.push(ToxicKind::Bandwidth {
            rate: i64::from(rate / 1000),
        });
    }
    if let Some(slice) = flow.slice {
        kinds.push(ToxicKind::Slicer {
            average_size: i64::from(slice.size),
            size_variation: i64::from(slice.variation),
            delay: slice.gap.as_micros() as i64,
        });
    }
    Ok(kinds)
}

/// Rounds up to whole milliseconds, Toxiproxy's unit, so that nothing gets weaker.
fn whole_ms(duration: Duration) -> i64 {
    duration.as_micros().div_ceil(1000) as i64
}

#[cfg(test)]
mod tests {
    use super::super::behaviour::{Cut, Slice};
    use super::*;

    fn words(behaviour: Behaviour, reset_on_heal: bool) -> String {
        in_words(&toxics_for(&behaviour, reset_on_heal).unwrap())
    }

    #[test]
    fn a_partition_that_resumes_loses_nothing_and_one_that_resets_does() {
        assert_eq!(words(Behaviour::STALL, false), "bandwidth rate=0 both ways");
        assert_eq!(words(Behaviour::BLACKHOLE, false), "bandwidth rate=0 both ways");
        assert_eq!(
            words(Behaviour::STALL, true),
            "timeout timeout=0 both ways (what is sent is lost, and the heal closes connections)"
        );
        let one_way = Behaviour::each_way(Flow::PASS, Flow::STALL);
        assert_eq!(words(one_way, false), "bandwidth rate=0 downstream");
    }

    #[test]
    fn nothing_gets_weaker_on_the_way() {
        let flow = Flow {
            delay: Duration::from_micros(1_200),
            jitter: Duration::from_micros(300),
            bytes_per_second: Some(4_900),
            ..Flow::PASS
        };
        let said = words(Behaviour::both(flow), false);
        assert_eq!(said, "latency jitter=1 latency=2 both ways, bandwidth rate=4 both ways");
        let cut = Cut {
            after: Some(Duration::from_millis(500)),
            after_bytes: Some(3001),
        };
        let cut = Behaviour {
            cut,
            ..Behaviour::both(Flow::sliced(Slice::of(9)))
        };
        let said = words(cut, false);
        assert!(said.contains("reset_peer timeout=500 downstream"), "{said}");
        assert!(said.contains("limit_data bytes=1500 both ways"), "{said}");
        assert!(said.contains("slicer average_size=9 delay=500"), "{said}");
    }

    #[test]
    fn what_toxiproxy_cannot_do_is_refused_with_the_reason() {
        let slow = Behaviour::both(Flow::slowed(999));
        assert!(toxics_for(&slow, false).unwrap_err().contains("whole kB"));
        let frozen = Behaviour::both(Flow::FREEZE);
        assert!(toxics_for(&frozen, false).is_err());
    }
}
