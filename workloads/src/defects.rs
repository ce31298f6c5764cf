//! Small defects that tests plant in the recipes, one at a time, to see that hunts find each of them.
//!
//! They are there with the feature `defects` alone, which no binary that is given away has. [`VARIABLE`] in the environment names the one
//! that is planted.

/// The variable that names the planted defect.
#[cfg(feature = "defects")]
pub const VARIABLE: &str = "PLANTED_DEFECT";

/// A defect, and the recipe that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defect {
    pub name: &'static str,
    pub recipe: &'static str,
}

/// All defects.
pub const DEFECTS: [Defect; 23] = [
    zk("the queue is in the order of names"),
    zk("who is woken is first"),
    zk("everybody watches the first"),
    zk("whose predecessor is gone is first"),
    zk("an unanswered create is forgotten"),
    zk("an unanswered delete is forgotten"),
    zk("the node stays when the wait is over"),
    zk("doubt comes with the end of the session"),
    etcd("the queue is in the order of names"),
    etcd("who is woken is first"),
    etcd("everybody watches the first"),
    etcd("the key stays when the wait is over"),
    etcd("nobody doubts"),
    etcd("doubt comes after the lease"),
    planted("redis-set-px-lua", "a release compares nothing"),
    planted("redis-set-px-lua", "all of the lease counts from the reply"),
    planted("redis-set-px-lua", "an unanswered SET has failed"),
    planted("redis-set-px-lua", "an unanswered SET has succeeded"),
    planted("redis-set-px-lua", "a release is always ok"),
    planted("redis-set-px-lua", "doubt comes after the lease"),
    planted("redis-watchdog", "an error ends the renewal"),
    planted("redlock", "half of the masters are enough"),
    planted("redlock", "all of the lease counts from the replies"),
];

const fn zk(name: &'static str) -> Defect {
    planted("zk-predecessor-watch", name)
}

const fn etcd(name: &'static str) -> Defect {
    planted("etcd-mutex", name)
}

const fn planted(recipe: &'static str, name: &'static str) -> Defect {
    Defect { name, recipe }
}

/// Whether a recipe has this defect now.
#[cfg(feature = "defects")]
pub(crate) fn has_defect(recipe: &str, name: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    debug_assert!(
        DEFECTS
            .iter()
            .any(|defect| (defect.recipe, defect.name) == (recipe, name))
    );
    let planted = PLANTED.get_or_init(|| std::env::var(VARIABLE).ok());
    let planted = planted.as_deref().and_then(|planted| planted.split_once(": "));
    planted == Some((recipe, name))
}

#[cfg(not(feature = "defects"))]
pub(crate) const fn has_defect(_recipe: &str, _name: &str) -> bool {
    false
}
