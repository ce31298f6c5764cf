//! The choice of a runtime: the request, the programs and images of this machine, and a sentence with the reason.

use super::ClusterError;
use super::attached::AttachedServers;
use super::software::ServerSoftware;
use super::versions::{self, AskedVersion, OtherVersion};

/// The runtime that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum RuntimeRequest {
    /// Docker if an engine answers and has the image or can pull it, else local; at a terminal without either, simulated
    #[default]
    Auto,
    /// Containers
    Docker,
    /// Processes of the programs installed on this machine
    Local,
    /// Models of the servers and of the network, in virtual time: nothing has to be installed
    Simulated,
    /// Processes of the programs installed on this machine, in virtual time
    Virtual,
}

/// The way in which servers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runtime {
    /// Containers of this image; [`super::image_name`] has the forms of a name.
    Docker { image: String },
    /// Child processes of this machine's programs.
    Local,
    /// The servers were running before.
    Attached(AttachedServers),
    /// Models, in virtual time.
    Simulated,
    /// Child processes, in virtual time.
    Virtual,
}

impl Runtime {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Docker { .. } => "docker",
            Self::Local => "local",
            Self::Attached(_) => "attached",
            Self::Simulated => "simulated",
            Self::Virtual => "virtual",
        }
    }

    /// Returns the words for the line above a run: models are called so.
    pub fn in_words(&self) -> &'static str {
        match self {
            Self::Simulated => "simulated servers",
            Self::Virtual => "virtual time",
            _ => self.name(),
        }
    }

    /// Returns the image's name, if there is one.
    pub fn image(&self) -> Option<&str> {
        match self {
            Self::Docker { image } => Some(image),
            Self::Local | Self::Attached(_) | Self::Simulated | Self::Virtual => None,
        }
    }

    /// Returns the image that its name refers to now; images change under their names.
    #[cfg(feature = "docker")]
    pub async fn digest(&self) -> Option<String> {
        super::engine::digest(self.image()?).await
    }

    #[cfg(not(feature = "docker"))]
    pub async fn digest(&self) -> Option<String> {
        None
    }
}

/// The chosen runtime, and the reason as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeChoice {
    pub runtime: Runtime,
    pub why: String,
    /// The version with which servers begin, if one was requested.
    pub version: Option<AskedVersion>,
    /// The image or the folder to which they are upgraded, if they are.
    pub upgrade: Option<OtherVersion>,
}

impl RuntimeChoice {
    /// Returns a choice without requested versions.
    pub fn of(runtime: Runtime, why: String) -> Self {
        Self {
            runtime,
            why,
            version: None,
            upgrade: None,
        }
    }

    /// Returns simulated servers; `why` is the rest of a sentence about them.
    pub fn simulated(why: String) -> Self {
        Self::of(Runtime::Simulated, format!("simulated servers, real recipes: {why}"))
    }
}

/// Returns the local image of a backend. The error has the reason for which there is none; nothing is pulled.
#[cfg(feature = "docker")]
pub async fn image_present(software: &ServerSoftware) -> Result<String, String> {
    use super::engine::{engine, has_image};
    engine().await.map_err(|error| error.to_string())?;
    for image in software.images {
        if has_image(image).await {
            return Ok((*image).to_owned());
        }
    }
    Err(match software.images {
        [] => no_container(software),
        [image] => format!("{image} is missing; a run tries to pull it"),
        images => format!(
            "{} are missing; a run tries to pull the first, `make images` builds the second",
            images.join(" and ")
        ),
    })
}

#[cfg(not(feature = "docker"))]
pub async fn image_present(_: &ServerSoftware) -> Result<String, String> {
    Err("this harness was built without docker (--no-default-features)".to_owned())
}

/// The request for servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct AskedServers<'a> {
    /// The image that the user named; no other is considered then.
    pub image: Option<&'a str>,
    /// The version that the user named, which determines the image or the programs.
    pub version: Option<&'a str>,
}

/// Chooses the runtime, and fetches its image or programs.
pub async fn choose(
    request: RuntimeRequest,
    software: &'static ServerSoftware,
    asked: AskedServers<'_>,
) -> Result<RuntimeChoice, ClusterError> {
    let chosen = match request {
        RuntimeRequest::Docker => docker(software, asked).await,
        RuntimeRequest::Local => local(software, asked).await,
        RuntimeRequest::Simulated => Ok(RuntimeChoice::simulated("they were asked for".to_owned())),
        RuntimeRequest::Virtual => local(software, asked).await.map(|choice| RuntimeChoice {
            runtime: Runtime::Virtual,
            ..choice
        }),
        RuntimeRequest::Auto => match docker(software, asked).await {
            Ok(choice) => Ok(choice),
            Err(no_docker) => match local(software, asked).await {
                Ok(choice) => {
                    let no_docker = no_docker.lines().next().unwrap_or_default();
                    let why = format!("{}; not docker: {no_docker}", choice.why);
                    Ok(RuntimeChoice { why, ..choice })
                }
                Err(no_local) => Err(format!("{no_docker}\n{no_local}")),
            },
        },
    };
    chosen.map_err(ClusterError::Nothing)
}

async fn local(software: &'static ServerSoftware, asked: AskedServers<'_>) -> Result<RuntimeChoice, String> {
    let product = software.product;
    if let Some(version) = asked.version {
        let programs = versions::provide(software, version).await?;
        let why = format!("the programs of {product} {version} are in {}", programs.display());
        return Ok(RuntimeChoice {
            version: Some(AskedVersion {
                asked: version.to_owned(),
                programs: Some(programs),
            }),
            ..RuntimeChoice::of(Runtime::Local, why)
        });
    }
    let missing = (software.missing)();
    if missing.is_empty() {
        let why = format!("{product} is installed here");
        return Ok(RuntimeChoice::of(Runtime::Local, why));
    }
    Err(format!(
        "no local {product}: {} not found\nhint: {}",
        missing.join(" and "),
        software.install_hint
    ))
}

#[cfg(feature = "docker")]
fn no_container(software: &ServerSoftware) -> String {
    format!("{} has no container\nhint: --runtime local", software.product)
}

#[cfg(feature = "docker")]
async fn docker(software: &ServerSoftware, asked: AskedServers<'_>) -> Result<RuntimeChoice, String> {
    use super::engine::{engine, has_image, pull};
    let no_docker = |error| format!("no docker: {error}\nhint: install and start Docker, or use --runtime local");
    engine().await.map_err(no_docker)?;
    let of_version = asked.version.and_then(|version| versions::image_of(software, version));
    let candidates: Vec<&str> = match (asked.image, asked.version) {
        (Some(image), _) => vec![image],
        (None, Some(_)) => of_version.iter().map(String::as_str).collect(),
        (None, None) => software.images.to_vec(),
    };
    let chosen = |image: &str, why: String| {
        let image = image.to_owned();
        RuntimeChoice {
            version: asked.version.map(|version| AskedVersion {
                asked: version.to_owned(),
                programs: None,
            }),
            ..RuntimeChoice::of(Runtime::Docker { image }, why)
        }
    };
    let Some(wanted) = candidates.first().copied() else {
        return Err(no_container(software));
    };
    for image in &candidates {
        if has_image(image).await {
            return Ok(chosen(image, format!("an engine answers and has {image}")));
        }
    }
    match pull(wanted).await {
        Ok(()) => Ok(chosen(wanted, format!("an engine answers and pulled {wanted}"))),
        Err(error) => Err(format!(
            "no image {wanted}: {error}\nhint: `make images` builds one from Debian packages, or name your own with --image"
        )),
    }
}

#[cfg(not(feature = "docker"))]
async fn docker(_: &ServerSoftware, _: AskedServers<'_>) -> Result<RuntimeChoice, String> {
    Err("no docker: this harness was built without it (--no-default-features)".to_owned())
}
