//! Targeting: resolves a window's target when the window is due, since only then it is known which client holds or waits
//! and which server leads.

use std::time::Duration;

use super::clients::holders::Holding;
use crate::faults::{Strike, Target};
use crate::limits::AIM;
use crate::run::context::RunContext;

/// A target that is resolved to concrete clients or servers.
pub struct ResolvedTarget {
    pub target: Target,
    /// The client that holds a lock, where that was the target.
    pub holder: Option<u32>,
    pub title: String,
}

/// Upper bound on one round trip: a request sent this long after an event is answered after it.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Which holders may be targeted, where not all may.
pub struct FreshHolders {
    /// They got their lock after this time, by the clock of the run.
    pub since: Duration,
    /// Their lock is none of these keys of the servers.
    pub other_than: Vec<String>,
}

/// Resolves the target of `strike` to concrete clients or servers. Fails with what was missing, e.g. `no client held a
/// lock`. A holder that is targeted goes on working for [`struck_holder_works`](crate::plan::Plan::struck_holder_works).
pub async fn resolve(
    strike: &Strike,
    fresh: Option<FreshHolders>,
    run: &RunContext,
    leader: impl Future<Output = Option<u32>>,
) -> Result<ResolvedTarget, &'static str> {
    let resolved = match strike.target {
        Target::Holder => {
            let fits = |holding: &Holding| {
                fresh.as_ref().is_none_or(|fresh| {
                    let of_these = fresh.other_than.iter().any(|key| key.contains(&holding.lock));
                    holding.since > fresh.since + ROUND_TRIP && !of_these
                })
            };
            let (client, holding) = run
                .clock
                .within(AIM, run.holders.target(run.spec.plan.struck_holder_works, fits))
                .await
                .ok_or("nobody held a lock")?;
            ResolvedTarget {
                target: Target::Clients(vec![client]),
                holder: Some(client),
                title: format!("c{client} (holder of {}): {}", holding.lock, strike.title),
            }
        }
        Target::Waiter => {
            let (client, lock) = run
                .clock
                .within(AIM, run.holders.waiter())
                .await
                .ok_or("nobody waited for a lock")?;
            ResolvedTarget {
                target: Target::Clients(vec![client]),
                holder: None,
                title: format!("c{client} (waiting for {lock}): {}", strike.title),
            }
        }
        Target::Leader => {
            let server = leader.await.ok_or("no server leads")?;
            ResolvedTarget {
                target: Target::Server(server),
                holder: None,
                title: format!("n{} (leader): {}", server + 1, strike.title),
            }
        }
        ref target => ResolvedTarget {
            target: target.clone(),
            holder: None,
            title: strike.title.clone(),
        },
    };
    Ok(resolved)
}
