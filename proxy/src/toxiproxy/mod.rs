//! A Toxiproxy as the proxy of a run, driven with the `toxiproxy_rust` crate.
//!
//! The crate blocks, panics, and ignores the server's answers. So it runs on a thread where its panics become errors; the sender of a
//! command waits for a bounded time; and the toxics are read back and compared. Each link is `client → meter → Toxiproxy → meter → server`:
//! Toxiproxy does not report what it holds back, the meters do.

mod driver;
mod http;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::external::{ExternalProxyDriver, PendingReply, within};
use super::link_state::Layer;
use super::toxic::Toxic;
use crate::limits::{DIAL, REMOTE, REMOTE_GOODBYE};
use driver::{DriverCommand, ToxiproxyDriver};

/// A Toxiproxy that answers, and its driver. Dropping it deletes what it made there.
#[derive(Debug)]
pub struct Toxiproxy {
    address: SocketAddr,
    /// The address of harness, as the Toxiproxy sees it.
    own: IpAddr,
    version: String,
    commands: Option<mpsc::Sender<DriverCommand>>,
    /// Disconnected when the driver has ended.
    over: Mutex<mpsc::Receiver<()>>,
}

impl Toxiproxy {
    /// Finds the Toxiproxy at `HOST:PORT` and asks for its version. The error says what was tried.
    pub async fn connect(at: &str) -> Result<Arc<Self>, String> {
        let failed = |why: String| format!("no Toxiproxy at {at}: {why}");
        let found = lookup_host(at).await.map_err(|error| failed(error.to_string()))?;
        let mut found: Vec<SocketAddr> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        let address = *found.first().ok_or_else(|| failed("the name has no address".into()))?;
        let stream = timeout(DIAL, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| failed(format!("no answer within {}s", DIAL.as_secs())))?;
        let own = stream
            .and_then(|stream| stream.local_addr())
            .map_err(|error| failed(error.to_string()))?
            .ip();
        let (commands, taken) = mpsc::channel();
        let (ending, over) = mpsc::channel();
        let started = thread::Builder::new().name(driver::THREAD.into()).spawn(move || {
            ToxiproxyDriver::new(address).run(&taken);
            drop(ending);
        });
        started.map_err(|error| failed(error.to_string()))?;
        let mut toxiproxy = Self {
            address,
            own,
            version: String::new(),
            commands: Some(commands),
            over: Mutex::new(over),
        };
        let version = toxiproxy.ask(ToxiproxyDriver::version);
        toxiproxy.version = within(REMOTE, version).await.map_err(failed)?;
        Ok(Arc::new(toxiproxy))
    }

    /// `2.12.0`
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address at which meters on its server side must listen.
    pub(super) fn own(&self) -> IpAddr {
        self.own
    }

    /// Makes a proxy to each of the named addresses. Returns their addresses for clients, in the same order.
    pub(super) async fn open(&self, proxies: Vec<(String, SocketAddr)>) -> Result<Vec<SocketAddr>, String> {
        let listen = match self.address.ip() {
            ip if ip.is_loopback() => ip,
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let opened = self.carry_out(REMOTE, move |driver| driver.open(&proxies, listen));
        let at = |port| SocketAddr::new(self.address.ip(), port);
        Ok(opened.await?.into_iter().map(at).collect())
    }

    /// Returns the names of all proxies there, whichever client made them.
    pub async fn proxies(&self) -> Result<Vec<String>, String> {
        self.carry_out(REMOTE, ToxiproxyDriver::list).await
    }

    /// Deletes proxies, such as those of a run that was killed. One that is not there is no error.
    pub async fn delete(&self, proxies: Vec<String>) -> Result<(), String> {
        self.carry_out(REMOTE, move |driver| driver.delete(&proxies)).await
    }

    /// Deletes the proxies that were made there.
    pub async fn close(&self) -> Result<(), String> {
        self.carry_out(REMOTE_GOODBYE, ToxiproxyDriver::close).await
    }

    /// Sends the driver a command and waits for its reply. The error names the Toxiproxy.
    async fn carry_out<T: Send + 'static>(
        &self,
        patience: Duration,
        act: impl FnOnce(&mut ToxiproxyDriver) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let done = within(patience, self.ask(act)).await;
        done.map_err(|why| format!("{}: {why}", self.name()))
    }

    fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut ToxiproxyDriver) -> Result<T, String> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, String>> {
        let (reply, answer) = oneshot::channel();
        if let Some(commands) = &self.commands {
            // where the driver is gone, the reply is dropped and the answer says so
            let _ = commands.send(Box::new(move |driver| drop(reply.send(driver.guarded(act)))));
        }
        answer
    }
}

impl ExternalProxyDriver for Toxiproxy {
    fn name(&self) -> String {
        format!("toxiproxy at {}", self.address)
    }

    fn put(&self, layer: Layer, proxies: Vec<String>, toxics: Vec<Toxic>) -> PendingReply {
        self.ask(move |driver| driver.put(layer, &proxies, &toxics))
    }

    fn lift(&self, layer: Layer, proxies: Vec<String>) -> PendingReply {
        self.ask(move |driver| driver.lift(layer, &proxies))
    }
}

impl Drop for Toxiproxy {
    fn drop(&mut self) {
        drop(self.commands.take());
        // a driver that is stuck in a call is abandoned
        if let Ok(over) = self.over.get_mut() {
            let _ = over.recv_timeout(REMOTE_GOODBYE);
        }
    }
}
