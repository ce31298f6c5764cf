//! Taking aim when a window opens: who holds, who waits and who leads is known only then.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::clients::holders::Holding;
use crate::faults::{Strike, Target};
use crate::limits::AIM;
use crate::run::context::RunContext;

/// A strike that knows whom it strikes.
pub struct Aimed {
    pub target: Target,
    /// The client that held a lock, when the strike was meant for the holder.
    pub holder: Option<u32>,
    pub title: String,
}

/// What was asked for so long after something is surely answered after it, too.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Takes aim; the error says whom there was none of. A holder that is aimed at works for `works` more; with `since`, it
/// asked for its lock after that, and its lock is none of these keys.
pub async fn aim(
    strike: &Strike,
    works: Duration,
    since: Option<(Instant, Vec<String>)>,
    run: &RunContext,
    leader: impl Future<Output = Option<u32>>,
) -> Result<Aimed, &'static str> {
    let aimed = match strike.target {
        Target::Holder => {
            let fresh = |holding: &Holding| {
                since.as_ref().is_none_or(|(since, keys)| {
                    holding.since > *since + ROUND_TRIP && !keys.iter().any(|key| key.contains(&holding.lock))
                })
            };
            let (client, holding) = timeout(AIM, run.holders.aim(works, fresh))
                .await
                .map_err(|_| "nobody held a lock")?;
            Aimed {
                target: Target::Clients(vec![client]),
                holder: Some(client),
                title: format!("c{client} (holder of {}): {}", holding.lock, strike.title),
            }
        }
        Target::Waiter => {
            let (client, lock) = timeout(AIM, run.holders.waiter())
                .await
                .map_err(|_| "nobody waited for a lock")?;
            Aimed {
                target: Target::Clients(vec![client]),
                holder: None,
                title: format!("c{client} (waiting for {lock}): {}", strike.title),
            }
        }
        Target::Leader => {
            let server = leader.await.ok_or("no server leads")?;
            Aimed {
                target: Target::Server(server),
                holder: None,
                title: format!("n{} (leader): {}", server + 1, strike.title),
            }
        }
        ref target => Aimed {
            target: target.clone(),
            holder: None,
            title: strike.title.clone(),
        },
    };
    Ok(aimed)
}
