//! A fault on links: what was put on is taken away when this ends, whoever ends it.

use std::sync::Arc;

use super::behaviour::Behaviour;
use super::far::{Far, Remote, Reply, answer};
use super::link::{Layer, Link};
use super::translate::toxics_for;
use crate::counts::LinkCounts;

/// A layer that lies on some links, and is lifted when this is dropped.
///
/// The built-in proxy obeys at once. A remote one is told at once and obeys when [`Hold::settle`] or [`Hold::lift`] says so.
#[derive(Debug)]
pub struct Hold {
    links: Vec<(Arc<Link>, Before)>,
    layer: Layer,
    behaviour: Behaviour,
    reset_on_heal: bool,
    /// What the remote was told and has not answered.
    told: Vec<(Arc<dyn Remote>, Reply)>,
    /// Why it could not be told, if so.
    untold: Option<String>,
    lifted: bool,
}

/// What a link had counted when the layer was put on.
#[derive(Debug, Clone, Copy)]
struct Before {
    counts: LinkCounts,
    inside: i64,
}

impl Before {
    fn now(link: &Link) -> Self {
        Self {
            counts: link.counts(),
            inside: link.far().map_or(0, |far| far.inside(link.stats())),
        }
    }
}

impl Hold {
    /// Puts `behaviour` on every one of `links`. With `reset_on_heal`, lifting it resets the connections as well.
    pub fn put(links: Vec<Arc<Link>>, layer: Layer, behaviour: Behaviour, reset_on_heal: bool) -> Self {
        let links: Vec<_> = links
            .into_iter()
            .map(|link| (Arc::clone(&link), Before::now(&link)))
            .collect();
        for (link, _) in links.iter().filter(|(link, _)| link.far().is_none()) {
            link.put(layer, behaviour);
        }
        let mut hold = Self {
            links,
            layer,
            behaviour,
            reset_on_heal,
            told: Vec::new(),
            untold: None,
            lifted: false,
        };
        match toxics_for(&behaviour, reset_on_heal) {
            Ok(toxics) => {
                hold.told = hold.tell(|remote, proxies| remote.put(layer, proxies, toxics.clone()));
            }
            Err(why) => hold.untold = Some(why),
        }
        hold
    }

    /// Puts a behaviour of its own on every one of `links`, all of them of the built-in proxy.
    pub fn put_each(links: Vec<(Arc<Link>, Behaviour)>, layer: Layer, reset_on_heal: bool) -> Self {
        let before = |(link, _): &(Arc<Link>, Behaviour)| (Arc::clone(link), Before::now(link));
        let hold = Self {
            links: links.iter().map(before).collect(),
            layer,
            behaviour: Behaviour::default(),
            reset_on_heal,
            told: Vec::new(),
            untold: None,
            lifted: false,
        };
        for (link, behaviour) in links {
            link.put(layer, behaviour);
        }
        hold
    }

    /// Waits until the layer is on everywhere. The error says where it is not, or why nobody knows.
    pub async fn settle(&mut self) -> Result<(), String> {
        if let (Some(why), true) = (self.untold.take(), self.fars().next().is_some()) {
            return Err(why);
        }
        self.answers().await?;
        for (link, far) in self.fars() {
            link.put(self.layer, self.behaviour);
            far.back.put(self.layer, self.behaviour);
        }
        Ok(())
    }

    /// Lifts the layer and waits until it is gone everywhere. The error says where it is not, or why nobody knows.
    pub async fn lift(&mut self) -> Result<(), String> {
        self.begin_to_lift();
        self.answers().await
    }

    fn begin_to_lift(&mut self) {
        if std::mem::replace(&mut self.lifted, true) {
            return;
        }
        for (link, _) in &self.links {
            match link.far() {
                None if self.reset_on_heal => link.lift_and_reset(self.layer),
                None => link.lift(self.layer),
                Some(far) => {
                    link.lift(self.layer);
                    far.back.lift(self.layer);
                }
            }
        }
        self.told = self.tell(|remote, proxies| remote.lift(self.layer, proxies));
    }

    async fn answers(&mut self) -> Result<(), String> {
        for (remote, reply) in std::mem::take(&mut self.told) {
            answer(&*remote, reply).await?;
        }
        Ok(())
    }

    /// Gives each remote one order for all of its links.
    fn tell(&self, order: impl Fn(&dyn Remote, Vec<String>) -> Reply) -> Vec<(Arc<dyn Remote>, Reply)> {
        let mut orders: Vec<(&Arc<dyn Remote>, Vec<String>)> = Vec::new();
        for (_, far) in self.fars() {
            match orders.iter_mut().find(|(remote, _)| Arc::ptr_eq(remote, &far.remote)) {
                Some((_, proxies)) => proxies.push(far.proxy.clone()),
                None => orders.push((&far.remote, vec![far.proxy.clone()])),
            }
        }
        let told = orders.into_iter();
        told.map(|(remote, proxies)| (Arc::clone(remote), order(&**remote, proxies)))
            .collect()
    }

    fn fars(&self) -> impl Iterator<Item = (&Arc<Link>, &Far)> {
        self.links.iter().filter_map(|(link, _)| Some((link, link.far()?)))
    }

    /// What the links counted since the layer was put on.
    pub fn counts(&self) -> LinkCounts {
        let stalls = self.behaviour.holds_connects();
        self.links.iter().fold(LinkCounts::default(), |sum, (link, before)| {
            let now = Before::now(link);
            let mut counts = now.counts.since(before.counts);
            if stalls && link.far().is_some() {
                counts.held_bytes = u64::try_from(now.inside - before.inside).unwrap_or(0);
            }
            sum.plus(counts)
        })
    }

    /// The names of the links it lies on.
    pub fn names(&self) -> Vec<String> {
        self.links.iter().map(|(link, _)| link.name().to_owned()).collect()
    }

    /// Resets the connections that run through these links now. A remote proxy does so as its toxics say.
    pub fn reset_connections(&self) {
        for (link, _) in self.links.iter().filter(|(link, _)| link.far().is_none()) {
            link.reset_connections();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.begin_to_lift();
    }
}
