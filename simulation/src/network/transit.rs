//! One direction of a connection ([`Transit`]): the messages on their way, and those that are due. Pure: the caller gives the time.
//!
//! A message keeps the time of its arrival at the link and one random draw. The time at which it is due follows from these and from the
//! current flow, as in the queues of the real proxy (`proxy/src/queue.rs`). So a fault that ends releases at once what it held. The order
//! of messages is kept, and nothing is lost but with the connection.

use std::collections::VecDeque;
use std::time::Duration;

use harness_proxy::Flow;

use super::message::DelayHolds;
use crate::world::nanoseconds;

/// The first retransmission timeout of Linux (`TCP_RTO_MIN`); it doubles each time.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// A slowed flow that could not send for a while makes up for at most this much of it; as `CATCH_UP` of the real proxy.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The way in which a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnding {
    /// The other side closed it, and everything that it sent before has arrived.
    Closed,
    /// It was reset: messages on their way are lost.
    Reset,
}

enum TransitItem<M> {
    Message {
        arrived: u64,
        draw: u64,
        bytes: usize,
        message: M,
    },
    /// Later items wait until then.
    Gate {
        until: u64,
        holds: DelayHolds,
    },
    End {
        arrived: u64,
        how: ConnectionEnding,
    },
}

/// The next step at the head of a transit.
pub(super) enum TransitDue<M> {
    /// Nothing, until something arrives or the flow changes.
    Nothing,
    /// Nothing before this time.
    At(u64),
    Message(M, usize),
    End(ConnectionEnding),
}

pub(super) struct Transit<M> {
    items: VecDeque<TransitItem<M>>,
    /// The time at which the connection began.
    began: u64,
    /// The time at which the last item arrived.
    last_arrival: u64,
    /// A slowed flow has used up its time until here.
    paced_until: u64,
    /// The arrival of the first message that a blackhole dropped and that was not sent again yet.
    dropped_since: Option<u64>,
    /// Nothing passes before the sender retransmits.
    retransmitted_at: u64,
    /// Whether its end has been put in: nothing more is taken.
    ended: bool,
}

impl<M> Transit<M> {
    pub fn new(began: u64) -> Self {
        Transit {
            items: VecDeque::new(),
            began,
            last_arrival: began,
            paced_until: began,
            dropped_since: None,
            retransmitted_at: 0,
            ended: false,
        }
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether this flow resets a connection that carried nothing for so long.
    pub fn is_forgotten(&self, now: u64, flow: &Flow) -> bool {
        let idle = now.saturating_sub(self.last_arrival);
        flow.forget_after.is_some_and(|limit| idle > nanoseconds(limit))
    }

    /// Puts in a message that arrives at `at`, or after the one before it. Returns whether `flow` delays this one and not all.
    pub fn push(&mut self, at: u64, flow: &Flow, draw: u64, bytes: usize, message: M) -> bool {
        let arrived = self.arrival(at);
        if flow.blackhole {
            self.dropped_since.get_or_insert(arrived);
        }
        self.items.push_back(TransitItem::Message {
            arrived,
            draw,
            bytes,
            message,
        });
        let may_delay_this = flow.loss.is_some() || flow.bursts.is_some();
        may_delay_this && flow.delays_this(Duration::from_nanos(arrived - self.began), draw)
    }

    pub fn push_gate(&mut self, until: u64, holds: DelayHolds) {
        self.items.push_back(TransitItem::Gate { until, holds });
    }

    /// Puts in the end: the sender ends its stream, or the link ends the connection here.
    pub fn push_end(&mut self, at: u64, how: ConnectionEnding) {
        if !std::mem::replace(&mut self.ended, true) {
            let arrived = self.arrival(at);
            self.items.push_back(TransitItem::End { arrived, how });
        }
    }

    fn arrival(&mut self, at: u64) -> u64 {
        self.last_arrival = self.last_arrival.max(at);
        self.last_arrival
    }

    /// Drops the messages on their way.
    pub fn clear(&mut self) {
        self.ended = true;
        self.items.clear();
    }

    /// Lifts the gates whose delays do not go on.
    pub fn open_gates(&mut self) {
        self.items.retain(|item| match item {
            TransitItem::Gate { holds, .. } => holds(),
            _ => true,
        });
    }

    /// Notes a change of the flow. Returns how many packets were dropped since the last one, retransmissions among them.
    pub fn flow_changed(&mut self, now: u64, flow: &Flow) -> u64 {
        self.paced_until = now;
        if flow.blackhole {
            return 0;
        }
        let Some(since) = self.dropped_since.take() else {
            return 0;
        };
        let mut timeout = nanoseconds(RETRANSMISSION);
        let mut again = since + timeout;
        let mut dropped = 0;
        while again < now {
            timeout *= 2;
            again += timeout;
            dropped += 1;
        }
        self.retransmitted_at = again;
        dropped
    }

    /// Takes out the head, if it is due.
    pub fn take_due(&mut self, now: u64, flow: &Flow) -> TransitDue<M> {
        loop {
            let at = match self.items.front() {
                None => return TransitDue::Nothing,
                Some(_) if flow.stall => return TransitDue::Nothing,
                Some(TransitItem::Message { .. }) if flow.freeze => return TransitDue::Nothing,
                Some(TransitItem::Message {
                    arrived, draw, bytes, ..
                }) => self.due_at(*arrived, *draw, *bytes, flow),
                Some(TransitItem::Gate { until, .. }) => *until,
                Some(TransitItem::End { arrived, .. }) => *arrived + nanoseconds(flow.end_delay),
            };
            let at = at.max(self.retransmitted_at);
            if at > now {
                return TransitDue::At(at);
            }
            match self.items.pop_front() {
                Some(TransitItem::Message { bytes, message, .. }) => {
                    if is_paced(flow) {
                        self.paced_until = at.max(now.saturating_sub(nanoseconds(CATCH_UP)));
                    }
                    return TransitDue::Message(message, bytes);
                }
                Some(TransitItem::End { how, .. }) => return TransitDue::End(how),
                Some(TransitItem::Gate { .. }) | None => {}
            }
        }
    }

    /// Returns how long the flow holds a message back. Most pass as they come.
    fn delay(&self, arrived: u64, draw: u64, flow: &Flow) -> Duration {
        if flow.loss.is_none() && flow.bursts.is_none() && flow.jitter.is_zero() {
            return flow.delay;
        }
        flow.delay_of(Duration::from_nanos(arrived - self.began), draw)
    }

    fn due_at(&self, arrived: u64, draw: u64, bytes: usize, flow: &Flow) -> u64 {
        let due = arrived + nanoseconds(self.delay(arrived, draw, flow));
        if !is_paced(flow) {
            return due;
        }
        due.max(self.paced_until) + transfer_time(bytes, flow)
    }
}

fn is_paced(flow: &Flow) -> bool {
    flow.bytes_per_second.is_some() || flow.slice.is_some()
}

/// Returns how long a message takes until its last byte is there, in nanoseconds.
fn transfer_time(bytes: usize, flow: &Flow) -> u64 {
    let bytes = bytes as u64;
    let by_rate = flow
        .bytes_per_second
        .map_or(0, |rate| bytes * 1_000_000_000 / u64::from(rate.max(1)));
    let by_slices = flow.slice.map_or(0, |slice| {
        bytes.div_ceil(u64::from(slice.size.max(1))) * nanoseconds(slice.gap)
    });
    by_rate.max(by_slices)
}

#[cfg(test)]
mod tests {
    use harness_proxy::{Loss, Slice};

    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns the messages that are due by `now`, and when the next is.
    fn drain(transit: &mut Transit<u32>, now: u64, flow: &Flow) -> (Vec<u32>, Option<u64>) {
        let mut out = Vec::new();
        loop {
            match transit.take_due(now, flow) {
                TransitDue::Message(message, _) => out.push(message),
                TransitDue::At(at) => return (out, Some(at)),
                TransitDue::Nothing | TransitDue::End(_) => return (out, None),
            }
        }
    }

    #[test]
    fn order_is_kept_whatever_each_message_is_delayed_and_a_heal_releases_all() {
        let jitter = Flow {
            delay: Duration::from_millis(50),
            jitter: Duration::from_millis(50),
            ..Flow::PASS
        };
        let mut transit = Transit::new(0);
        for (number, draw) in [u64::MAX, 0, u64::MAX / 2].into_iter().enumerate() {
            transit.push(number as u64, &jitter, draw, 10, number as u32);
        }
        assert!(drain(&mut transit, 99 * MS, &jitter).0.is_empty());
        assert_eq!(drain(&mut transit, 101 * MS, &jitter).0, [0, 1, 2]);
        transit.push(102 * MS, &jitter, u64::MAX, 10, 3);
        assert!(drain(&mut transit, 103 * MS, &Flow::STALL).0.is_empty());
        assert_eq!(drain(&mut transit, 103 * MS, &Flow::PASS).0, [3]);
    }

    #[test]
    fn what_a_blackhole_dropped_comes_when_the_sender_retransmits_and_not_at_the_heal() {
        let mut transit = Transit::new(0);
        transit.flow_changed(0, &Flow::BLACKHOLE);
        transit.push(10 * MS, &Flow::BLACKHOLE, 0, 10, 1);
        // at 210 and 610 ms into the blackhole
        assert_eq!(transit.flow_changed(1000 * MS, &Flow::PASS), 2);
        transit.push(1001 * MS, &Flow::PASS, 0, 10, 2);
        assert_eq!(drain(&mut transit, 1400 * MS, &Flow::PASS), (vec![], Some(1410 * MS)));
        assert_eq!(drain(&mut transit, 1410 * MS, &Flow::PASS).0, [1, 2]);
    }

    #[test]
    fn a_slow_link_sends_one_after_the_other() {
        let slow = Flow::slowed(1000);
        let mut transit = Transit::new(0);
        transit.push(0, &slow, 0, 100, 1);
        transit.push(0, &slow, 0, 50, 2);
        assert_eq!(drain(&mut transit, 0, &slow), (vec![], Some(100 * MS)));
        assert_eq!(drain(&mut transit, 100 * MS, &slow), (vec![1], Some(150 * MS)));
        assert_eq!(drain(&mut transit, 150 * MS, &slow).0, [2]);
        let sliced = Flow::sliced(Slice::of(10));
        let mut transit = Transit::new(0);
        transit.push(0, &sliced, 0, 95, 1);
        assert_eq!(drain(&mut transit, 0, &sliced).1, Some(5 * MS));
    }

    #[test]
    fn an_end_comes_behind_the_data_and_a_lost_packet_delays_what_follows() {
        let lossy = Flow::lossy(Loss {
            per_mille: 1000,
            timeout: Duration::from_millis(200),
        });
        let mut transit = Transit::new(0);
        assert!(transit.push(0, &lossy, 7, 10, 1), "this one is delayed");
        transit.push_end(1, ConnectionEnding::Closed);
        assert!(matches!(transit.take_due(MS, &lossy), TransitDue::At(_)));
        assert!(matches!(transit.take_due(2, &Flow::PASS), TransitDue::Message(1, 10)));
        assert!(matches!(
            transit.take_due(2, &Flow::PASS),
            TransitDue::End(ConnectionEnding::Closed)
        ));
    }
}
