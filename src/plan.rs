//! The plan of an experiment: phases and fault windows, drawn from the configuration and the seed alone.
//!
//! The same configuration and seed give the same plan on every machine. A plan depends on no clock and no cluster.

pub mod kept_windows;
mod lanes;

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub use lanes::LANES;

use crate::config::Config;
use crate::faults::{FaultDefinition, Injection, Needs, Shape};

/// The length of each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Phases {
    /// No faults, to see that the lock works.
    #[serde(serialize_with = "milliseconds", rename = "control_ms")]
    pub control: Duration,
    /// No faults, so that the first window meets a running system.
    #[serde(serialize_with = "milliseconds", rename = "warm_up_ms")]
    pub warm_up: Duration,
    /// Fault windows open and heal.
    #[serde(serialize_with = "milliseconds", rename = "faults_ms")]
    pub faults: Duration,
    /// All faults are healed: every client must acquire.
    #[serde(serialize_with = "milliseconds", rename = "recovery_ms")]
    pub recovery: Duration,
}

/// One fault window.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedWindow {
    /// Its number, from 1, in the order of the starts.
    pub number: u32,
    /// Its lane, from 0. A window waits until the previous one of its lane has healed; lanes run in parallel.
    pub lane: u32,
    #[serde(serialize_with = "by_name")]
    pub fault: FaultDefinition,
    /// Its start, from the start of the faults phase.
    #[serde(serialize_with = "milliseconds", rename = "start_ms")]
    pub start: Duration,
    #[serde(serialize_with = "milliseconds", rename = "length_ms")]
    pub length: Duration,
    #[serde(serialize_with = "in_words")]
    pub injection: Injection,
    /// The time for which a holder continues to work after it became the target, unless it learns that the lock is lost.
    #[serde(serialize_with = "milliseconds", rename = "holder_works_ms")]
    pub holder_works: Duration,
}

#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    pub seed: String,
    pub phases: Phases,
    pub windows: Vec<PlannedWindow>,
    /// Servers reach each other through the proxy, since a window acts there; otherwise they connect directly.
    pub servers_through_proxy: bool,
    /// Servers in addition to those that clients know, for a failover.
    pub replicas: u32,
    /// The faults, if there are any, all act on the n-th message of a run that ends with its grants: messages are counted from the
    /// start. The run without faults has it, too: a search for every placement takes the numbers of its messages.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub places_acts: bool,
    /// Processes are given wall clocks that can be stepped.
    pub steps_clocks: bool,
    /// Servers start behind gates that report their syncs, and sync as in production.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gates_disks: bool,
    /// Servers have file systems of their own, which can lose power or be filled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_disks: bool,
    /// Servers leave their cluster permanently, and new ones join.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replaces_servers: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{}s is too short for a fault window of {}s after the control phase and before the recovery phase\nhint: use --time {}s or more, or a shorter --lease or --window", time.as_secs_f32(), window.as_secs_f32(), needed.as_secs())]
    TooShort {
        time: Duration,
        window: Duration,
        needed: Duration,
    },
    #[error("{}s is too short for the phases of a run without faults, which last {}s with this lease\nhint: use --time {}s or more, or a shorter --lease", time.as_secs_f32(), phases.as_secs_f32(), phases.as_secs_f32().ceil())]
    TooShortForPhases { time: Duration, phases: Duration },
    #[error("{0}")]
    Argument(String),
}

fn milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_millis() as u64)
}

fn by_name<S: Serializer>(fault: &FaultDefinition, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(fault.name)
}

fn in_words<S: Serializer>(injection: &Injection, serializer: S) -> Result<S::Ok, S::Error> {
    let mut words = serializer.serialize_struct("Injection", 3)?;
    words.serialize_field("target", &injection.target)?;
    words.serialize_field("title", &injection.title)?;
    words.serialize_field("heal", injection.heal)?;
    words.end()
}

/// Returns a time in which the lease of the target ends, another client gets the lock, and a target that continues for a whole
/// lease after that is distinguished from one that was about to stop.
fn target_holder_works(config: &Config) -> Duration {
    config.lease * 2 + Duration::from_secs(1)
}

/// Draws the plan of `config`.
pub fn plan(config: &Config) -> Result<Plan, PlanError> {
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    let mut phases = phases(config);
    let windows = if config.faults.is_empty() {
        Vec::new()
    } else {
        windows(config, &phases, &mut rng)?
    };
    if windows.is_empty() {
        let others = phases.control + phases.warm_up + phases.recovery;
        let left = config.time.checked_sub(others);
        phases.faults = left.ok_or(PlanError::TooShortForPhases {
            time: config.time,
            phases: others,
        })?;
    }
    let needs: Vec<Needs> = windows.iter().map(|window| window.injection.action.needs()).collect();
    Ok(Plan {
        servers_through_proxy: needs.iter().any(|needs| needs.peer_proxy),
        replicas: needs.iter().map(|needs| needs.replicas).max().unwrap_or(0),
        places_acts: config.grants.is_some() && config.faults.iter().all(lanes::is_point),
        steps_clocks: needs.iter().any(|needs| needs.wall_clocks),
        gates_disks: needs.iter().any(|needs| needs.disk_gates),
        own_disks: needs.iter().any(|needs| needs.own_disks),
        replaces_servers: needs.iter().any(|needs| needs.replaceable_servers),
        seed: config.seed_text(),
        phases,
        windows,
    })
}

fn phases(config: &Config) -> Phases {
    let seconds = Duration::from_secs;
    if config.each.is_some() {
        // no phases: the run ends when every client has had its turns
        return Phases {
            control: config.time,
            ..Phases::default()
        };
    }
    if config.grants.is_some() {
        // the run ends with its grants: no phase but the faults has a length
        return Phases {
            faults: config.time,
            ..Phases::default()
        };
    }
    let control = (config.time / 12).clamp(Duration::from_millis(1500), seconds(5));
    let recovery = (config.time / 4).clamp(config.lease * 2 + seconds(1), (config.lease * 3).max(seconds(15)));
    let faults = config.time.saturating_sub(control * 2 + recovery);
    Phases {
        control,
        warm_up: control,
        faults,
        recovery,
    }
}

/// Returns the length of a long window: longer than the lease, and than the work of a targeted holder, so that its release falls
/// into the window, too. Otherwise the fault never acts on a lock that contacts its store only to acquire and to release.
fn shortest_long_window(config: &Config) -> Duration {
    target_holder_works(config) + Duration::from_millis(500)
}

fn windows(config: &Config, phases: &Phases, rng: &mut ChaCha8Rng) -> Result<Vec<PlannedWindow>, PlanError> {
    let shape = Shape::of(config);
    let mut windows = Vec::new();
    for (number, requests) in (0..).zip(lanes::lanes(config, &shape)?) {
        let lane = lanes::Lane {
            number,
            config,
            shape: &shape,
            rng: ChaCha8Rng::seed_from_u64(rng.random()),
        };
        windows.extend(lane.windows(requests, phases.faults)?);
    }
    windows.sort_by_key(|window: &PlannedWindow| (window.start, window.lane));
    for (number, window) in (1..).zip(&mut windows) {
        window.number = number;
    }
    if windows.is_empty() {
        let window = config.window.unwrap_or(shortest_long_window(config) + config.lease / 2);
        let others = config.time.saturating_sub(phases.faults);
        let needed = (others + window).max(window * 3 / 2) + Duration::from_secs(1);
        return Err(PlanError::TooShort {
            time: config.time,
            window,
            needed,
        });
    }
    Ok(windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends;
    use crate::config::{ANY_FAULT, FaultRequest, ProxyChoice};
    use crate::faults::Target;
    use harness_workloads::BackendId;
    use proptest::prelude::*;

    fn config(seed: u64, seconds: u64, lease_ms: u64, faults: &[&str]) -> Config {
        let mut config = Config::example();
        config.seed = seed;
        config.time = Duration::from_secs(seconds);
        config.lease = Duration::from_millis(lease_ms);
        config.faults = faults.iter().copied().map(FaultRequest::read).collect();
        config
    }

    proptest! {
        #[test]
        fn the_same_seed_gives_the_same_plan(seed: u64, seconds in 30u64..300, lease_ms in 500u64..4000) {
            let config = config(seed, seconds, lease_ms, &["partition", "latency"]);
            prop_assert_eq!(format!("{:?}", plan(&config)), format!("{:?}", plan(&config)));
        }

        // message faults alone are closer together the more clients there are
        #[test]
        fn fewer_clients_have_the_same_windows_against_fewer_clients(
            seed: u64, grants in proptest::option::of(1u32..300), clients in 2u32..20,
        ) {
            let of = |clients| {
                let mut config = config(seed, 60, 2000, &["partition", "kill", "pause-waiter"]);
                config.grants = grants;
                config.clients = clients;
                plan(&config).unwrap().windows
            };
            let same = |window: &PlannedWindow| (window.lane, window.fault.name, window.start, window.length);
            let (many, few) = (of(20), of(clients));
            prop_assert_eq!(many.iter().map(same).collect::<Vec<_>>(), few.iter().map(same).collect::<Vec<_>>());
            for (many, few) in many.iter().zip(&few) {
                let (many, few) = (&many.injection, &few.injection);
                prop_assert!(many.title == few.title || matches!(few.target, Target::Clients(_)), "{} {}", many.title, few.title);
            }
        }

        #[test]
        fn windows_of_a_lane_follow_each_other_and_heal_before_the_recovery(
            seed: u64, seconds in 30u64..300, lease_ms in 500u64..4000,
        ) {
            let config = config(seed, seconds, lease_ms, &["partition", "kill"]);
            let plan = plan(&config).unwrap();
            for window in &plan.windows {
                prop_assert!(window.start + window.length <= plan.phases.faults);
            }
            for lane in 0..2 {
                let of_lane: Vec<_> = plan.windows.iter().filter(|window| window.lane == lane).collect();
                prop_assert!(of_lane.windows(2).all(|pair| pair[0].start + pair[0].length < pair[1].start));
                prop_assert!(!of_lane.is_empty());
            }
            let phases = plan.phases;
            prop_assert_eq!(phases.control + phases.warm_up + phases.faults + phases.recovery, config.time);
        }

        #[test]
        fn the_first_window_outlasts_the_lease_and_the_work_of_its_target(
            seed: u64, seconds in 30u64..300, lease_ms in 500u64..4000,
        ) {
            let config = config(seed, seconds, lease_ms, &["partition"]);
            let first = &plan(&config).unwrap().windows[0];
            prop_assert!(first.length > config.lease && first.holder_works > config.lease * 2);
            prop_assert!(first.length >= first.holder_works + Duration::from_millis(500));
        }
    }

    /// Returns the plan of a run of 60 s with these faults.
    fn minute(seed: u64, faults: &[&str]) -> Plan {
        plan(&config(seed, 60, 2000, faults)).unwrap()
    }

    #[test]
    fn a_minute_has_every_kind_of_partition_and_windows_of_every_length() {
        for seed in 0..50 {
            let windows = minute(seed, &["partition"]).windows;
            let mut titles: Vec<_> = windows.iter().map(|window| window.injection.title.clone()).collect();
            titles.sort();
            titles.dedup();
            assert!(titles.len() >= 6, "{titles:?}");
            let lease = Duration::from_secs(2);
            assert!(windows.iter().any(|window| window.length <= Duration::from_millis(500)));
            assert!(windows.iter().any(|window| window.length > lease * 2));
            assert!(
                windows
                    .iter()
                    .any(|window| window.length < lease && window.length > lease / 3)
            );
        }
    }

    #[test]
    fn a_minute_has_sixty_acts_on_messages_or_twenty_mixed_ones() {
        for seed in 0..50 {
            assert!(minute(seed, &["drop-reply"]).windows.len() >= 60);
            assert!(minute(seed, &["partition", "kill"]).windows.len() >= 20);
        }
    }

    #[test]
    fn a_run_without_acts_begins_as_those_with_acts_on_its_messages_do() {
        let places_acts = |faults: &[&str], grants: Option<u32>| {
            let mut config = config(1, 60, 2000, faults);
            config.grants = grants;
            for fault in &mut config.faults {
                fault.argument = Some("any:57".into());
            }
            plan(&config).unwrap().places_acts
        };
        assert!(places_acts(&[], Some(6)) && places_acts(&["drop-reply"], Some(6)));
        assert!(!places_acts(&[], None) && !places_acts(&["drop-reply"], None));
    }

    #[test]
    fn any_has_every_fault_that_a_lock_can_stand_in_a_lane_of_its_family() {
        let names = |config: &Config| {
            let plan = plan(config).unwrap();
            let mut names: Vec<_> = plan
                .windows
                .iter()
                .map(|window| (window.lane, window.fault.name))
                .collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let mut config = config(1, 600, 2000, &[ANY_FAULT]);
        let of_zk = names(&config);
        for fault in [
            "partition",
            "server-kill",
            "reset",
            "pause-waiter",
            "kill-holder",
            "drop-reply",
        ] {
            assert!(of_zk.iter().any(|(_, name)| *name == fault), "{fault} in {of_zk:?}");
        }
        for fault in ["failover", "clock"] {
            assert!(!of_zk.iter().any(|(_, name)| *name == fault), "{fault} in {of_zk:?}");
        }
        let lane_of = |fault: &str| of_zk.iter().find(|(_, name)| *name == fault).map(|(lane, _)| *lane);
        assert_eq!(lane_of("partition"), lane_of("server-pause"));
        assert_ne!(lane_of("partition"), lane_of("kill"));
        for typed in [None, Some(Duration::from_secs(1))] {
            config.window = typed;
            let windows = plan(&config).unwrap().windows.into_iter();
            let (pauses, others): (Vec<_>, Vec<_>) =
                windows.partition(|window| ["pause", "pause-holder"].contains(&window.fault.name));
            assert!(
                pauses.iter().all(|window| window.length <= config.lease / 8),
                "no lock stands a longer one"
            );
            assert!(typed.is_none_or(|typed| others.iter().all(|window| window.length == typed)));
        }
        config.backend = backends::of(BackendId::Redis);
        config.nodes = 1;
        assert!(!names(&config).iter().any(|(_, name)| name.starts_with("server-kill")));
    }

    #[test]
    fn any_kills_clients_in_the_first_two_thirds_of_its_windows_and_kill_to_the_end() {
        let last_kill = |seed, fault| {
            let plan = minute(seed, &[fault]);
            let mut kills = plan.windows.iter().filter(|window| window.fault.kills_clients());
            kills
                .next_back()
                .map(|window| window.start.div_duration_f64(plan.phases.faults))
        };
        for seed in 0..20 {
            let of_any = last_kill(seed, ANY_FAULT).unwrap();
            assert!((0.4..0.66).contains(&of_any), "{of_any}");
            assert!(last_kill(seed, "kill").unwrap() > 0.8);
        }
    }

    #[test]
    fn any_has_a_partition_every_other_time_and_other_faults_between_with_each_seed() {
        let lane = |seed| {
            let windows = plan(&config(seed, 60, 2000, &[ANY_FAULT])).unwrap().windows;
            let lane = windows.into_iter().filter(|window| window.lane == 0);
            lane.collect::<Vec<PlannedWindow>>()
        };
        let mut others = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let (partitions, between): (Vec<_>, Vec<_>) = lane(seed)
                .into_iter()
                .partition(|window| window.fault.name == "partition");
            assert!(partitions.len().abs_diff(between.len()) <= 1);
            // a holder that does not learn of the loss of its lock has time to show it
            let lease = Duration::from_secs(2);
            let first = &partitions[0];
            assert!(
                first.holder_works >= lease * 5 / 4 && first.holder_works < first.length,
                "{first:?}"
            );
            let kinds: std::collections::BTreeSet<_> =
                partitions.iter().map(|window| &window.injection.title).collect();
            assert!(kinds.len() >= 5, "{kinds:?}");
            others.insert(between.iter().map(|window| window.fault.name).collect::<Vec<_>>());
        }
        assert!(others.len() > 10, "{others:?}");
    }

    #[test]
    fn a_window_that_is_too_short_for_what_its_fault_must_achieve_does_not_ask_for_it() {
        let windows = minute(3, &["pause-holder"]).windows;
        for window in windows {
            let stopped = window
                .injection
                .requirement
                .as_ref()
                .and_then(|required| required.stopped_ms);
            assert_eq!(stopped.is_some(), window.length > Duration::from_secs(2), "{window:?}");
        }
    }

    #[test]
    fn the_target_of_the_first_partition_is_the_holder() {
        for seed in 0..20 {
            let plan = plan(&config(seed, 60, 2000, &["partition"])).unwrap();
            assert_eq!(plan.windows[0].injection.target, Target::Holder);
        }
    }

    #[test]
    fn a_run_too_short_for_a_window_is_refused_and_the_hint_is_enough() {
        let short = config(1, 8, 2000, &["partition"]);
        let Err(PlanError::TooShort { needed, .. }) = plan(&short) else {
            panic!("8s must be too short")
        };
        assert!(plan(&Config { time: needed, ..short }).is_ok());
    }

    #[test]
    fn a_run_without_faults_lasts_as_long_as_was_asked_or_is_refused() {
        let short = config(1, 3, 2000, &[]);
        let Err(PlanError::TooShortForPhases { phases, .. }) = plan(&short) else {
            panic!("3s must be too short")
        };
        let enough = plan(&Config { time: phases, ..short }).unwrap().phases;
        assert_eq!(
            enough.control + enough.warm_up + enough.faults + enough.recovery,
            phases
        );
    }

    #[test]
    fn both_proxies_have_the_same_plan_and_a_toxiproxy_says_its_toxics() {
        for seed in 0..20 {
            let ours = config(seed, 60, 2000, &["partition", "latency", "pause-holder"]);
            let toxiproxy = Config {
                proxy: ProxyChoice::ToxiproxyAt("localhost:8474".into()),
                ..ours.clone()
            };
            let (ours, theirs) = (plan(&ours).unwrap(), plan(&toxiproxy).unwrap());
            for (one, other) in ours.windows.iter().zip(&theirs.windows) {
                let name = one.fault.name;
                assert_eq!(
                    (one.start, one.length, name),
                    (other.start, other.length, other.fault.name)
                );
                let (one, other) = (&one.injection, &other.injection);
                assert_eq!(one.target, other.target);
                assert_eq!(format!("{:?}", one.action), format!("{:?}", other.action));
                assert_eq!(name == "pause-holder", one.title == other.title);
            }
        }
    }
}
