//! [`LinkFault`]: the guard of a behaviour on links. Dropping it heals them.

use std::sync::Arc;

use super::behaviour::Behaviour;
use super::bottleneck::Bottleneck;
use super::external::{ExternalProxyDriver, PendingReply, within};
use super::link::{AnyLink, ExternalProxy, Link, LinkControl};
use super::link_state::Layer;
use super::translate::toxics_for;
use crate::counts::LinkCounts;
use crate::limits::REMOTE;
use tokio::time::Instant;

/// A layer on some links. Dropping it lifts the layer.
///
/// The built-in proxy obeys at once. A remote one, which is the same for all links that have one, obeys when [`LinkFault::settle`] or
/// [`LinkFault::heal`] returns.
#[derive(Debug)]
pub struct LinkFault {
    links: Vec<(AnyLink, CountsBefore)>,
    layer: Layer,
    behaviour: Behaviour,
    reset_on_heal: bool,
    /// The order to which the remote has not replied, or the reason for which none could be given.
    pending: Result<Option<PendingOrder>, String>,
    healed: bool,
}

type PendingOrder = (Arc<dyn ExternalProxyDriver>, PendingReply);

/// The counts of a link at the time at which the layer was applied.
#[derive(Debug, Clone, Copy)]
struct CountsBefore {
    counts: LinkCounts,
    inside: i64,
}

impl CountsBefore {
    fn now(link: &dyn LinkControl) -> Self {
        let inside = |link: &Link| Some(link.external()?.inside(link.counters()));
        Self {
            counts: link.counts(),
            inside: link.as_link().and_then(inside).unwrap_or(0),
        }
    }
}

impl LinkFault {
    /// Puts `behaviour` on every one of `links`. With `reset_on_heal`, lifting it resets the connections as well.
    pub fn apply(links: Vec<impl Into<AnyLink>>, layer: Layer, behaviour: Behaviour, reset_on_heal: bool) -> Self {
        let mut fault = Self::on(links.into_iter().map(Into::into), layer, behaviour, reset_on_heal);
        for (link, _) in fault.links.iter().filter(|(link, _)| external(link).is_none()) {
            link.apply(layer, behaviour);
        }
        let put = |toxics| fault.send_order(|remote, proxies| remote.put(layer, proxies, toxics));
        fault.pending = toxics_for(&behaviour, reset_on_heal).map(put);
        fault
    }

    /// Puts another behaviour on each of `links`, none of which has an external proxy.
    pub fn apply_each(links: Vec<(AnyLink, Behaviour)>, layer: Layer, reset_on_heal: bool) -> Self {
        let each = links.iter().map(|(link, _)| link.clone());
        let fault = Self::on(each, layer, Behaviour::default(), reset_on_heal);
        for (link, behaviour) in links {
            link.apply(layer, behaviour);
        }
        fault
    }

    /// Makes a fault whose layer is not yet on its links.
    fn on(links: impl Iterator<Item = AnyLink>, layer: Layer, behaviour: Behaviour, reset_on_heal: bool) -> Self {
        let before = |link: AnyLink| {
            let before = CountsBefore::now(&*link);
            (link, before)
        };
        Self {
            links: links.map(before).collect(),
            layer,
            behaviour,
            reset_on_heal,
            pending: Ok(None),
            healed: false,
        }
    }

    /// Lets the connections of all `links`, all of them of the built-in proxy, share `bytes_per_second` each way. Other links do
    /// not share.
    pub fn share_bandwidth(links: Vec<impl Into<AnyLink>>, layer: Layer, bytes_per_second: u32) -> Self {
        let links: Vec<AnyLink> = links.into_iter().map(Into::into).collect();
        let bottleneck = || Arc::new(Bottleneck::new(bytes_per_second, Instant::now()));
        let each_way = [bottleneck(), bottleneck()];
        for link in links.iter().filter_map(|link| link.as_link()) {
            link.share(layer, each_way.clone());
        }
        let pass = links.into_iter().map(|link| (link, Behaviour::default()));
        Self::apply_each(pass.collect(), layer, false)
    }

    /// Waits until the layer is on everywhere. The error says where it is not, or why that is unknown.
    pub async fn settle(&mut self) -> Result<(), String> {
        if self.externals().next().is_none() {
            // the built-in proxy obeys, whatever a remote can do
            return Ok(());
        }
        self.answer().await?;
        for (link, external) in self.externals() {
            link.apply(self.layer, self.behaviour);
            external.back.apply(self.layer, self.behaviour);
        }
        Ok(())
    }

    /// Lifts the layer and waits until it is gone everywhere. The error says where it is not, or why that is unknown.
    pub async fn heal(&mut self) -> Result<(), String> {
        self.begin_to_heal();
        self.answer().await
    }

    fn begin_to_heal(&mut self) {
        if std::mem::replace(&mut self.healed, true) {
            return;
        }
        for (link, _) in &self.links {
            let external = external(link);
            if self.reset_on_heal && external.is_none() {
                // before the heal, so that what was held back never gets through
                link.reset_connections();
            }
            link.heal(self.layer);
            if let Some(external) = external {
                external.back.heal(self.layer);
            }
        }
        self.pending = Ok(self.send_order(|remote, proxies| remote.lift(self.layer, proxies)));
    }

    async fn answer(&mut self) -> Result<(), String> {
        if let Some((remote, reply)) = std::mem::replace(&mut self.pending, Ok(None))? {
            let done = within(REMOTE, reply).await;
            done.map_err(|why| format!("{}: {why}", remote.name()))?;
        }
        Ok(())
    }

    /// Gives the remote, if there is one, an order for all of its links.
    fn send_order(
        &self,
        order: impl FnOnce(&dyn ExternalProxyDriver, Vec<String>) -> PendingReply,
    ) -> Option<PendingOrder> {
        let (_, ExternalProxy { driver, .. }) = self.externals().next()?;
        let proxies = self.externals().map(|(_, external)| external.proxy.clone());
        Some((Arc::clone(driver), order(&**driver, proxies.collect())))
    }

    fn externals(&self) -> impl Iterator<Item = (&AnyLink, &ExternalProxy)> {
        self.links.iter().filter_map(|(link, _)| Some((link, external(link)?)))
    }

    /// Returns the counts of the links since the layer was applied.
    pub fn counts(&self) -> LinkCounts {
        let holds = self.behaviour.holds_connects();
        self.links.iter().fold(LinkCounts::default(), |sum, (link, before)| {
            let now = CountsBefore::now(&**link);
            let mut counts = now.counts.since(before.counts);
            if holds && external(link).is_some() {
                counts.held_bytes = u64::try_from(now.inside - before.inside).unwrap_or(0);
            }
            sum.plus(counts)
        })
    }

    /// Returns the bytes that the remote took and never passes on: its `reset_peer` reads until it resets.
    pub fn swallowed_bytes(&self) -> u64 {
        if self.behaviour.cut.after.is_none() {
            return 0;
        }
        let remote = self.links.iter().filter(|(link, _)| external(link).is_some());
        let swallowed = remote.map(|(link, before)| CountsBefore::now(&**link).inside - before.inside);
        u64::try_from(swallowed.sum::<i64>()).unwrap_or(0)
    }

    /// Returns the names of the links of the layer.
    pub fn names(&self) -> Vec<String> {
        self.links.iter().map(|(link, _)| link.name().to_owned()).collect()
    }

    /// Resets the connections that run through these links now. A remote proxy does so as its toxics say.
    pub fn reset_connections(&self) {
        for (link, _) in self.links.iter().filter(|(link, _)| external(link).is_none()) {
            link.reset_connections();
        }
    }
}

impl Drop for LinkFault {
    fn drop(&mut self) {
        self.begin_to_heal();
    }
}

/// Returns the external proxy of a link, if there is one.
fn external(link: &AnyLink) -> Option<&ExternalProxy> {
    link.as_link()?.external()
}
