//! The driver of a Toxiproxy ([`ToxiproxyDriver`]): a thread that carries out one command after the other, and reads back each result.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, mpsc};
use std::thread;

use serde_json::Value;
use toxiproxy_rust::client::Client;
use toxiproxy_rust::proxy::{Proxy, ProxyPack};

use super::http::ToxiproxyHttp;
use crate::link_state::Layer;
use crate::toxic::{Toxic, ToxicKind};

/// The thread's name, by which its panics are recognised.
pub const THREAD: &str = "toxiproxy";

/// A command for the driver.
pub type DriverCommand = Box<dyn FnOnce(&mut ToxiproxyDriver) + Send>;

pub struct ToxiproxyDriver {
    address: SocketAddr,
    tools: Option<(Client, ToxiproxyHttp)>,
    /// The names of the proxies that were made, or perhaps made.
    made: BTreeSet<String>,
    /// What the crate knows of them, by name.
    proxies: BTreeMap<String, Proxy>,
    /// The toxics that should be on them.
    toxics: BTreeMap<String, Vec<(Layer, Toxic)>>,
}

impl ToxiproxyDriver {
    pub fn new(address: SocketAddr) -> Self {
        silence_panics();
        Self {
            address,
            tools: None,
            made: BTreeSet::new(),
            proxies: BTreeMap::new(),
            toxics: BTreeMap::new(),
        }
    }

    /// Carries out commands until their sender is dropped, then deletes everything that it made.
    pub fn run(mut self, commands: &mpsc::Receiver<DriverCommand>) {
        while let Ok(command) = commands.recv() {
            command(&mut self);
        }
        let _ = self.guarded(Self::close);
    }

    /// Turns a panic into an error, and uses new clients after it: the crate's lock is poisoned then.
    pub fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let done = catch_unwind(AssertUnwindSafe(|| act(self)));
        done.unwrap_or_else(|panic| {
            self.tools = None;
            self.proxies.clear();
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!(
                "toxiproxy_rust panicked: {}",
                words.unwrap_or("without a word")
            ))
        })
    }

    fn tools(&mut self) -> &(Client, ToxiproxyHttp) {
        let address = self.address;
        self.tools
            .get_or_insert_with(|| (Client::new(address), ToxiproxyHttp::new(address)))
    }

    pub fn version(&mut self) -> Result<String, String> {
        // the crate does not distinguish a missing answer from an error page
        let answer = self.tools().1.get(&["version"])?;
        let version = answer["version"].as_str().map(str::to_owned);
        version.ok_or_else(|| format!("its answer names no version: {answer}"))
    }

    pub fn open(&mut self, wanted: &[(String, SocketAddr)], listen: IpAddr) -> Result<Vec<u16>, String> {
        let listen = SocketAddr::new(listen, 0).to_string();
        let pack = |(name, upstream): &(String, SocketAddr)| {
            ProxyPack::new(name.clone(), listen.clone(), upstream.to_string())
        };
        self.made.extend(wanted.iter().map(|(name, _)| name.clone()));
        let (client, http) = self.tools();
        let made = match client.populate(wanted.iter().map(pack).collect()) {
            Ok(made) => made,
            Err(why) => {
                // the crate does not report the server's words
                let packs: Vec<ProxyPack> = wanted.iter().map(pack).collect();
                return Err(http.post(&["populate"], &packs).err().unwrap_or(why));
            }
        };
        self.proxies
            .extend(made.into_iter().map(|proxy| (proxy.proxy_pack.name.clone(), proxy)));
        let seen = self.read_back()?;
        wanted
            .iter()
            .map(|(name, upstream)| port_of(&seen[name], name, *upstream))
            .collect()
    }

    pub fn put(&mut self, layer: Layer, proxies: &[String], toxics: &[Toxic]) -> Result<(), String> {
        for name in proxies {
            for toxic in toxics {
                self.put_one(layer, name, toxic.clone())?;
            }
        }
        let seen = self.read_back()?;
        proxies.iter().try_for_each(|name| self.compare(&seen, name))
    }

    fn put_one(&mut self, layer: Layer, name: &str, mut toxic: Toxic) -> Result<(), String> {
        let there = self.toxics.entry(name.to_owned()).or_default();
        let taken = there.iter().any(|(_, other)| other.name == toxic.name);
        if taken {
            // the crate knows one name for each type and stream
            toxic.name = format!("{}_{layer}", toxic.name);
        }
        // noted first: what is half done is undone, too
        there.push((layer, toxic.clone()));
        if !taken && by_crate(self.proxy(name)?, &toxic) {
            return Ok(());
        }
        let (_, http) = self.tools();
        http.post(&["proxies", name, "toxics"], &toxic).map(drop)
    }

    fn proxy(&mut self, name: &str) -> Result<&Proxy, String> {
        if !self.proxies.contains_key(name) {
            let found = self.tools().0.find_proxy(name)?;
            self.proxies.insert(name.to_owned(), found);
        }
        Ok(&self.proxies[name])
    }

    pub fn lift(&mut self, layer: Layer, proxies: &[String]) -> Result<(), String> {
        let mut gone: Vec<(&String, Toxic)> = Vec::new();
        let mut failed = None;
        for name in proxies {
            let there = self.toxics.get(name).cloned().unwrap_or_default();
            let (lifted, mut stays): (Vec<_>, Vec<_>) = there.into_iter().partition(|(of, _)| *of == layer);
            for (_, toxic) in lifted {
                match self.tools().1.delete(&["proxies", name, "toxics", &toxic.name]) {
                    Ok(()) => gone.push((name, toxic)),
                    // the others are to be lifted nevertheless
                    Err(why) => {
                        failed = failed.or(Some(why));
                        stays.push((layer, toxic));
                    }
                }
            }
            self.toxics.insert(name.clone(), stays);
        }
        if let Some(why) = failed {
            return Err(why);
        }
        let seen = self.read_back()?;
        let stays = gone
            .iter()
            .find(|(name, toxic)| on(&seen[*name]).any(|found| found["name"] == toxic.name.as_str()));
        match stays {
            Some((name, toxic)) => Err(format!("{name} still has {}", in_json(toxic))),
            None => proxies.iter().try_for_each(|name| self.compare(&seen, name)),
        }
    }

    pub fn close(&mut self) -> Result<(), String> {
        let names: Vec<String> = std::mem::take(&mut self.made).into_iter().collect();
        self.proxies.clear();
        self.toxics.clear();
        self.delete(&names)
    }

    pub fn list(&mut self) -> Result<Vec<String>, String> {
        let seen = self.read_back()?;
        let names = seen.as_object().map(|proxies| proxies.keys().cloned().collect());
        Ok(names.unwrap_or_default())
    }

    pub fn delete(&mut self, names: &[String]) -> Result<(), String> {
        let (_, http) = self.tools();
        names.iter().try_for_each(|name| http.delete(&["proxies", name]))
    }

    fn read_back(&mut self) -> Result<Value, String> {
        self.tools().1.get(&["proxies"])
    }

    /// Checks that a proxy has all the toxics that it should have, and is on. Toxics of other clients do not matter.
    fn compare(&self, seen: &Value, name: &str) -> Result<(), String> {
        let proxy = &seen[name];
        if proxy["enabled"] != Value::Bool(true) {
            return Err(format!("{name} is not there, or was turned off"));
        }
        let wanted = self.toxics.get(name).map(Vec::as_slice).unwrap_or_default();
        let missing = wanted
            .iter()
            .find(|(_, toxic)| !on(proxy).any(|found| is(found, toxic)));
        match missing {
            Some((_, toxic)) => Err(format!(
                "{name} should have {} and has {}",
                in_json(toxic),
                proxy["toxics"]
            )),
            None => Ok(()),
        }
    }
}

/// Returns the toxics on a proxy, as they were read back.
fn on(proxy: &Value) -> impl Iterator<Item = &Value> {
    proxy["toxics"].as_array().into_iter().flatten()
}

fn port_of(seen: &Value, name: &str, upstream: SocketAddr) -> Result<u16, String> {
    if seen["upstream"] != upstream.to_string().as_str() || seen["enabled"] != Value::Bool(true) {
        return Err(format!("{name} should connect to {upstream} and is {seen}"));
    }
    let listen = seen["listen"].as_str().and_then(|listen| listen.rsplit_once(':'));
    let port = listen.and_then(|(_, port)| port.parse().ok()).filter(|port| *port != 0);
    port.ok_or_else(|| format!("{name} says no port to connect to: {seen}"))
}

/// Whether a toxic that was read back is this one.
fn is(found: &Value, toxic: &Toxic) -> bool {
    let toxicity = found["toxicity"]
        .as_f64()
        .is_some_and(|share| (share - f64::from(toxic.toxicity)).abs() < 1e-6);
    found["name"] == toxic.name.as_str()
        && found["type"] == toxic.kind.name().as_str()
        && found["stream"] == toxic.stream.name()
        && found["attributes"] == toxic.kind.attributes()
        && toxicity
}

fn in_json(toxic: &Toxic) -> String {
    serde_json::to_string(toxic).expect("a toxic is plain data")
}

/// Adds a toxic with the crate. Returns whether the crate knows it.
fn by_crate(proxy: &Proxy, toxic: &Toxic) -> bool {
    let stream = toxic.stream.name().to_owned();
    let share = toxic.toxicity;
    let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    match toxic.kind {
        ToxicKind::Latency { latency, jitter } => proxy.with_latency(stream, number(latency), number(jitter), share),
        ToxicKind::Bandwidth { rate } => proxy.with_bandwidth(stream, number(rate), share),
        ToxicKind::SlowClose { delay } => proxy.with_slow_close(stream, number(delay), share),
        ToxicKind::Timeout { timeout } => proxy.with_timeout(stream, number(timeout), share),
        ToxicKind::Slicer {
            average_size,
            size_variation,
            delay,
        } => proxy.with_slicer(
            stream,
            number(average_size),
            number(size_variation),
            number(delay),
            share,
        ),
        ToxicKind::LimitData { bytes } => proxy.with_limit_data(stream, number(bytes), share),
        ToxicKind::ResetPeer { .. } | ToxicKind::Noop {} => return false,
    };
    true
}

/// Silences the crate's panics, which are reported as errors: their texts must not fall into the middle of a screen.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if thread::current().name() != Some(THREAD) {
                before(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::direction::Direction;

    #[test]
    fn a_toxic_that_cannot_be_lifted_leaves_no_other_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut driver = ToxiproxyDriver::new(listener.local_addr().unwrap());
        let proxies = ["p1", "p2"].map(str::to_owned);
        for name in &proxies {
            let toxic = Toxic {
                name: "t".to_owned(),
                kind: ToxicKind::Noop {},
                stream: Direction::ToServer,
                toxicity: 1.0,
            };
            driver.toxics.insert(name.clone(), vec![(1, toxic)]);
        }
        let serving = thread::spawn(move || {
            ["500 Internal Server Error", "204 No Content"].map(|status| {
                let (mut stream, _) = listener.accept().unwrap();
                let head = BufReader::new(&stream).lines().map(Result::unwrap);
                let head: Vec<String> = head.take_while(|line| !line.is_empty()).collect();
                write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n\r\n").unwrap();
                head[0].clone()
            })
        });
        let refused = driver.lift(1, &proxies).unwrap_err();
        assert!(refused.contains("500"), "{refused}");
        let asked = serving.join().unwrap();
        assert_eq!(
            asked,
            ["p1", "p2"].map(|name| format!("DELETE /proxies/{name}/toxics/t HTTP/1.1"))
        );
        assert_eq!((driver.toxics["p1"].len(), driver.toxics["p2"].len()), (1, 0));
    }
}
