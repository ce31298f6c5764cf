//! The confinement of containers: the capabilities and the limits that their servers need.

use testcontainers::bollard::models::HostConfig;

/// Images start as root, give their folders to a user of the server and become that user.
const CAPABILITIES: [&str; 5] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"];
/// Bytes: by default a ZooKeeper's heap is at most one GiB.
const MEMORY: i64 = 2 << 30;
/// Processes and threads: a JVM has some hundred.
const PROCESSES: i64 = 2048;

/// Removes capabilities that no server needs, and sets limits.
pub fn confine(host: &mut HostConfig) {
    host.cap_drop = Some(vec!["ALL".into()]);
    host.cap_add = Some(CAPABILITIES.map(str::to_owned).to_vec());
    host.security_opt = Some(vec!["no-new-privileges".into()]);
    host.memory = Some(MEMORY);
    host.pids_limit = Some(PROCESSES);
}
