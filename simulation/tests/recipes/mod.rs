//! The recipes of the catalogue, unmodified, on simulated servers: five clients, a hundred grants, no two holders at once.

mod load;
mod promises;
mod repeat;
mod stores;
