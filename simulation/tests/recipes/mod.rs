//! The recipes of the catalogue, unmodified, on simulated servers: five clients, a hundred grants, no two holders at once.

mod etcd;
mod load;
mod nats;
mod promises;
mod redis;
mod repeat;
mod zk;
