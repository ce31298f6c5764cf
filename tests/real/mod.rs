//! Tests of the command on real servers: broken locks are detected, correct locks pass, and every fault has an effect.
//! Tests below `docker` need an engine with the images, those below `browser` a Chromium; `make test` provides both and
//! says so if it cannot.

mod accidents;
mod adapters;
mod attached;
mod authentication;
mod bisect;
mod client_check;
mod clocks;
mod deaths;
mod disks;
mod encryption;
mod faults;
mod foreign;
mod hunt;
mod images;
mod init;
mod kube;
mod locks;
mod membership;
mod messages;
mod metrics;
mod processes;
mod proxies;
mod redis_topologies;
mod rifts;
mod roles;
mod safety;
mod settings;
mod sql;
mod stores;
mod strangers;
mod suite;
mod taps;
mod terminal;
mod told;
mod upgrades;
mod versions;
