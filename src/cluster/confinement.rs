//! What containers may do: what their servers need, and no more.

use testcontainers::bollard::models::HostConfig;

/// Images begin as root, give their folders to a user of the server and become that user.
const CAPABILITIES: [&str; 5] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"];
/// Bytes: a ZooKeeper's heap is at most one GiB unless it is told otherwise.
const MEMORY: i64 = 2 << 30;
/// Processes and threads: a JVM has some hundred.
const PROCESSES: i64 = 2048;

/// Takes from a container what no server needs.
pub fn confine(host: &mut HostConfig) {
    host.cap_drop = Some(vec!["ALL".into()]);
    host.cap_add = Some(CAPABILITIES.map(str::to_owned).to_vec());
    host.security_opt = Some(vec!["no-new-privileges".into()]);
    host.memory = Some(MEMORY);
    host.pids_limit = Some(PROCESSES);
}
