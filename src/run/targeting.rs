//! Resolves the target of an injection when its window starts: who holds, who waits and who leads is known only then.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::clients::holders::Holding;
use crate::faults::{Injection, ResolvedTarget, Target};
use crate::limits::AIM;
use crate::run::context::RunContext;

/// What a target was resolved to.
pub struct Resolution {
    pub target: ResolvedTarget,
    /// The client that held a lock, when the target is the holder.
    pub holder: Option<u32>,
    pub title: String,
}

/// Holders that were granted their lock after an injection was prepared.
pub struct GrantedSince {
    pub prepared: Instant,
    /// Keys that the servers had already.
    pub known_keys: Vec<String>,
}

/// What was asked for this long after something is surely answered after it, too.
const ROUND_TRIP: Duration = Duration::from_millis(100);

impl GrantedSince {
    fn includes(&self, holding: &Holding) -> bool {
        let known = self.known_keys.iter().any(|key| key.contains(&holding.lock));
        holding.since > self.prepared + ROUND_TRIP && !known
    }
}

/// Resolves the target; the error says what there was none of. A holder works for `works` more from then on.
pub async fn resolve(
    injection: &Injection,
    works: Duration,
    since: Option<GrantedSince>,
    run: &RunContext,
    leader: impl Future<Output = Option<u32>>,
) -> Result<Resolution, &'static str> {
    let mut holder = None;
    let planned = &injection.title;
    let (target, title) = match &injection.target {
        Target::Holder => {
            let fits = |holding: &Holding| since.as_ref().is_none_or(|since| since.includes(holding));
            let (client, holding) = timeout(AIM, run.holders.aim(works, fits))
                .await
                .map_err(|_| "nobody held a lock")?;
            holder = Some(client);
            let title = format!("c{client} (holder of {}): {planned}", holding.lock);
            (ResolvedTarget::Clients(vec![client]), title)
        }
        Target::Waiter => {
            let (client, lock) = timeout(AIM, run.holders.waiter())
                .await
                .map_err(|_| "nobody waited for a lock")?;
            let title = format!("c{client} (waiting for {lock}): {planned}");
            (ResolvedTarget::Clients(vec![client]), title)
        }
        Target::Leader => {
            let server = leader.await.ok_or("no server leads")?;
            let title = format!("n{} (leader): {planned}", server + 1);
            (ResolvedTarget::Servers(vec![server]), title)
        }
        Target::Clients(clients) => (ResolvedTarget::Clients(clients.clone()), planned.clone()),
        Target::Servers(servers) => (ResolvedTarget::Servers(servers.clone()), planned.clone()),
        Target::Everyone => (ResolvedTarget::Everyone, planned.clone()),
    };
    Ok(Resolution { target, holder, title })
}
