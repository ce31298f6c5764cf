//! The container of a Toxiproxy, on the host's network: it reaches servers of either runtime, and clients reach it, all on
//! loopback.

use std::net::SocketAddr;
use std::time::Duration;

use testcontainers::{ContainerAsync, GenericImage, ImageExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::ClusterError;
use super::confinement::confine;
use super::engine::{engine, engine_name, provide, start_container};
use super::image_name::in_two_parts;
use super::local::free_address;
use super::ready::tail;
use crate::limits::READY_POLL;

/// Time until it serves.
const SERVES: Duration = Duration::from_secs(60);
/// Toxiproxy's official image.
pub const TOXIPROXY_IMAGE: &str = "ghcr.io/shopify/toxiproxy:2.12.0";

pub struct Sidecar {
    container: ContainerAsync<GenericImage>,
    address: SocketAddr,
}

impl Sidecar {
    /// Starts a Toxiproxy from `image`, or from the official one, and waits until its API accepts connections.
    pub async fn toxiproxy(run: &str, image: Option<&str>) -> Result<Self, ClusterError> {
        let image = image.unwrap_or(TOXIPROXY_IMAGE);
        engine().await?;
        let no_image = |why: String| {
            ClusterError::Nothing(format!(
                "no image {image}: {why}\nhint: name another image with --proxy-image, or use a running Toxiproxy: --proxy toxiproxy=HOST:PORT"
            ))
        };
        provide(image).await.map_err(no_image)?;
        let failed = |why: String| ClusterError::Engine(format!("could not start a Toxiproxy from {image}: {why}"));
        // the container is on the host's network, so the engine chooses no port for it
        let address = free_address().map_err(|error| failed(error.to_string()))?;
        let (name, tag) = in_two_parts(image);
        let container_name = format!("{}-toxiproxy", engine_name(run));
        let request = GenericImage::new(name, tag)
            .with_network("host")
            .with_host_config_modifier(|host| {
                host.publish_all_ports = Some(false);
                confine(host);
            })
            .with_cmd([format!("-host={}", address.ip()), format!("-port={}", address.port())]);
        let container = start_container(request, &container_name, run).await.map_err(failed)?;
        let sidecar = Self { container, address };
        match sidecar.wait(SERVES).await {
            Ok(()) => Ok(sidecar),
            Err(why) => {
                sidecar.stop().await;
                Err(failed(why))
            }
        }
    }

    /// Returns the address of its API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    async fn wait(&self, patience: Duration) -> Result<(), String> {
        let end = Instant::now() + patience;
        loop {
            let Err(error) = TcpStream::connect(self.address).await else {
                return Ok(());
            };
            if !matches!(self.container.is_running().await, Ok(true)) {
                let mut said = self.container.stderr_to_vec().await.unwrap_or_default();
                said.extend(self.container.stdout_to_vec().await.unwrap_or_default());
                let said = String::from_utf8_lossy(&said);
                return Err(format!("its container ended: {}", tail(&said)));
            }
            if Instant::now() >= end {
                return Err(format!(
                    "nothing answers at {} after {}s: {error}",
                    self.address,
                    patience.as_secs()
                ));
            }
            sleep(READY_POLL).await;
        }
    }

    pub async fn stop(self) {
        let _ = self.container.rm().await;
    }
}
