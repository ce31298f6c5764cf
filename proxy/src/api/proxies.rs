//! The proxies of the API ([`ProxyTable`]): the links of a run, and the proxies that clients of the API made.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::lookup_host;
use tokio::sync::{Mutex, MutexGuard};

use super::metrics::labels;
use super::request::{ApiError, parse};
use super::{ApiChange, OnChange};
use crate::busy_poll::ProxyRuntime;
use crate::byte_meter::MeterSide;
use crate::direction::Direction;
use crate::link::{Link, LinkControl};
use crate::link_state::Disconnect;
use crate::toxic::{InvalidToxic, Toxic, ToxicKind};

/// A proxy as Toxiproxy shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProxyView {
    name: String,
    listen: String,
    upstream: String,
    enabled: bool,
    pub toxics: Vec<Toxic>,
}

#[derive(Deserialize)]
struct ProxyRequest {
    name: Option<String>,
    listen: Option<String>,
    upstream: Option<String>,
    enabled: Option<bool>,
}

impl ProxyRequest {
    /// Returns the first required field that a new proxy lacks.
    fn missing(&self) -> Option<&'static str> {
        let fields = [("name", &self.name), ("upstream", &self.upstream)];
        let missing = fields
            .iter()
            .find(|(_, given)| given.as_deref().is_none_or(str::is_empty));
        missing.map(|(field, _)| *field)
    }

    /// Resolves its address to listen at, which may take long: the proxies are not to be locked meanwhile.
    async fn listening(&self) -> Result<SocketAddr, ApiError> {
        resolve(self.listen.as_deref().unwrap_or_default()).await
    }
}

#[derive(Deserialize)]
struct ToxicRequest {
    name: Option<String>,
    r#type: Option<String>,
    stream: Option<String>,
    toxicity: Option<f32>,
    #[serde(default)]
    attributes: Value,
}

struct ProxyEntry {
    link: Arc<Link>,
    /// The given address until the proxy listens, then the address with its port.
    listen: String,
    /// The given address, which may be a name.
    upstream: String,
    /// Whether it is a link of the run, which no client may move or delete.
    of_run: bool,
}

type ProxyEntries = BTreeMap<String, ProxyEntry>;

pub struct ProxyTable {
    /// Changed by one request at a time.
    entries: Mutex<ProxyEntries>,
    on: ProxyRuntime,
    seed: u64,
    hear: OnChange,
    calm: AtomicBool,
}

impl std::fmt::Debug for ProxyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProxyTable")
    }
}

impl ProxyTable {
    pub fn new(links: Vec<Arc<Link>>, on: ProxyRuntime, seed: u64, hear: OnChange) -> Self {
        let entry = |link: Arc<Link>| {
            let entry = ProxyEntry {
                listen: link.listen().to_string(),
                upstream: link.upstream().to_string(),
                link: Arc::clone(&link),
                of_run: true,
            };
            (link.name().to_owned(), entry)
        };
        Self {
            entries: Mutex::new(links.into_iter().map(entry).collect()),
            on,
            seed,
            hear,
            calm: AtomicBool::new(false),
        }
    }

    pub async fn all(&self) -> BTreeMap<String, ProxyView> {
        let entries = self.entries.lock().await;
        entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.show()))
            .collect()
    }

    /// Returns the bytes of each direction of every proxy that arrived and that were sent on, with its labels.
    pub async fn traffic(&self) -> Vec<(String, [u64; 2])> {
        let entries = self.entries.lock().await;
        let both = entries.iter().flat_map(|(name, entry)| {
            Direction::BOTH.map(|direction| {
                let labels = labels(direction, &entry.listen, name, &entry.upstream);
                (labels, entry.link.counters().carried(direction))
            })
        });
        both.collect()
    }

    pub async fn one(&self, name: &str) -> Result<ProxyView, ApiError> {
        Ok(find(&*self.entries.lock().await, name)?.show())
    }

    pub async fn create(&self, body: &[u8]) -> Result<ProxyView, ApiError> {
        let wanted: ProxyRequest = parse(body)?;
        if let Some(field) = wanted.missing() {
            return Err(ApiError::missing(field));
        }
        let listening = wanted.listening().await;
        let mut entries = self.changing().await?;
        if wanted.name.as_ref().is_some_and(|name| entries.contains_key(name)) {
            return Err(ApiError::new(409, "proxy already exists"));
        }
        self.make(&mut entries, wanted, listening?)
    }

    fn make(
        &self,
        entries: &mut ProxyEntries,
        wanted: ProxyRequest,
        address: SocketAddr,
    ) -> Result<ProxyView, ApiError> {
        let (name, listen) = (wanted.name.unwrap_or_default(), wanted.listen.unwrap_or_default());
        let upstream = wanted.upstream.unwrap_or_default();
        let digest = name
            .bytes()
            .fold(self.seed, |seed, byte| seed.rotate_left(7) ^ u64::from(byte));
        let seed = ChaCha8Rng::seed_from_u64(digest).random();
        let to = upstream_of(&upstream);
        let link = Link::closed(name.clone(), address, to, seed, MeterSide::Own, &self.on);
        // as Toxiproxy does: its clients connect to see whether a proxy is up
        let link = link.with_refusal(Disconnect::Closed);
        let mut entry = ProxyEntry {
            link: Arc::new(link),
            listen,
            upstream,
            of_run: false,
        };
        if wanted.enabled.unwrap_or(true) {
            entry.turn_on()?;
        }
        let shown = entry.show();
        entries.insert(name, entry);
        self.tell(&shown.name, "made", None);
        Ok(shown)
    }

    /// Makes all proxies of a list; a proxy with the same addresses stays. Returns the proxies up to the first error.
    pub async fn populate(&self, body: &[u8]) -> (Vec<ProxyView>, Option<ApiError>) {
        let mut made = Vec::new();
        let refusal = self.populate_all(body, &mut made).await.err();
        (made, refusal)
    }

    async fn populate_all(&self, body: &[u8], made: &mut Vec<ProxyView>) -> Result<(), ApiError> {
        let wanted: Vec<ProxyRequest> = parse(body)?;
        for (number, proxy) in wanted.iter().enumerate() {
            if let Some(field) = proxy.missing() {
                return Err(ApiError::missing(format!("{field} at proxy {}", number + 1)));
            }
        }
        let mut listening = Vec::new();
        for proxy in &wanted {
            listening.push(proxy.listening().await);
        }
        let mut entries = self.changing().await?;
        for (proxy, address) in wanted.into_iter().zip(listening) {
            let address = address?;
            if let Some(entry) = proxy.name.as_ref().and_then(|name| entries.get(name)) {
                if entry.link.listen() == address && Some(&entry.upstream) == proxy.upstream.as_ref() {
                    made.push(entry.show());
                    continue;
                }
                entry.must_not_be_of_a_run()?;
                entry.link.stop_accepting().await;
            }
            made.push(self.make(&mut entries, proxy, address)?);
        }
        Ok(())
    }

    pub async fn update(&self, name: &str, body: &[u8]) -> Result<ProxyView, ApiError> {
        let wanted = parse::<ProxyRequest>(body);
        let listening = match &wanted {
            Ok(wanted) if wanted.listen.is_some() => Some(wanted.listening().await),
            _ => None,
        };
        let mut entries = self.changing().await?;
        let entry = entries.get_mut(name).ok_or_else(no_proxy)?;
        let wanted = wanted?;
        let listen = wanted.listen.unwrap_or_else(|| entry.listen.clone());
        let upstream = wanted.upstream.unwrap_or_else(|| entry.upstream.clone());
        let enabled = wanted.enabled.unwrap_or(entry.link.is_open());
        let address = listening.transpose()?.unwrap_or(entry.link.listen());
        if address != entry.link.listen() || upstream != entry.upstream {
            entry.must_not_be_of_a_run()?;
            entry.link.stop_accepting().await;
            entry.link.move_to(address, upstream_of(&upstream));
            (entry.listen, entry.upstream) = (listen, upstream);
        }
        if enabled && !entry.link.is_open() {
            entry.turn_on()?;
            self.tell(name, "turned on", None);
        } else if !enabled && entry.link.is_open() {
            self.tell(name, "turned off", None);
            entry.link.stop_accepting().await;
        }
        Ok(entry.show())
    }

    pub async fn delete(&self, name: &str) -> Result<(), ApiError> {
        let mut entries = self.changing().await?;
        let entry = find(&entries, name)?;
        entry.must_not_be_of_a_run()?;
        entry.link.stop_accepting().await;
        entries.remove(name);
        self.tell(name, "deleted", None);
        Ok(())
    }

    /// Enables every proxy and removes every toxic.
    pub async fn reset(&self) -> Result<(), ApiError> {
        let mut entries = self.changing().await?;
        self.undo(&mut entries)
    }

    /// As [`ProxyTable::reset`], and refuses all later changes.
    pub async fn calm(&self) -> Result<(), String> {
        let mut entries = self.entries.lock().await;
        self.calm.store(true, Relaxed);
        self.undo(&mut entries).map_err(|refusal| refusal.error)
    }

    fn undo(&self, entries: &mut ProxyEntries) -> Result<(), ApiError> {
        for (name, entry) in entries {
            let closed = !entry.link.is_open();
            if closed {
                entry.turn_on()?;
            }
            if closed || !entry.link.toxics().is_empty() {
                entry.link.set_toxics(Vec::new());
                self.tell(name, "reset", None);
            }
        }
        Ok(())
    }

    pub async fn toxic(&self, proxy: &str, name: &str) -> Result<Toxic, ApiError> {
        let entries = self.entries.lock().await;
        let toxics = find(&entries, proxy)?.link.toxics();
        toxics
            .iter()
            .find(|toxic| toxic.name == name)
            .cloned()
            .ok_or_else(no_toxic)
    }

    pub async fn add_toxic(&self, proxy: &str, body: &[u8]) -> Result<Toxic, ApiError> {
        let entries = self.changing().await?;
        let link = &find(&entries, proxy)?.link;
        let toxic = toxic_of(parse(body)?, &link.toxics())?;
        self.tell(proxy, "toxic put on", Some(&toxic));
        let mut toxics = link.toxics().to_vec();
        toxics.push(toxic.clone());
        link.set_toxics(toxics);
        Ok(toxic)
    }

    /// Changes the attributes and the toxicity of a toxic.
    pub async fn update_toxic(&self, proxy: &str, name: &str, body: &[u8]) -> Result<Toxic, ApiError> {
        let entries = self.changing().await?;
        let link = &find(&entries, proxy)?.link;
        let mut toxics = link.toxics().to_vec();
        let toxic = toxics
            .iter_mut()
            .find(|toxic| toxic.name == name)
            .ok_or_else(no_toxic)?;
        let wanted: ToxicRequest = parse(body)?;
        let mut attributes = toxic.kind.attributes();
        if let (Some(there), Some(given)) = (attributes.as_object_mut(), wanted.attributes.as_object()) {
            there.extend(given.clone());
        }
        toxic.kind = ToxicKind::parse(&toxic.kind.name(), &attributes).map_err(unfit)?;
        toxic.toxicity = wanted.toxicity.unwrap_or(toxic.toxicity);
        let toxic = toxic.clone();
        self.tell(proxy, "toxic changed", Some(&toxic));
        link.set_toxics(toxics);
        Ok(toxic)
    }

    pub async fn delete_toxic(&self, proxy: &str, name: &str) -> Result<(), ApiError> {
        let entries = self.changing().await?;
        let link = &find(&entries, proxy)?.link;
        let (gone, stay): (Vec<Toxic>, Vec<Toxic>) =
            link.toxics().iter().cloned().partition(|toxic| toxic.name == name);
        let gone = gone.first().ok_or_else(no_toxic)?;
        link.set_toxics(stay);
        self.tell(proxy, "toxic taken away", Some(gone));
        Ok(())
    }

    async fn changing(&self) -> Result<MutexGuard<'_, ProxyEntries>, ApiError> {
        let entries = self.entries.lock().await;
        if self.calm.load(Relaxed) {
            return Err(ApiError::new(
                409,
                "the faults of this run are over, so its proxies cannot be changed",
            ));
        }
        Ok(entries)
    }

    fn tell(&self, proxy: &str, did: &'static str, toxic: Option<&Toxic>) {
        (self.hear)(ApiChange {
            proxy: proxy.to_owned(),
            did,
            toxic: toxic.cloned(),
        });
    }
}

impl ProxyEntry {
    fn show(&self) -> ProxyView {
        let mut toxics = self.link.toxics().to_vec();
        toxics.sort_by_key(|toxic| toxic.stream);
        ProxyView {
            name: self.link.name().to_owned(),
            listen: self.listen.clone(),
            upstream: self.upstream.clone(),
            enabled: self.link.is_open(),
            toxics,
        }
    }

    fn turn_on(&mut self) -> Result<(), ApiError> {
        let failed = |error| cannot_listen(self.link.listen(), &error);
        self.link.start_accepting().map_err(failed)?;
        self.listen = self.link.listen().to_string();
        Ok(())
    }

    fn must_not_be_of_a_run(&self) -> Result<(), ApiError> {
        if self.of_run {
            let why = "is a link of a run: it takes toxics and can be turned off; its addresses are fixed and it cannot be deleted";
            return Err(ApiError::new(409, format!("{} {why}", self.link.name())));
        }
        Ok(())
    }
}

fn find<'a>(entries: &'a ProxyEntries, name: &str) -> Result<&'a ProxyEntry, ApiError> {
    entries.get(name).ok_or_else(no_proxy)
}

fn no_proxy() -> ApiError {
    ApiError::new(404, "proxy not found")
}

fn no_toxic() -> ApiError {
    ApiError::new(404, "toxic not found")
}

fn unfit(unfit: InvalidToxic) -> ApiError {
    match unfit {
        InvalidToxic::Type => ApiError::new(400, "invalid toxic type"),
        InvalidToxic::Attributes(why) => ApiError::bad_body(why),
    }
}

fn toxic_of(wanted: ToxicRequest, there: &[Toxic]) -> Result<Toxic, ApiError> {
    let stream = Direction::named(&wanted.stream.as_deref().unwrap_or("downstream").to_lowercase());
    let stream =
        stream.ok_or_else(|| ApiError::new(400, "stream was invalid, can be either upstream or downstream"))?;
    let kind = wanted.r#type.unwrap_or_default();
    let parsed = ToxicKind::parse(&kind, &wanted.attributes);
    if parsed == Err(InvalidToxic::Type) {
        return Err(unfit(InvalidToxic::Type));
    }
    let name = wanted.name.filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| format!("{kind}_{}", stream.name()));
    if there.iter().any(|toxic| toxic.name == name) {
        return Err(ApiError::new(409, "toxic already exists"));
    }
    Ok(Toxic {
        name,
        kind: parsed.map_err(unfit)?,
        stream,
        toxicity: wanted.toxicity.unwrap_or(1.0),
    })
}

/// Returns the error in Go's words, with the resolved address: `bind: address already in use`.
fn cannot_listen(listen: SocketAddr, error: &std::io::Error) -> ApiError {
    let text = error.to_string().to_lowercase();
    let text = text.split(" (os error").next().unwrap_or_default();
    ApiError::new(500, format!("listen tcp {listen}: bind: {text}"))
}

/// Returns where to connect to. Without a host it is this machine.
fn upstream_of(given: &str) -> Arc<str> {
    match given.starts_with(':') {
        true => format!("localhost{given}").into(),
        false => given.into(),
    }
}

/// Resolves `host:port`, an address to listen at. No host stands for every address, and no port for a free one.
async fn resolve(address: &str) -> Result<SocketAddr, ApiError> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = match host {
        // a socket of IPv6 takes both kinds, where there is IPv6
        "" if std::net::UdpSocket::bind("[::]:0").is_ok() => "[::]",
        "" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let found = lookup_host(format!("{host}:{port}")).await;
    let found = found.map_err(|error| ApiError::new(500, format!("address {address}: {error}")))?;
    found
        .into_iter()
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| ApiError::new(500, format!("address {address}: no address")))
}
