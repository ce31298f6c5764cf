//! The drawing of a violation from its history: the operations of the proof, their calls and answers, and the answer that is impossible.

use crate::finding::Violation;
use crate::history::event::Kind;
use crate::history::names::{FastSet, NONE};
use crate::history::{F, History};
use crate::linearizability::{DeadEnd, dead_end};
use crate::model::Model;
use crate::order_drawing::{DrawnOperation, OrderDrawing};

/// The largest number of operations in a drawing.
const MAX_DRAWN: usize = 60;

impl OrderDrawing {
    /// Draws the operations of a violation's proof; `None` if it has none. `model` is the one of the verdict.
    pub fn of_violation(history: &History, model: &Model, violation: &Violation) -> Option<Self> {
        let wanted: FastSet<u64> = violation.events.iter().map(|event| event.index).collect();
        let mut calls: Vec<u32> = Vec::new();
        for position in (0..history.len() as u32).filter(|position| wanted.contains(&history.index(*position))) {
            let event = history.event(position);
            let is_client = (event.process as usize) < history.processes.len();
            let is_told = event.f.is_operation() || matches!(event.f, F::Lost | F::Died);
            if is_client && is_told {
                calls.push(if event.kind == Kind::Invoke || event.mate == NONE {
                    position
                } else {
                    event.mate
                });
            }
        }
        calls.sort_unstable();
        calls.dedup();
        calls.drain(..calls.len().saturating_sub(MAX_DRAWN));
        let last = calls.iter().copied().max_by_key(|call| ended(history, *call))?;
        let lock = history.locks().position(|name| name == violation.lock)?;
        let end = Some(violation).filter(|violation| violation.class == "no-order");
        let end = end.and_then(|_| dead_end(history, model, lock, &calls));
        let end = end.unwrap_or(DeadEnd {
            order: Vec::new(),
            states: Vec::new(),
            call: last,
        });
        let drawn = calls.iter().map(|call| {
            let event = history.event(*call);
            let is_signal = event.kind == Kind::Signal;
            let replied = (event.mate != NONE || is_signal).then(|| ended(history, *call));
            let known = history.reply(event).is_none_or(|reply| reply.kind != Kind::Info);
            DrawnOperation {
                lane: history.who(event.process),
                text: words(history, *call),
                call: history.instant(*call),
                reply: replied.filter(|_| known),
                turn: end.order.iter().position(|other| other == call).map(|turn| turn + 1),
                impossible: *call == end.call,
                needed: true,
            }
        });
        let title = format!("{} {}", violation.id, violation.summary);
        Some(Self::new(title, drawn.collect(), end.states))
    }
}

/// Returns the time of an operation's answer, or of its call if it has none.
fn ended(history: &History, call: u32) -> u64 {
    match history.event(call).mate {
        NONE => history.instant(call),
        reply => history.instant(reply),
    }
}

/// Returns the words of an operation: `write 2: ok`, `read: 3`, `acquire: ok, token 41`, `release: not held`.
fn words(history: &History, call: u32) -> String {
    let event = history.event(call);
    let reply = history.reply(event);
    let value = |value: Option<u64>| value.map_or_else(|| "nothing".to_owned(), |value| history.value_text(value));
    let asked = history.rare(event);
    let answered = reply.map(|reply| history.rare(reply)).unwrap_or_default();
    let ask = match event.f {
        F::Write => format!("write {}", value(asked.value)),
        F::Cas => format!("cas {} to {}", value(asked.expected), value(asked.value)),
        f => f.name().to_owned(),
    };
    let answer = match reply.map(|reply| (reply.kind, reply)) {
        _ if event.kind == Kind::Signal => return ask,
        None | Some((Kind::Info, _)) => "unknown".to_owned(),
        Some((Kind::Fail, _)) => history.name(answered.error).unwrap_or("failed").to_owned(),
        Some(_) if event.f == F::Read => value(answered.value),
        Some((_, reply)) => match history.token(reply) {
            Some(token) => format!("ok, token {token}"),
            None => "ok".to_owned(),
        },
    };
    format!("{ask}: {answer}")
}
