//! Readiness of a server of a described store: its port, a line of its log or a command; and its role, by a command.

use tokio::net::TcpStream;

use super::commands::output;
use super::{PlaceValues, ReadyWhen, StoreDescription, named, program_of_harness};
use crate::clock::GroundClock;
use crate::cluster::{ProbedServer, Serving, image_name};
use crate::limits::PROBE;

/// The role of the only server, if none is queried.
const ALONE: &str = "standalone";
/// The role of one of several servers, if none is queried.
const ONE_OF_SEVERAL: &str = "member";

/// Returns the state of a server that serves; the error has the reason if it does not.
pub async fn ask(store: &'static StoreDescription, server: ProbedServer) -> Result<Serving, String> {
    let connecting = async {
        TcpStream::connect(server.address)
            .await
            .map_err(|error| error.to_string())
    };
    GroundClock::Real.answer_within(PROBE, connecting).await?;
    match &store.ready {
        ReadyWhen::Connects => {}
        // the log of a restarted server has the line of the first start
        ReadyWhen::Log(_) if !server.first => {}
        ReadyWhen::Log(text) => {
            let log = std::fs::read(&server.log).unwrap_or_default();
            if !String::from_utf8_lossy(&log).contains(text) {
                return Err(format!("its log has no {text:?} yet"));
            }
        }
        ReadyWhen::Command(command) => {
            output(&command.fill(&values(store, &server)), store.folder()).await?;
        }
    }
    let (role, leads) = match &store.role {
        None if server.nodes.len() == 1 => (ALONE.to_owned(), true),
        None => (ONE_OF_SEVERAL.to_owned(), false),
        Some(question) => {
            let said = output(&question.command.fill(&values(store, &server)), store.folder()).await?;
            let role = said.split_whitespace().next().ok_or("it has no role yet")?.to_owned();
            let leads = question.leads.contains(&role);
            (role, leads)
        }
    };
    let tag = store.docker.as_ref().and_then(|(image, _)| image_name::tag(image));
    Ok(Serving::new(&role, leads, tag.unwrap_or("?")))
}

/// Returns the values of a server for commands of this machine.
fn values(store: &StoreDescription, server: &ProbedServer) -> PlaceValues {
    let mut values = store.of_server(&server.nodes, server.me);
    values.extend(named([
        ("container", server.nodes[server.me].host.clone()),
        ("host", server.address.ip().to_string()),
        ("port", server.address.port().to_string()),
        ("store", store.folder().display().to_string()),
        ("harness", program_of_harness()),
    ]));
    values
}
