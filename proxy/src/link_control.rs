//! [`LinkControl`]: what faults do to a link, whatever carries its messages; and [`AnyLink`], a link of any kind.

use std::ops::Deref;
use std::sync::Arc;

use super::behaviour::Behaviour;
use super::link::Link;
use super::link_state::{Layer, Upstream};
use super::link_tap::LinkTap;
use crate::counts::LinkCounts;

/// A link as faults know it. [`Link`] carries bytes over sockets; a link of a simulated network carries messages.
pub trait LinkControl: std::fmt::Debug + Send + Sync {
    /// `c3->n1`, `n1->n2`.
    fn name(&self) -> &str;

    fn counts(&self) -> LinkCounts;

    /// How many connections it carries to its server at this moment.
    fn live(&self) -> u64;

    /// Puts a layer on, in place of an earlier one of that name. Layers add up ([`Behaviour::join`]).
    fn apply(&self, layer: Layer, behaviour: Behaviour);

    /// Lifts a layer; without it the link does what the other layers say.
    fn heal(&self, layer: Layer);

    /// Lifts a layer and resets every connection there is, at once: what was held back never gets through.
    fn heal_and_reset(&self, layer: Layer);

    /// Resets every connection there is, both ends. New ones are taken.
    fn reset_connections(&self);

    /// Sends new connections to another address.
    fn redirect(&self, upstream: Upstream);

    /// The messages that pass, where there is a tap.
    fn tap(&self) -> Option<&LinkTap>;

    /// Lets every connection look again at what it obeys, after a rule of its tap was lifted.
    fn wake_connections(&self);

    /// The link of a proxy, if it is one: some faults need its sockets.
    fn as_link(&self) -> Option<&Link> {
        None
    }
}

/// A link of any kind. Clones are the same link.
#[derive(Debug, Clone)]
pub struct AnyLink(Arc<dyn LinkControl>);

impl<L: LinkControl + 'static> From<Arc<L>> for AnyLink {
    fn from(link: Arc<L>) -> Self {
        Self(link)
    }
}

impl Deref for AnyLink {
    type Target = dyn LinkControl;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl LinkControl for Link {
    fn name(&self) -> &str {
        self.name()
    }

    fn counts(&self) -> LinkCounts {
        self.counts()
    }

    fn live(&self) -> u64 {
        self.live()
    }

    fn apply(&self, layer: Layer, behaviour: Behaviour) {
        self.apply(layer, behaviour);
    }

    fn heal(&self, layer: Layer) {
        self.heal(layer);
    }

    fn heal_and_reset(&self, layer: Layer) {
        self.heal_and_reset(layer);
    }

    fn reset_connections(&self) {
        self.reset_connections();
    }

    fn redirect(&self, upstream: Upstream) {
        self.redirect(upstream);
    }

    fn tap(&self) -> Option<&LinkTap> {
        self.tap()
    }

    fn wake_connections(&self) {
        self.wake_connections();
    }

    fn as_link(&self) -> Option<&Link> {
        Some(self)
    }
}
