//! Choosing a runtime: what was asked for, what this machine has, and a sentence that says why.

use super::ClusterError;
use super::server::Server;
use crate::config::RuntimeKind;

/// How servers will come to life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    Docker { image: String },
    Local,
}

impl Chosen {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Docker { .. } => "docker",
            Self::Local => "local",
        }
    }
}

impl Chosen {
    /// What the image's name means now; images change under their names.
    #[cfg(feature = "docker")]
    pub async fn digest(&self) -> Option<String> {
        match self {
            Self::Docker { image } => super::docker::digest(image).await,
            Self::Local => None,
        }
    }

    #[cfg(not(feature = "docker"))]
    pub async fn digest(&self) -> Option<String> {
        None
    }
}

/// The choice and its reason, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub chosen: Chosen,
    pub why: String,
}

/// The images a backend's servers may come from, the preferred one first: the official one, and the one that
/// `images/build.sh` makes where no registry can be reached.
#[cfg(feature = "docker")]
fn images_of(server: &dyn Server) -> [String; 2] {
    [
        server.image().to_owned(),
        format!("harness-{}:debian", server.backend()),
    ]
}

/// Which image of a backend is there already. The error says why there is none; nothing is pulled.
#[cfg(feature = "docker")]
pub async fn image_present(server: &dyn Server) -> Result<String, String> {
    use super::docker::{engine, has_image};
    engine().await.map_err(|error| error.to_string())?;
    for image in images_of(server) {
        if has_image(&image).await {
            return Ok(image);
        }
    }
    Err(format!(
        "neither {} is there; a run tries to pull the first, `make images` builds the second",
        images_of(server).join(" nor ")
    ))
}

#[cfg(not(feature = "docker"))]
pub async fn image_present(_: &dyn Server) -> Result<String, String> {
    Err("this harness was built without docker (--no-default-features)".to_owned())
}

/// Decides how the servers come to life. `image` is the user's own; only it is considered when given.
pub async fn choose(kind: RuntimeKind, server: &dyn Server, image: Option<&str>) -> Result<Choice, ClusterError> {
    match kind {
        RuntimeKind::Docker => docker(server, image).await.map_err(ClusterError::Nothing),
        RuntimeKind::Local => local(server).map_err(ClusterError::Nothing),
        RuntimeKind::Auto => match docker(server, image).await {
            Ok(choice) => Ok(choice),
            Err(no_docker) => match local(server) {
                Ok(Choice { chosen, why }) => Ok(Choice {
                    chosen,
                    why: format!("{why}; not docker: {}", first_line(&no_docker)),
                }),
                Err(no_local) => Err(ClusterError::Nothing(format!("{no_docker}\n{no_local}"))),
            },
        },
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

fn local(server: &dyn Server) -> Result<Choice, String> {
    let missing = server.missing();
    if missing.is_empty() {
        return Ok(Choice {
            chosen: Chosen::Local,
            why: format!("{} is installed here", server.product()),
        });
    }
    Err(format!(
        "no local {}: {} not found\nhint: {}",
        server.product(),
        missing.join(" and "),
        server.install_hint()
    ))
}

#[cfg(feature = "docker")]
async fn docker(server: &dyn Server, image: Option<&str>) -> Result<Choice, String> {
    use super::docker::{engine, has_image, pull};
    if let Err(error) = engine().await {
        return Err(format!(
            "no docker: {error}\nhint: install and start Docker, or use --runtime local"
        ));
    }
    let candidates = image.map_or_else(|| images_of(server).to_vec(), |image| vec![image.to_owned()]);
    for image in &candidates {
        if has_image(image).await {
            let why = format!("an engine answers and {image} is there");
            return Ok(Choice {
                chosen: Chosen::Docker { image: image.clone() },
                why,
            });
        }
    }
    let wanted = candidates[0].clone();
    match pull(&wanted).await {
        Ok(()) => Ok(Choice {
            why: format!("an engine answers and {wanted} was pulled"),
            chosen: Chosen::Docker { image: wanted },
        }),
        Err(error) => Err(format!(
            "no image {wanted}: {}\nhint: `make images` builds one from Debian packages, or name your own with --image",
            first_line(&error)
        )),
    }
}

#[cfg(not(feature = "docker"))]
async fn docker(_: &dyn Server, _: Option<&str>) -> Result<Choice, String> {
    Err("no docker: this harness was built without it (--no-default-features)".to_owned())
}
