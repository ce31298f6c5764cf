//! What the API knows: the links of a run, and the proxies that clients of the API made.

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

use super::answers::{Refusal, parse};
use super::{Hear, Poke};
use crate::link::Link;
use crate::meter::Side;
use crate::toxic::{Kind, Stream, Toxic, Unfit};
use crate::vigil::Carrier;

/// A proxy as Toxiproxy shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    name: String,
    listen: String,
    upstream: String,
    enabled: bool,
    pub toxics: Vec<Toxic>,
}

#[derive(Deserialize)]
struct WantedProxy {
    name: Option<String>,
    listen: Option<String>,
    upstream: Option<String>,
    enabled: Option<bool>,
}

#[derive(Deserialize)]
struct WantedToxic {
    name: Option<String>,
    r#type: Option<String>,
    stream: Option<String>,
    toxicity: Option<f32>,
    #[serde(default)]
    attributes: Value,
}

struct Entry {
    link: Arc<Link>,
    /// As it was given: a name may stand in it.
    upstream: String,
    /// A link of a run, which belongs to the run.
    of_run: bool,
}

type Entries = BTreeMap<String, Entry>;

pub struct Proxies {
    /// Changed by one request at a time.
    entries: Mutex<Entries>,
    on: Carrier,
    seed: u64,
    hear: Hear,
    calm: AtomicBool,
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proxies")
    }
}

impl Proxies {
    pub fn new(links: Vec<Arc<Link>>, on: Carrier, seed: u64, hear: Hear) -> Self {
        let entry = |link: Arc<Link>| {
            let entry = Entry {
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

    pub async fn all(&self) -> BTreeMap<String, Shown> {
        let entries = self.entries.lock().await;
        entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.show()))
            .collect()
    }

    pub async fn one(&self, name: &str) -> Result<Shown, Refusal> {
        Ok(find(&*self.entries.lock().await, name)?.show())
    }

    pub async fn create(&self, body: &[u8]) -> Result<Shown, Refusal> {
        let wanted: WantedProxy = parse(body)?;
        let (name, upstream) = (wanted.name.unwrap_or_default(), wanted.upstream.unwrap_or_default());
        for (field, given) in [("name", &name), ("upstream", &upstream)] {
            if given.is_empty() {
                return Err(Refusal::missing(field));
            }
        }
        let mut entries = self.changing().await?;
        if entries.contains_key(&name) {
            return Err(Refusal::new(409, "proxy already exists"));
        }
        let enabled = wanted.enabled.unwrap_or(true);
        self.make(&mut entries, name, wanted.listen.unwrap_or_default(), upstream, enabled)
            .await
    }

    async fn make(
        &self,
        entries: &mut MutexGuard<'_, Entries>,
        name: String,
        listen: String,
        upstream: String,
        enabled: bool,
    ) -> Result<Shown, Refusal> {
        let ways = (resolve(&listen).await?, resolve(&upstream).await?);
        let digest = name
            .bytes()
            .fold(self.seed, |seed, byte| seed.rotate_left(7) ^ u64::from(byte));
        let seed = ChaCha8Rng::seed_from_u64(digest).random();
        let link = Link::closed(name.clone(), ways, seed, Side::Own, &self.on);
        if enabled {
            link.admit().map_err(|error| cannot_listen(&listen, &error))?;
        }
        let entry = Entry {
            link: Arc::new(link),
            upstream,
            of_run: false,
        };
        let shown = entry.show();
        entries.insert(name, entry);
        self.tell(&shown.name, "made", None);
        Ok(shown)
    }

    /// Makes all proxies of a list, or leaves those alone that are the same already. Returns what it made before it had to
    /// stop.
    pub async fn populate(&self, body: &[u8]) -> (Vec<Shown>, Option<Refusal>) {
        let mut made = Vec::new();
        let refusal = self.populate_all(body, &mut made).await.err();
        (made, refusal)
    }

    async fn populate_all(&self, body: &[u8], made: &mut Vec<Shown>) -> Result<(), Refusal> {
        let wanted: Vec<WantedProxy> = parse(body)?;
        for (number, proxy) in wanted.iter().enumerate() {
            for (field, given) in [("name", &proxy.name), ("upstream", &proxy.upstream)] {
                if given.as_deref().unwrap_or_default().is_empty() {
                    return Err(Refusal::missing(format!("{field} at proxy {}", number + 1)));
                }
            }
        }
        let mut entries = self.changing().await?;
        for proxy in wanted {
            let name = proxy.name.unwrap_or_default();
            let (listen, upstream) = (proxy.listen.unwrap_or_default(), proxy.upstream.unwrap_or_default());
            if let Some(entry) = entries.get(&name) {
                let listens = resolve(&listen).await?;
                if entry.link.listen() == listens && entry.upstream == upstream {
                    made.push(entry.show());
                    continue;
                }
                entry.must_not_be_of_a_run()?;
                entry.link.shut().await;
            }
            let enabled = proxy.enabled.unwrap_or(true);
            made.push(self.make(&mut entries, name, listen, upstream, enabled).await?);
        }
        Ok(())
    }

    pub async fn update(&self, name: &str, body: &[u8]) -> Result<Shown, Refusal> {
        let mut entries = self.changing().await?;
        let entry = find_mut(&mut entries, name)?;
        let wanted: WantedProxy = parse(body)?;
        let listen = wanted.listen.unwrap_or_else(|| entry.link.listen().to_string());
        let upstream = wanted.upstream.unwrap_or_else(|| entry.upstream.clone());
        let ways = (resolve(&listen).await?, resolve(&upstream).await?);
        let enabled = wanted.enabled.unwrap_or(entry.link.is_open());
        if ways.0 != entry.link.listen() || upstream != entry.upstream {
            entry.must_not_be_of_a_run()?;
            entry.link.shut().await;
            entry.link.move_to(ways.0);
            entry.link.redirect(ways.1);
            entry.upstream = upstream;
        }
        if enabled && !entry.link.is_open() {
            entry.link.admit().map_err(|error| cannot_listen(&listen, &error))?;
            self.tell(name, "turned on", None);
        } else if !enabled && entry.link.is_open() {
            self.tell(name, "turned off", None);
            entry.link.shut().await;
        }
        Ok(entry.show())
    }

    pub async fn delete(&self, name: &str) -> Result<(), Refusal> {
        let mut entries = self.changing().await?;
        let entry = find(&entries, name)?;
        entry.must_not_be_of_a_run()?;
        entry.link.shut().await;
        entries.remove(name);
        self.tell(name, "deleted", None);
        Ok(())
    }

    /// Turns every proxy on and takes every toxic away.
    pub async fn reset(&self) -> Result<(), Refusal> {
        let entries = self.changing().await?;
        self.undo(&entries)
    }

    /// As [`Proxies::reset`], and grants no change any more.
    pub async fn calm(&self) -> Result<(), String> {
        let entries = self.entries.lock().await;
        self.calm.store(true, Relaxed);
        self.undo(&entries).map_err(|refusal| refusal.error)
    }

    fn undo(&self, entries: &Entries) -> Result<(), Refusal> {
        for (name, entry) in entries {
            let closed = !entry.link.is_open();
            if closed {
                let listen = entry.link.listen().to_string();
                entry.link.admit().map_err(|error| cannot_listen(&listen, &error))?;
            }
            if closed || !entry.link.toxics().is_empty() {
                entry.link.poison(Vec::new());
                self.tell(name, "reset", None);
            }
        }
        Ok(())
    }

    pub async fn toxic(&self, proxy: &str, name: &str) -> Result<Toxic, Refusal> {
        let entries = self.entries.lock().await;
        let toxics = find(&entries, proxy)?.link.toxics();
        toxics
            .iter()
            .find(|toxic| toxic.name == name)
            .cloned()
            .ok_or_else(no_toxic)
    }

    pub async fn add_toxic(&self, proxy: &str, body: &[u8]) -> Result<Toxic, Refusal> {
        let entries = self.changing().await?;
        let link = &find(&entries, proxy)?.link;
        let toxic = toxic_of(parse(body)?, &link.toxics())?;
        self.tell(proxy, "toxic put on", Some(&toxic));
        let mut toxics = link.toxics().to_vec();
        toxics.push(toxic.clone());
        link.poison(toxics);
        Ok(toxic)
    }

    /// Changes attributes and toxicity, and nothing else of it.
    pub async fn update_toxic(&self, proxy: &str, name: &str, body: &[u8]) -> Result<Toxic, Refusal> {
        let entries = self.changing().await?;
        let link = &find(&entries, proxy)?.link;
        let mut toxics = link.toxics().to_vec();
        let toxic = toxics
            .iter_mut()
            .find(|toxic| toxic.name == name)
            .ok_or_else(no_toxic)?;
        let wanted: WantedToxic = parse(body)?;
        let mut attributes = toxic.kind.attributes();
        if let (Some(there), Some(given)) = (attributes.as_object_mut(), wanted.attributes.as_object()) {
            there.extend(given.clone());
        }
        toxic.kind = Kind::parse(&toxic.kind.name(), &attributes).map_err(unfit)?;
        toxic.toxicity = wanted.toxicity.unwrap_or(toxic.toxicity);
        let toxic = toxic.clone();
        self.tell(proxy, "toxic changed", Some(&toxic));
        link.poison(toxics);
        Ok(toxic)
    }

    pub async fn delete_toxic(&self, proxy: &str, name: &str) -> Result<(), Refusal> {
        let entries = self.changing().await?;
        let link = &find(&entries, proxy)?.link;
        let (gone, stay): (Vec<Toxic>, Vec<Toxic>) =
            link.toxics().iter().cloned().partition(|toxic| toxic.name == name);
        let gone = gone.first().ok_or_else(no_toxic)?;
        link.poison(stay);
        self.tell(proxy, "toxic taken away", Some(gone));
        Ok(())
    }

    async fn changing(&self) -> Result<MutexGuard<'_, Entries>, Refusal> {
        let entries = self.entries.lock().await;
        if self.calm.load(Relaxed) {
            return Err(Refusal::new(
                409,
                "the faults of this run are over: it is left in peace until it ends",
            ));
        }
        Ok(entries)
    }

    fn tell(&self, proxy: &str, did: &'static str, toxic: Option<&Toxic>) {
        (self.hear)(Poke {
            proxy: proxy.to_owned(),
            did,
            toxic: toxic.cloned(),
        });
    }
}

impl Entry {
    fn show(&self) -> Shown {
        let mut toxics = self.link.toxics().to_vec();
        toxics.sort_by_key(|toxic| toxic.stream);
        Shown {
            name: self.link.name().to_owned(),
            listen: self.link.listen().to_string(),
            upstream: self.upstream.clone(),
            enabled: self.link.is_open(),
            toxics,
        }
    }

    fn must_not_be_of_a_run(&self) -> Result<(), Refusal> {
        if self.of_run {
            let why = "is a link of a run: it can be poisoned and turned off, and neither led elsewhere nor deleted";
            return Err(Refusal::new(409, format!("{} {why}", self.link.name())));
        }
        Ok(())
    }
}

fn find<'a>(entries: &'a Entries, name: &str) -> Result<&'a Entry, Refusal> {
    entries.get(name).ok_or_else(no_proxy)
}

fn find_mut<'a>(entries: &'a mut Entries, name: &str) -> Result<&'a mut Entry, Refusal> {
    entries.get_mut(name).ok_or_else(no_proxy)
}

fn no_proxy() -> Refusal {
    Refusal::new(404, "proxy not found")
}

fn no_toxic() -> Refusal {
    Refusal::new(404, "toxic not found")
}

fn unfit(unfit: Unfit) -> Refusal {
    match unfit {
        Unfit::Type => Refusal::new(400, "invalid toxic type"),
        Unfit::Attributes(why) => Refusal::bad_body(why),
    }
}

fn toxic_of(wanted: WantedToxic, there: &[Toxic]) -> Result<Toxic, Refusal> {
    let stream = Stream::named(wanted.stream.as_deref().unwrap_or("downstream"));
    let stream = stream.ok_or_else(|| Refusal::new(400, "stream was invalid, can be either upstream or downstream"))?;
    let kind = wanted.r#type.unwrap_or_default();
    let parsed = Kind::parse(&kind, &wanted.attributes);
    if parsed == Err(Unfit::Type) {
        return Err(unfit(Unfit::Type));
    }
    let name = wanted.name.filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| format!("{kind}_{}", stream.name()));
    if there.iter().any(|toxic| toxic.name == name) {
        return Err(Refusal::new(409, "toxic already exists"));
    }
    Ok(Toxic {
        name,
        kind: parsed.map_err(unfit)?,
        stream,
        toxicity: wanted.toxicity.unwrap_or(1.0),
    })
}

fn cannot_listen(listen: &str, error: &std::io::Error) -> Refusal {
    Refusal::new(500, format!("listen tcp {listen}: bind: {error}"))
}

/// `host:port`; no host is every address, and no port a free one.
async fn resolve(address: &str) -> Result<SocketAddr, Refusal> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = match host {
        "" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let found = lookup_host(format!("{host}:{port}")).await;
    let found = found.map_err(|error| Refusal::new(500, format!("address {address}: {error}")))?;
    found
        .into_iter()
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| Refusal::new(500, format!("address {address}: no address")))
}
