//! Worlds, the network, and every recipe on simulated servers: one program, so that one is linked.

mod etcd_servers;
mod nats_servers;
mod network;
mod recipes;
mod redis_servers;
mod world;
mod zk_servers;
