//! The client links of a run and their proxy: the built-in one, a Toxiproxy that runs already, or one that is started.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use harness_checkers::history::{NemesisFact, ProxyChange};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Map;

use crate::cluster::Cluster;
#[cfg(feature = "docker")]
use crate::cluster::Sidecar;
#[cfg(feature = "toxiproxy")]
use crate::cluster::leftovers::{claim::Claim, proxies::ClaimedProxies};
use crate::config::{Config, ProxyChoice};
use crate::event::ProgressEvent;
use crate::faults::Links;
use crate::process::not_started;
use crate::run::context::RunContext;
use crate::run::setup::open_files;
use crate::run::{RunError, RunSpec};
#[cfg(feature = "toxiproxy")]
use harness_proxy::Toxiproxy;
use harness_proxy::api::{Api, ApiChange, ApiToken};
use harness_proxy::{Link, LinkTap, Proxy, TapHub};

/// The links of all clients and the proxy that carries them; they live until the run is over.
pub struct ClientLinks {
    pub links: BTreeMap<(u32, u32), Arc<Link>>,
    proxy: Proxy,
    #[cfg(feature = "toxiproxy")]
    toxiproxy: Option<Arc<Toxiproxy>>,
    /// The claim of the proxies on a Toxiproxy that outlives the run.
    #[cfg(feature = "toxiproxy")]
    claim: Option<Claim>,
    #[cfg(feature = "docker")]
    sidecar: Option<Sidecar>,
}

impl ClientLinks {
    /// Opens one link for each client and server, in the order of both, without a fault.
    pub async fn open(spec: &RunSpec, cluster: &Cluster, exchange: &Arc<TapHub>) -> Result<Self, RunError> {
        open_files::make_room(&spec.config).map_err(RunError::Proxy)?;
        let mut proxy = Proxy::start()
            .map_err(|error| RunError::Proxy(format!("no thread for the proxy: {}", not_started(error))))?;
        if let Some(tls) = cluster.tls() {
            proxy.end_tls(tls.server().map_err(RunError::Proxy)?);
        }
        let mut links = Self {
            links: BTreeMap::new(),
            proxy,
            #[cfg(feature = "toxiproxy")]
            toxiproxy: None,
            #[cfg(feature = "toxiproxy")]
            claim: None,
            #[cfg(feature = "docker")]
            sidecar: None,
        };
        let opened = match &spec.config.proxy {
            ProxyChoice::BuiltIn => links.built_in(&spec.config, cluster, exchange),
            other => links.through(other, spec, cluster).await,
        };
        match opened {
            Ok(()) => Ok(links),
            Err(why) => {
                links.close().await;
                Err(RunError::Proxy(why))
            }
        }
    }

    /// Returns the address at which a client reaches a server: its link, under the name that other hosts know.
    pub fn address(&self, config: &Config, client: u32, server: u32) -> String {
        let listens = self.links[&(client, server)].listen();
        match &config.attach.advertise {
            None => listens.to_string(),
            Some(host) if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]:{}", listens.port()),
            Some(host) => format!("{host}:{}", listens.port()),
        }
    }

    /// Returns the links for faults.
    pub fn any(&self) -> Links {
        let links = self.links.iter();
        links.map(|(ends, link)| (*ends, Arc::clone(link).into())).collect()
    }

    fn built_in(&mut self, config: &Config, cluster: &Cluster, exchange: &Arc<TapHub>) -> Result<(), String> {
        let mut seeds = ChaCha8Rng::seed_from_u64(config.seed ^ 0x11_4b5);
        let listen = match &config.attach.advertise {
            None => Ipv4Addr::LOCALHOST.into(),
            Some(host) => listens_for(host),
        };
        for (ends, name, address) in wanted(config, cluster) {
            let seed = seeds.random();
            let tap = config.has_taps().then(|| LinkTap::new(exchange, ends.0, name.clone()));
            let link = self.proxy.open(listen, name.clone(), address, seed, tap);
            let link = link.map_err(|error| format!("could not open the link {name}: {error}"))?;
            self.links.insert(ends, link);
        }
        Ok(())
    }

    #[cfg(feature = "toxiproxy")]
    async fn through(&mut self, choice: &ProxyChoice, spec: &RunSpec, cluster: &Cluster) -> Result<(), String> {
        let at = self.toxiproxy_at(choice, &spec.name).await?;
        let proxies = ClaimedProxies::of(&spec.name, &at);
        if matches!(choice, ProxyChoice::ToxiproxyAt(_)) {
            let claim = proxies.claim(&spec.name);
            self.claim = Some(claim.map_err(|error| error.to_string())?);
        }
        let toxiproxy = Toxiproxy::connect(&at).await?;
        self.toxiproxy = Some(Arc::clone(&toxiproxy));
        let (version, address) = (toxiproxy.version(), toxiproxy.address());
        let text = format!("faults go through Toxiproxy {version} at {address}");
        spec.progress.send(ProgressEvent::Note(text));
        let wanted = wanted(&spec.config, cluster);
        let named = wanted.iter().map(|(_, name, address)| (name.clone(), *address));
        let named: Vec<_> = named.collect();
        let links = self.proxy.links_through(&toxiproxy, &proxies.prefix, &named).await?;
        self.links = wanted.into_iter().map(|(ends, ..)| ends).zip(links).collect();
        Ok(())
    }

    #[cfg(not(feature = "toxiproxy"))]
    async fn through(&mut self, _: &ProxyChoice, _: &RunSpec, _: &Cluster) -> Result<(), String> {
        Err("this harness was built without toxiproxy".into())
    }

    #[cfg(feature = "toxiproxy")]
    async fn toxiproxy_at(&mut self, choice: &ProxyChoice, run: &str) -> Result<String, String> {
        match choice {
            ProxyChoice::ToxiproxyAt(at) => Ok(at.clone()),
            #[cfg(feature = "docker")]
            ProxyChoice::Toxiproxy { image } => {
                let started = Sidecar::toxiproxy(run, image.as_deref()).await;
                let sidecar = started.map_err(|error| error.to_string())?;
                let at = sidecar.address().to_string();
                self.sidecar = Some(sidecar);
                Ok(at)
            }
            _ => Err(format!(
                "this harness was built without docker, so it cannot start a Toxiproxy for {run}"
            )),
        }
    }

    /// Serves Toxiproxy's API, if the user wants it, and records changes through it.
    pub fn serve_api(&self, run: &Arc<RunContext>) -> Result<Option<Api>, RunError> {
        let Some(at) = run.spec.config.proxy_api else {
            return Ok(None);
        };
        let links = self.links.values().cloned().collect();
        let told = Arc::clone(run);
        let on_change = Box::new(move |change| record(&told, &change));
        let token = run.spec.config.proxy_api_token_file.as_deref();
        let token = token.map_or_else(|| Ok(ApiToken::default()), ApiToken::read);
        let token = token.map_err(RunError::Proxy)?;
        if let Some(warning) = token.warning(at) {
            let hint = "hint: --proxy-api-token-file FILE makes it ask for one";
            for line in [format!("warning: {warning}"), hint.to_owned()] {
                run.progress().send(ProgressEvent::Note(line));
            }
        }
        let api = Api::serve(&self.proxy, links, (at, token), run.spec.config.seed, on_change)
            .map_err(|error| RunError::Proxy(format!("could not serve the API at {at}: {error}")))?;
        let text = format!("Toxiproxy's API is at http://{}", api.address());
        run.progress().send(ProgressEvent::Note(text));
        Ok(Some(api))
    }

    /// Ends every link and its proxy.
    pub async fn close(self) {
        drop(self.links);
        #[cfg(feature = "toxiproxy")]
        if let Some(toxiproxy) = self.toxiproxy {
            // if it does not answer, the run has reported that already
            let _ = toxiproxy.close().await;
        }
        #[cfg(feature = "toxiproxy")]
        drop(self.claim);
        #[cfg(feature = "docker")]
        if let Some(sidecar) = self.sidecar {
            sidecar.stop().await;
        }
        drop(self.proxy);
    }
}

/// Returns the unspecified address of the kind of `host`: a name may be one of either.
fn listens_for(host: &str) -> IpAddr {
    match host.parse() {
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        Ok(IpAddr::V4(_)) | Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Returns the ends, the name and the destination of every link.
fn wanted(config: &Config, cluster: &Cluster) -> Vec<((u32, u32), String, SocketAddr)> {
    let mut wanted = Vec::new();
    for client in 0..config.clients {
        for (server, address) in cluster.endpoints().borrow().servers().into_iter().enumerate() {
            wanted.push(((client, server as u32), format!("c{client}->n{}", server + 1), address));
        }
    }
    wanted
}

/// Records a change made through the proxy API. It is no planned window but must appear in the history.
fn record(run: &RunContext, change: &ApiChange) {
    let toxic_fields = change.toxic.as_ref().map(serde_json::to_value);
    run.recorder.nemesis(&NemesisFact::ProxyChange(ProxyChange {
        proxy: change.proxy.clone(),
        did: change.did.to_owned(),
        toxic: toxic_fields.and_then(|fields| fields.ok()?.as_object().cloned()),
        extra: Map::new(),
    }));
    let (proxy, did) = (&change.proxy, &change.did);
    let toxic = change.toxic.as_ref().map(|toxic| format!(" ({})", toxic.name));
    let text = format!("through the API: {proxy} {did}{}", toxic.unwrap_or_default());
    run.progress().send(ProgressEvent::Note(text));
}
