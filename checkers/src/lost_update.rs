//! HL008, lost update: what happened to the numbers of an application that trusted the lock.
//!
//! Every holder reads the plain register and writes what it read plus one. Only writes inside the writer's certain hold
//! count: one that was told of its loss and writes all the same is the application's fault, and goes into a note.

use crate::check::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::F;
use crate::history::names::NONE;
use crate::limits;
use crate::story::{at, finding, many, thousands, violated};

/// One increment: a read and the write that rests on it.
#[derive(Debug, Clone, Copy)]
struct Increment {
    process: u32,
    /// The position of the reply of the read; `NONE` when the history has none.
    read: u32,
    /// The position of the reply of the write.
    write: u32,
    value: u64,
    /// The position of the reply that began the writer's hold; `NONE` when it did not hold for certain.
    got: u32,
}

/// A write that undid another, or a read in the midst of somebody's increment.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Lost {
        victim: Increment,
        culprit: Increment,
    },
    TwoInside {
        reader: u32,
        read: u32,
        reader_got: u32,
        increment: Increment,
    },
}

#[derive(Debug, Default)]
struct Walk {
    increments: u64,
    last_value: u64,
    outside: u64,
    lost: u64,
    two_inside: u64,
    damage: Vec<(usize, Damage)>,
}

/// The finding of HL008.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    if context.history.counts.writes == 0 {
        return finding(
            Property::Hl008,
            Verdict::NotApplicable,
            "no guarded register in this history",
        );
    }
    if !context.model.is_lock() {
        return finding(
            Property::Hl008,
            Verdict::NotApplicable,
            "the register is not guarded by a lock",
        );
    }
    let walk = walk(context);
    let mut answer = if walk.damage.is_empty() {
        let increments = many(walk.increments, "increment", "increments");
        let evidence = format!("{increments}, register at {}", thousands(walk.last_value));
        finding(Property::Hl008, Verdict::Holds, evidence)
    } else {
        let described = walk.damage.iter().take(limits::MAX_VIOLATIONS);
        let violations = described
            .map(|(lock, damage)| describe(context, *lock, damage))
            .collect();
        let lost = many(walk.lost, "update", "updates");
        let mut evidence = format!("{lost} lost of {}", many(walk.increments, "increment", "increments"));
        if walk.two_inside > 0 {
            evidence.push_str(&format!(
                ", {} two holders inside",
                many(walk.two_inside, "read saw", "reads saw")
            ));
        }
        violated(Property::Hl008, evidence, violations, walk.damage.len() as u64)
    };
    answer.figures.insert("increments".into(), walk.increments as f64);
    answer.figures.insert("lost_updates".into(), walk.lost as f64);
    answer.figures.insert("two_inside".into(), walk.two_inside as f64);
    answer
        .figures
        .insert("writes_outside_a_hold".into(), walk.outside as f64);
    answer
}

/// A sentence on writes that do not count, when there are any.
pub(crate) fn note(context: &Context<'_>) -> Option<String> {
    if context.history.counts.writes == 0 || !context.model.is_lock() {
        return None;
    }
    let outside = walk(context).outside;
    let writes = many(outside, "write was", "writes were");
    (outside > 0).then(|| {
        format!(
            "{writes} called outside a certain hold and {} not counted in HL008",
            if outside == 1 { "is" } else { "are" }
        )
    })
}

fn walk(context: &Context<'_>) -> Walk {
    let history = context.history;
    let mut walk = Walk::default();
    let mut last: Vec<Option<Increment>> = vec![None; history.locks.len()];
    let mut last_write_of_lock: Vec<u64> = vec![0; history.locks.len()];
    let mut reads: Vec<u32> = vec![NONE; history.processes.len()];
    // Reads since the last write of each lock, for "two inside".
    let mut recent: Vec<Vec<u32>> = vec![Vec::new(); history.locks.len()];
    for (position, event) in history.events.iter().enumerate() {
        let Some(lock) = history.lock_number(event) else {
            continue;
        };
        let position = position as u32;
        if event.is_ok(F::Acquire) {
            reads[event.process as usize] = NONE;
        } else if event.is_ok(F::Read) {
            reads[event.process as usize] = position;
            recent[lock].push(position);
        } else if event.is_ok(F::Write) {
            let call = &history.events[event.mate as usize];
            let Some(value) = history.rare(event).value.or(history.rare(call).value) else {
                continue;
            };
            let hold = context.holds.around(lock, event.process, history.instant(event.mate));
            let read = std::mem::replace(&mut reads[event.process as usize], NONE);
            let got = hold.map_or(NONE, |hold| hold.got);
            let increment = Increment {
                process: event.process,
                read,
                write: position,
                value,
                got,
            };
            walk.step(context, lock, increment, last[lock], &recent[lock]);
            recent[lock].retain(|read| {
                let reader = history.events[*read as usize].process;
                reader != event.process && reads[reader as usize] == *read
            });
            last_write_of_lock[lock] = last_write_of_lock[lock].max(value);
            last[lock] = Some(increment);
        }
    }
    walk.last_value = last_write_of_lock.iter().sum();
    walk
}

impl Walk {
    fn step(
        &mut self,
        context: &Context<'_>,
        lock: usize,
        increment: Increment,
        last: Option<Increment>,
        recent: &[u32],
    ) {
        if increment.got == NONE {
            self.outside += 1;
            return;
        }
        self.increments += 1;
        if let Some(culprit) = last.filter(|last| increment.value <= last.value && last.process != increment.process) {
            if culprit.got != NONE {
                self.lost += 1;
                self.damage.push((
                    lock,
                    Damage::Lost {
                        victim: culprit,
                        culprit: increment,
                    },
                ));
            }
            return;
        }
        // Nobody else may have read between this increment's read and its write.
        let history = context.history;
        for read in recent
            .iter()
            .filter(|read| increment.read != NONE && **read > increment.read)
        {
            let reader = &history.events[*read as usize];
            if reader.process == increment.process || *read > history.events[increment.write as usize].mate {
                continue;
            }
            if let Some(hold) = context.holds.around(lock, reader.process, history.instant(*read)) {
                self.two_inside += 1;
                let reader_got = hold.got;
                let damage = Damage::TwoInside {
                    reader: reader.process,
                    read: *read,
                    reader_got,
                    increment,
                };
                self.damage.push((lock, damage));
            }
        }
    }
}

fn describe(context: &Context<'_>, lock: usize, damage: &Damage) -> Violation {
    match damage {
        Damage::Lost { victim, culprit } => lost(context, lock, victim, culprit),
        Damage::TwoInside {
            reader,
            read,
            reader_got,
            increment,
        } => inside(context, lock, (*reader, *read, *reader_got), increment),
    }
}

fn lost(context: &Context<'_>, lock: usize, victim: &Increment, culprit: &Increment) -> Violation {
    let history = context.history;
    let (a, b) = history.both(victim.process, culprit.process);
    let time = |position: u32| history.events[position as usize].time;
    let processes = [victim.process, culprit.process];
    let mut violation = history.violation("lost-update", lock, &processes, time(culprit.write));
    violation.window = context.window_before(time(culprit.write)).map(|window| window.number);
    let value = culprit.value;
    violation.summary = format!(
        "{b} wrote {value} over the {} of {a}: an increment was lost",
        victim.value
    );
    if culprit.read != NONE {
        violation.events.push(history.step(culprit.read, "read the register"));
    }
    violation
        .events
        .push(history.step(victim.write, format!("wrote {}", victim.value)));
    violation
        .events
        .push(history.step(culprit.write, format!("wrote {value}")));
    if culprit.read != NONE {
        let text = format!("{b} read the register at {}.", at(time(culprit.read), true));
        violation.because.push(history.because(text, &[culprit.read]));
    }
    let text = format!("{a} wrote {} at {}.", victim.value, at(time(victim.write), true));
    violation.because.push(history.because(text, &[victim.write]));
    let text = format!(
        "{b} wrote {value} at {}, from what it had read before.",
        at(time(culprit.write), true)
    );
    violation.because.push(history.because(text, &[culprit.write]));
    violation.follows = context.root_of(victim.got).or_else(|| context.root_of(culprit.got));
    violation
}

fn inside(context: &Context<'_>, lock: usize, reader: (u32, u32, u32), increment: &Increment) -> Violation {
    let history = context.history;
    let (process, read, got) = reader;
    let (a, b) = history.both(increment.process, process);
    let time = |position: u32| history.events[position as usize].time;
    let mut violation = history.violation("two-inside", lock, &[increment.process, process], time(read));
    violation.window = context.window_before(time(read)).map(|window| window.number);
    violation.summary = format!(
        "{b} read the register of `{}` in the midst of {a}'s increment",
        violation.lock
    );
    violation.events.push(history.step(increment.read, "read the register"));
    violation.events.push(history.step(read, "read it, too"));
    violation
        .events
        .push(history.step(increment.write, format!("wrote {}", increment.value)));
    let text = format!("{a} read the register at {}.", at(time(increment.read), true));
    violation.because.push(history.because(text, &[increment.read]));
    let text = format!("{b} read it at {}, before {a} wrote.", at(time(read), true));
    violation.because.push(history.because(text, &[read]));
    violation.follows = context.root_of(got).or_else(|| context.root_of(increment.got));
    violation
}
