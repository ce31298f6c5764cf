//! HL008 in words: the increments that were lost, and the holders that wrote at the same time.

use super::{at, finding, many, thousands, violated};
use crate::context::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::lost_update::{Damage, Increment, InnerReader, Updates};

pub(crate) fn tell(context: &Context<'_>, decided: &Updates) -> Finding {
    let increments = many(decided.increments, "increment", "increments");
    let said = |evidence: &str| finding(Property::Hl008, decided.verdict, evidence);
    let mut told = match decided.verdict {
        Verdict::Violated => {
            let violations = decided.damage.iter().map(|damage| describe(context, damage));
            let lost = many(decided.lost, "update", "updates");
            let mut evidence = format!("{lost} lost of {increments}");
            if decided.two_inside > 0 {
                evidence.push_str(&format!(
                    ", {} two holders inside",
                    many(decided.two_inside, "read saw", "reads saw")
                ));
            }
            violated(Property::Hl008, evidence, violations, decided.damage.len() as u64)
        }
        Verdict::NotApplicable if context.history.counts.writes == 0 => {
            return said("no guarded register in this history");
        }
        Verdict::NotApplicable if context.model.is_lock() => {
            return said("a semaphore with several permits does not guard the register");
        }
        Verdict::NotApplicable => return said("the register is not guarded by a lock"),
        Verdict::Holds | Verdict::Inconclusive => {
            let mut evidence = format!("{increments}, register at {}", thousands(decided.last_value));
            if decided.outside > 0 {
                let writes = many(decided.outside, "write", "writes");
                evidence += &format!(", after {writes} outside a certain hold, which may have undone others");
            }
            said(&evidence)
        }
    };
    told.figure("increments", decided.increments as f64);
    told.figure("lost_updates", decided.lost as f64);
    told.figure("two_inside", decided.two_inside as f64);
    told.figure("writes_outside_a_hold", decided.outside as f64);
    told
}

/// Returns a sentence on writes that do not count, if there are any.
pub(crate) fn note(decided: &Updates) -> Option<String> {
    let writes = many(decided.outside, "write was", "writes were");
    let are = if decided.outside == 1 { "is" } else { "are" };
    (decided.outside > 0).then(|| format!("{writes} called outside a certain hold and {are} not counted in HL008"))
}

fn describe(context: &Context<'_>, damage: &Damage) -> Violation {
    match damage {
        Damage::Lost { victim, culprit } => lost(context, victim, culprit),
        Damage::TwoInside { reader, increment } => inside(context, *reader, increment),
    }
}

fn lost(context: &Context<'_>, victim: &Increment, culprit: &Increment) -> Violation {
    let history = context.history;
    let (a, b) = history.both(victim.process, culprit.process);
    let time = |position: u32| history.event(position).time;
    let processes = [victim.process, culprit.process];
    let mut violation = context.violation("lost-update", victim.lock, &processes, time(culprit.write));
    let [before, value] = [victim, culprit].map(|increment| history.value_text(increment.value));
    violation.summary = format!("{b} overwrote the value {before} of {a} with {value}: an increment was lost");
    let text = format!("{b} read the register at {}.", at(time(culprit.read)));
    violation.step(history, culprit.read, "read the register", text);
    let text = format!("{a} wrote {before} at {}.", at(time(victim.write)));
    violation.step(history, victim.write, format!("wrote {before}"), text);
    let when = at(time(culprit.write));
    let text = format!("{b} wrote {value} at {when}, from its earlier read.");
    violation.step(history, culprit.write, format!("wrote {value}"), text);
    violation.follows = context.root_of(victim.got).or_else(|| context.root_of(culprit.got));
    violation
}

fn inside(context: &Context<'_>, reader: InnerReader, increment: &Increment) -> Violation {
    let history = context.history;
    let InnerReader { process, read, got } = reader;
    let (a, b) = history.both(increment.process, process);
    let time = |position: u32| history.event(position).time;
    let processes = [increment.process, process];
    let mut violation = context.violation("two-inside", increment.lock, &processes, time(read));
    let lock = &violation.lock;
    violation.summary = format!("{b} read the register of `{lock}` during the increment of {a}");
    let value = history.value_text(increment.value);
    violation.show(history, increment.write, format!("wrote {value}"));
    let text = format!("{a} read the register at {}.", at(time(increment.read)));
    violation.step(history, increment.read, "read the register", text);
    let text = format!("{b} read it at {}, before {a} wrote.", at(time(read)));
    violation.step(history, read, "read it, too", text);
    violation.follows = context.root_of(got).or_else(|| context.root_of(increment.got));
    violation
}
