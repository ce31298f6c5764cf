//! Routes: the server to which each client is connected, by its links.

use crate::cluster::Endpoints;
use crate::faults::Links;
use harness_proxy::AnyLink;

/// The links of each client, each with the name of its server.
#[derive(Default)]
pub struct Routes(Vec<Vec<(String, AnyLink)>>);

impl Routes {
    /// Returns the routes, none if one address is used for several servers: a connection does not show to which it leads.
    pub fn new(links: &Links, endpoints: &Endpoints) -> Self {
        let mut clients: Vec<Vec<_>> = Vec::new();
        if endpoints.primary().is_none() {
            for ((client, server), link) in links {
                let client = *client as usize;
                clients.resize_with(clients.len().max(client + 1), Vec::new);
                clients[client].push((format!("n{}", server + 1), link.clone()));
            }
        }
        Self(clients)
    }

    /// Returns the server that the client is connected to now; `None` unless it is exactly one.
    pub fn node_of(&self, client: u32) -> Option<&str> {
        let links = self.0.get(client as usize)?;
        let mut connected = links.iter().filter(|(_, link)| link.live() > 0);
        let (name, _) = connected.next()?;
        connected.next().is_none().then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::sleep;

    use super::*;
    use harness_proxy::Proxy;

    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move { client.read_to_end(&mut Vec::new()).await });
            }
        });
        address
    }

    async fn becomes(routes: &Routes, client: u32, node: Option<&str>) {
        let start = Instant::now();
        while routes.node_of(client) != node {
            let now = routes.node_of(client);
            assert!(start.elapsed() < Duration::from_secs(20), "{now:?} and never {node:?}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn a_client_is_at_a_server_while_it_is_connected_to_that_one_alone() {
        let proxy = Proxy::start().unwrap();
        let servers = [server().await, server().await];
        let mut links = Links::new();
        let mut listens = BTreeMap::new();
        for client in 0..2 {
            for (server, address) in servers.iter().enumerate() {
                let link = proxy.link(format!("c{client}->n{}", server + 1), *address, 1).unwrap();
                links.insert((client, server as u32), Arc::clone(&link).into());
                listens.insert((client, server as u32), link.listen());
            }
        }
        let routes = Routes::new(&links, &Endpoints::new(servers.to_vec(), None));
        let connect = async |ends: (u32, u32)| TcpStream::connect(listens[&ends]).await.unwrap();
        assert_eq!(routes.node_of(1), None, "to none");
        let second = connect((1, 1)).await;
        becomes(&routes, 1, Some("n2")).await;
        let again = connect((1, 1)).await;
        let first = connect((1, 0)).await;
        becomes(&routes, 1, None).await;
        assert_eq!(routes.node_of(0), None, "connections of others do not count");
        drop((second, again));
        becomes(&routes, 1, Some("n1")).await;
        links[&(1, 0)].reset_connections();
        becomes(&routes, 1, None).await;
        drop(first);
        assert_eq!(routes.node_of(7), None, "there is no such client");
    }

    #[tokio::test]
    async fn where_one_address_stands_for_several_servers_none_is_named() {
        let proxy = Proxy::start().unwrap();
        let address = server().await;
        let link = proxy.link("c0->n1".into(), address, 1).unwrap();
        let links = Links::from([((0, 0), AnyLink::from(Arc::clone(&link)))]);
        let named = Routes::new(&links, &Endpoints::new(vec![address], None));
        let replicated = Routes::new(&links, &Endpoints::new(vec![address, address], Some(0)));
        let _connection = TcpStream::connect(link.listen()).await.unwrap();
        becomes(&named, 0, Some("n1")).await;
        assert_eq!(replicated.node_of(0), None);
    }
}
