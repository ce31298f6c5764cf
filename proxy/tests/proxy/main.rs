//! The proxy over real sockets: links and their behaviours, message rules, peer partitions, Toxiproxy's API and its driver.

mod congestion;
mod links;
mod messages;
mod peers;
mod rig;
mod toxics;
#[cfg(feature = "toxiproxy")]
mod toxiproxy;
