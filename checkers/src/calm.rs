//! Calm spans: the times in which no fault excuses a lock that makes no progress.
//!
//! A fault is an excuse until it is healed. A fault of one moment, on a message or a kill, is healed when it is done. A fault on a minority
//! of the servers is no excuse, since the others serve.

use std::collections::BTreeSet;

use crate::context::{CalmSpan, Context};
use crate::history::{EffectCounters, NemesisFact, Role, Window};
use crate::limits;

/// Returns the calm spans of a history, sorted and disjoint.
pub(crate) fn spans<'a>(context: &'a Context<'_>) -> &'a [CalmSpan] {
    context.calm.get_or_init(|| {
        let undisturbed = context.windows.is_empty();
        let resent_until = resent_until(context);
        let calm = between(context, excuses(context)).into_iter();
        let spans = calm.map(|(from_ns, to_ns)| CalmSpan {
            from_ns,
            to_ns,
            patience_ns: match undisturbed {
                true => 0,
                false => context.longest_lease_ns() + outlives_ns(context, from_ns),
            },
            retransmission_ns: resent_for_ns(&resent_until, from_ns),
        });
        spans.collect()
    })
}

/// Returns the span after the last heal, if there was one: the recovery has waited for the effects of the faults.
pub(crate) fn after_every_heal(context: &Context<'_>, healed_ns: u64) -> Option<CalmSpan> {
    let to_ns = context.history.end_ns;
    let stood_still = context.standstills_in(healed_ns, to_ns).next().is_some();
    (!context.windows.is_empty() && !stood_still).then(|| CalmSpan {
        from_ns: healed_ns,
        to_ns,
        patience_ns: outlives_ns(context, healed_ns),
        retransmission_ns: retransmission_ns(context, healed_ns),
    })
}

/// Returns the spans in which windows excuse a lock that makes no progress.
fn excuses(context: &Context<'_>) -> Vec<(u64, u64)> {
    let servers = ServerNames::of(context);
    let mut excuses: Vec<(u64, u64)> = Vec::new();
    let mut minorities = Vec::new();
    for window in &context.windows {
        let heal_ns = context.heal_ns(window).unwrap_or(u64::MAX);
        match moment_ns(window) {
            Some(DoneAt::Time(ns)) => excuses.push((ns, ns)),
            Some(DoneAt::From(ns)) => excuses.push((ns, heal_ns)),
            Some(DoneAt::Never) => {}
            None => match servers.minority_of(window) {
                Some(away) => {
                    excuses.push((window.start_ns, window.start_ns));
                    minorities.push((heal_ns, away));
                }
                None => excuses.push((window.began_ns(), heal_ns)),
            },
        }
    }
    excuses.extend(servers.without_majority(minorities));
    excuses
}

/// Returns the longest time by which an entry outlives its lease, in nanoseconds, of those that exist at a time. If a server's wall clock
/// was ahead when it set the deadline, and is stepped back since, the deadline is late by as much.
pub(crate) fn outlives_ns(context: &Context<'_>, ns: u64) -> u64 {
    let windows = context.windows.iter();
    let of_servers =
        windows.filter(|window| window.fault == "clock" && !window.is_of_clients() && window.start_ns <= ns);
    let until_ns = of_servers.filter_map(|window| Some(context.heal_ns(window)?.saturating_add(ahead_ns(window))));
    until_ns.max().unwrap_or(0).saturating_sub(ns)
}

/// Returns the nanoseconds by which a window stepped a clock forward; the longest possible lease if the window does not record them.
fn ahead_ns(window: &Window) -> u64 {
    let forward = |step_ms: i64| u64::try_from(step_ms).unwrap_or(0);
    limits::ns(window.started.clock_step_ms.map_or(limits::MOST_LEASE_MS, forward))
}

/// Returns the spans without a fault on a server. A server remembers its answers of such a span, even those that are lost on the way.
pub(crate) fn serving(context: &Context<'_>) -> Vec<(u64, u64)> {
    let others = context.windows.iter().filter(|window| !window.is_of_clients());
    let excuses = others.map(|window| (window.began_ns(), context.heal_ns(window).unwrap_or(u64::MAX)));
    between(context, excuses.collect())
}

/// Returns the spans outside of the excuses: windows, unplanned faults and standstills, up to the end of the history.
fn between(context: &Context<'_>, mut excuses: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let end_ns = context.history.end_ns;
    excuses.extend(unplanned(context));
    excuses.extend(context.standstills.iter().map(|span| (span.earliest_ns(), span.to_ns)));
    excuses.sort_unstable();
    let mut calm = Vec::new();
    let mut from_ns = 0;
    for (start_ns, heal_ns) in excuses {
        if start_ns > from_ns {
            calm.push((from_ns, start_ns));
        }
        from_ns = from_ns.max(heal_ns);
    }
    if from_ns < end_ns {
        calm.push((from_ns, end_ns));
    }
    calm
}

/// Returns the time for which a connection may stay silent after a heal because of TCP. A sender whose packets are dropped doubles its wait
/// before each retransmission ([RFC 6298], 5.5), so the retransmission after the heal comes at most one length of the window later.
///
/// [RFC 6298]: https://www.rfc-editor.org/rfc/rfc6298#section-5
pub(crate) fn retransmission_ns(context: &Context<'_>, healed_ns: u64) -> u64 {
    resent_for_ns(&resent_until(context), healed_ns)
}

/// Returns the latest retransmission of packets that windows dropped, by heal: of all windows that were healed by then.
fn resent_until(context: &Context<'_>) -> Vec<(u64, u64)> {
    let until = |window: &Window| {
        let counters = [EffectCounters::DROPPED_PACKETS, EffectCounters::HELD_CONNECTS];
        let dropped = window.healed.as_ref()?.evidence.sum(counters) > 0;
        let heal_ns = window.heal_ns.filter(|_| dropped)?;
        Some((heal_ns, heal_ns + heal_ns.saturating_sub(window.start_ns)))
    };
    let mut until: Vec<(u64, u64)> = context.windows.iter().filter_map(until).collect();
    until.sort_unstable();
    let mut latest = 0;
    for (_, until_ns) in &mut until {
        latest = latest.max(*until_ns);
        *until_ns = latest;
    }
    until
}

/// Returns the remaining time in which TCP may still retransmit, from a time on.
fn resent_for_ns(until: &[(u64, u64)], ns: u64) -> u64 {
    let healed = until.partition_point(|(heal_ns, _)| *heal_ns <= ns);
    let latest = healed.checked_sub(1).map_or(0, |last| until[last].1);
    latest.saturating_sub(ns)
}

/// Returns the calm span that contains a whole interval.
pub(crate) fn span_of<'a>(context: &'a Context<'_>, from_ns: u64, to_ns: u64) -> Option<&'a CalmSpan> {
    let spans = spans(context);
    let after = spans.partition_point(|span| span.from_ns <= from_ns);
    let span = &spans[after.checked_sub(1)?];
    (to_ns <= span.to_ns).then_some(span)
}

/// The time at which a fault of one moment took effect.
enum DoneAt {
    Time(u64),
    /// It delays a message from this time until it is healed.
    From(u64),
    /// No message matched.
    Never,
}

/// Returns `None` for a fault that lasts, or whose moment is not known.
fn moment_ns(window: &Window) -> Option<DoneAt> {
    if !window.is_on_message() {
        let is_kill = window.fault.starts_with("kill") && window.is_of_clients();
        return is_kill.then_some(DoneAt::Time(window.start_ns));
    }
    let healed = window.healed.as_ref()?;
    match &healed.matched {
        Some(message) if window.fault.starts_with("delay-") => Some(DoneAt::From(message.time_ns)),
        Some(message) if message.done => Some(DoneAt::Time(message.time_ns)),
        None if healed.missed.is_some() || healed.left_trace == Some(false) => Some(DoneAt::Never),
        _ => None,
    }
}

/// Returns the effects of no window of the plan: changes through the proxy API, until the recovery undoes them, and servers that ended.
fn unplanned(context: &Context<'_>) -> impl Iterator<Item = (u64, u64)> {
    let facts = context.history.nemesis();
    facts.iter().filter_map(move |line| match line.fact {
        NemesisFact::ProxyChange(_) => {
            let over = context.recovery_after(line.time_ns);
            Some((line.time_ns, over.unwrap_or(u64::MAX)))
        }
        NemesisFact::ServerEnded(_) => Some((line.time_ns, u64::MAX)),
        _ => None,
    })
}

/// Returns whether a window affects every server.
pub(crate) fn takes_all_servers(context: &Context<'_>, window: &Window) -> bool {
    let names = ServerNames::of(context).names;
    !names.is_empty() && names.iter().all(|name| window.started.targets.contains(name))
}

/// A window on less than half of the servers.
#[derive(Debug, Clone)]
pub(crate) struct MinorityAway<'a> {
    pub window: &'a Window,
    pub servers: BTreeSet<&'a str>,
}

/// Returns the minority that was away for the greater part of a span.
pub(crate) fn minority_away<'a>(context: &'a Context<'_>, from_ns: u64, to_ns: u64) -> Option<MinorityAway<'a>> {
    let servers = ServerNames::of(context);
    let away_ns = |window: &Window| {
        let heal_ns = context.heal_ns(window).unwrap_or(to_ns);
        heal_ns.min(to_ns).saturating_sub(window.start_ns.max(from_ns))
    };
    let windows = context.windows.iter();
    let mut long = windows.filter(|window| away_ns(window) * 2 > to_ns - from_ns);
    long.find_map(|window| servers.minority_of(window))
}

/// The names of the servers of a run, from the roles in the history.
struct ServerNames {
    names: BTreeSet<String>,
    /// Whether some are replicas: then one server has a lock, and not a majority.
    replicated: bool,
}

impl ServerNames {
    fn of(context: &Context<'_>) -> Self {
        let mut servers = Self {
            names: BTreeSet::new(),
            replicated: false,
        };
        for line in context.history.nemesis() {
            if let NemesisFact::Roles(roles) = &line.fact {
                servers.replicated |= roles.values().any(|role| *role == Role::Replica);
                servers.names.extend(roles.keys().cloned());
            }
        }
        servers
    }

    /// Returns the servers on which a window was, if every client could reach more than half of the servers besides.
    fn minority_of<'a>(&self, window: &'a Window) -> Option<MinorityAway<'a>> {
        let takes_away = window.fault.starts_with("partition") || window.fault.starts_with("server-");
        if !takes_away || self.replicated || self.names.is_empty() {
            return None;
        }
        let links = window.started.cut.iter().flatten();
        let ends = links.filter_map(|link| link.split_once("->"));
        let between_servers = ends.clone().any(|(from, _)| from.starts_with('n'));
        let targets = window.started.targets.iter().map(String::as_str);
        let servers: BTreeSet<&str> = ends
            .map(|(_, server)| server)
            .chain(targets.filter(|target| self.names.contains(*target)))
            .collect();
        let is_minority = !servers.is_empty() && self.are_mostly_without(&servers);
        (!between_servers && is_minority).then_some(MinorityAway { window, servers })
    }

    fn are_mostly_without(&self, taken: &BTreeSet<&str>) -> bool {
        taken.len() * 2 < self.names.len()
    }

    /// Returns the times, up to the heal, in which several minorities together were no minority.
    fn without_majority(&self, mut minorities: Vec<(u64, MinorityAway<'_>)>) -> Vec<(u64, u64)> {
        minorities.sort_by_key(|(_, away)| away.window.start_ns);
        let mut open: Vec<(u64, MinorityAway<'_>)> = Vec::new();
        let mut spans = Vec::new();
        for minority in minorities {
            let from_ns = minority.1.window.start_ns;
            open.retain(|(heal_ns, _)| *heal_ns > from_ns);
            open.push(minority);
            open.sort_by_key(|(heal_ns, _)| *heal_ns);
            // the first of them to heal without which the others are a minority again
            let enough = (0..open.len()).find(|healed| {
                let away = open[*healed..].iter().flat_map(|(_, other)| &other.servers);
                self.are_mostly_without(&away.copied().collect())
            });
            match enough {
                Some(0) => {}
                Some(healed) => spans.push((from_ns, open[healed - 1].0)),
                None => spans.extend(open.last().map(|(heal_ns, _)| (from_ns, *heal_ns))),
            }
        }
        spans
    }
}
