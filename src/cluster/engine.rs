//! The container engine: its client, and its images, containers and networks.

use std::fmt;
use std::time::Duration;

use testcontainers::bollard::Docker;
use testcontainers::bollard::errors::Error as BollardError;
use testcontainers::bollard::query_parameters::{RemoveContainerOptionsBuilder, RenameContainerOptionsBuilder};
use testcontainers::core::client::docker_client_instance;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};
use tokio::time::{sleep, timeout};

use super::ClusterError;
use super::image_name::in_two_parts;
use crate::limits::READY_POLL;
use crate::process::Identity;

/// Time for the container engine to answer a cheap request.
const ENGINE: Duration = Duration::from_secs(10);
/// Time for the pull of an image.
const IMAGE_PULL: Duration = Duration::from_secs(180);
/// The labels of every container and network.
pub const RUN_LABEL: &str = "harness.run";
pub const OWNER_LABEL: &str = "harness.owner";

/// The longest run's name within a name of the engine's. Containers are found by their names, a label of which may have 63
/// letters: this one, `harness-`, a process number and the kind of the container.
const RUN_LETTERS: usize = 35;
/// The length of its end, which differs between runs of one minute, and is kept.
const RUN_END: usize = 5;

/// Returns the prefix of all names that this process uses for a run: letters that the engine and name servers accept.
pub fn engine_name(run: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => letter,
        _ => '-',
    };
    let mut plain: String = run.chars().map(letter).collect();
    if plain.len() > RUN_LETTERS {
        plain.replace_range(RUN_LETTERS - RUN_END..plain.len() - RUN_END, "");
    }
    format!("harness-{plain}-{}", std::process::id())
}

/// Converts an error of the engine.
pub fn engine_failed(error: impl fmt::Display) -> ClusterError {
    ClusterError::Engine(error.to_string())
}

/// Returns the engine's client, if an engine answers.
pub async fn engine() -> Result<Docker, ClusterError> {
    let asked = async {
        let engine = docker_client_instance().await.map_err(|error| error.to_string())?;
        engine.ping().await.map_err(|error| error.to_string())?;
        Ok(engine)
    };
    let answer = timeout(ENGINE, asked).await;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {}s", ENGINE.as_secs())));
    answer.map_err(ClusterError::Engine)
}

pub async fn has_image(image: &str) -> bool {
    match engine().await {
        Ok(engine) => engine.inspect_image(image).await.is_ok(),
        Err(_) => false,
    }
}

/// Returns the current digest of an image: that of its registry, or the image's own if no registry has it.
pub async fn digest(image: &str) -> Option<String> {
    let found = engine().await.ok()?.inspect_image(image).await.ok()?;
    let in_registry = found.repo_digests.unwrap_or_default().into_iter().next();
    in_registry.or(found.id)
}

/// Pulls an image. The error has the reason for a failure, in one line.
pub async fn pull(image: &str) -> Result<(), String> {
    let (name, tag) = in_two_parts(image);
    match timeout(IMAGE_PULL, GenericImage::new(name, tag).pull_image()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
        Err(_) => Err(format!("not there after {}s", IMAGE_PULL.as_secs())),
    }
}

/// Pulls an image, unless it is here.
pub async fn provide(image: &str) -> Result<(), String> {
    match has_image(image).await {
        true => Ok(()),
        false => pull(image).await,
    }
}

/// Starts a container of a run, under a name. The error has the reason for a failure.
pub async fn start_container(
    request: ContainerRequest<GenericImage>,
    name: &str,
    run: &str,
) -> Result<ContainerAsync<GenericImage>, String> {
    let request = request.with_container_name(name).with_label(RUN_LABEL, run);
    let started = request.with_label(OWNER_LABEL, Identity::own().label()).start().await;
    if started.is_err() {
        // testcontainers does not remove a container that was created and failed to start
        let _ = remove_container(name).await;
    }
    started.map_err(|error| error.to_string())
}

/// Removes a container, or waits while another process removes it.
pub async fn remove_container(id: &str) -> Result<(), String> {
    let engine = engine().await.map_err(|error| error.to_string())?;
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    let removed = match engine.remove_container(id, Some(options)).await {
        Err(BollardError::DockerResponseServerError { status_code: 409, .. }) => {
            let gone = async {
                while engine.inspect_container(id, None).await.is_ok() {
                    sleep(READY_POLL).await;
                }
            };
            return timeout(ENGINE, gone)
                .await
                .map_err(|_| "another process removes it, and it is still there".to_owned());
        }
        removed => removed,
    };
    or_gone(removed)
}

/// Gives a container another name.
pub async fn rename(id: &str, name: &str) -> Result<(), ClusterError> {
    let options = RenameContainerOptionsBuilder::new().name(name).build();
    let renamed = engine().await?.rename_container(id, options).await;
    renamed.map_err(engine_failed)
}

pub async fn remove_network(id: &str) -> Result<(), String> {
    let engine = engine().await.map_err(|error| error.to_string())?;
    or_gone(engine.remove_network(id).await)
}

/// Counts an absent object as removed.
fn or_gone(removed: Result<(), BollardError>) -> Result<(), String> {
    match removed {
        Err(BollardError::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        removed => removed.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_engines_is_one_that_name_servers_take_however_many_faults_there_are() {
        let short = engine_name("20261121-1600-zk-none-de4a");
        assert!(short.starts_with("harness-20261121-1600-zk-none-de4a-"), "{short}");
        let long = engine_name("20261121-1600-zk-partition+kill+pause-holder+latency+clock-de4a");
        assert!(long.starts_with("harness-20261121-1600-zk-"), "{long}");
        assert!(long.contains("-de4a-"), "{long}");
        let pid = std::process::id().to_string().len();
        assert!(long.len() - pid + "4194304-toxiproxy".len() <= 63, "{long}");
        let is_taken = |letter: char| letter == '-' || letter.is_ascii_alphanumeric();
        assert!(long.chars().all(is_taken), "{long}");
    }
}
