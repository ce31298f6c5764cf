//! The request for a container of an image: a server with its settings, its wall clock, and its gate to the disk.
//!
//! If there is a gate, the container starts it, and it becomes the command of the image.

use std::path::Path;

use testcontainers::bollard::models::{HostConfig, Mount as EngineMount, MountType, MountVolumeOptions};
use testcontainers::core::Mount;
use testcontainers::{ContainerRequest, GenericImage, ImageExt};

use super::engine::{RUN_LABEL, engine};
use super::image_name::in_two_parts;
use super::software::{ContainerSpec, KeptData};
use crate::disks::DiskGate;
use crate::wall_clock::WallClock;

/// The path of the wall clock in a container.
const CLOCKS: &str = "/harness-clocks";
/// The path of the gate in a container.
const GATES: &str = "/harness-disks";

/// Returns the request for a container of `image`. The error is a sentence.
pub async fn request(
    image: &str,
    given: ContainerSpec,
    clock: Option<&WallClock>,
    disk: Option<&DiskGate>,
) -> Result<ContainerRequest<GenericImage>, String> {
    let (name, tag) = in_two_parts(image);
    let mut generic = GenericImage::new(name, tag);
    let mut command = given.command;
    if let Some(disk) = disk {
        let [program, ..] = disk.command(Path::new(GATES));
        generic = generic.with_entrypoint(&program);
        command = behind_gate(disk, image, command).await?;
    }
    let mut request: ContainerRequest<GenericImage> = generic.into();
    for (name, value) in given.env {
        request = request.with_env_var(name, value);
    }
    if let Some(clock) = clock {
        request = request.with_mount(Mount::bind_mount(clock.folder().display().to_string(), CLOCKS));
        for (name, value) in clock.environment(Path::new(CLOCKS)) {
            request = request.with_env_var(name, value);
        }
    }
    if let Some(disk) = disk {
        request = request.with_mount(Mount::bind_mount(disk.folder().display().to_string(), GATES));
    }
    for (path, contents) in given.files {
        request = request.with_copy_to(path, contents.into_bytes());
    }
    if !command.is_empty() {
        request = request.with_cmd(command);
    }
    Ok(request)
}

/// Makes a container keep its data in anonymous volumes, which another container can use and the engine removes with the last
/// container that has them. `data_of` is the container that has them already, `run` the value of a label.
pub fn keep_data(host: &mut HostConfig, kept: &KeptData, data_of: Option<&str>, run: &str) {
    if let Some(before) = data_of {
        host.volumes_from = Some(vec![before.to_owned()]);
        return;
    }
    let volume = |folder: &&str| EngineMount {
        target: Some((*folder).to_owned()),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions {
            labels: Some([(RUN_LABEL.to_owned(), run.to_owned())].into()),
            ..MountVolumeOptions::default()
        }),
        ..EngineMount::default()
    };
    let volumes = kept.folders.iter().map(volume);
    host.mounts.get_or_insert_default().extend(volumes);
}

/// Returns the arguments of the gate. `given` is the command of the container, empty for that of the image.
async fn behind_gate(disk: &DiskGate, image: &str, given: Vec<String>) -> Result<Vec<String>, String> {
    let engine = engine().await.map_err(|error| error.to_string())?;
    let inspected = engine.inspect_image(image).await.map_err(|error| error.to_string())?;
    let config = inspected.config.unwrap_or_default();
    let [_, folder, socket] = disk.command(Path::new(GATES));
    let mut command = vec![folder, socket];
    command.extend(config.entrypoint.unwrap_or_default());
    command.extend(match given.is_empty() {
        true => config.cmd.unwrap_or_default(),
        false => given,
    });
    Ok(command)
}
