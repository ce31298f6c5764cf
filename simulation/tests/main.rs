//! Worlds, the network, and every recipe on simulated servers: one program, so that one is linked.

mod etcd_servers;
mod nats_servers;
mod network;
mod recipes;
mod redis_servers;
mod world;
mod zk_servers;

/// Returns the memory of this process, in kilobytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
