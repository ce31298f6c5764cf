//! The finds of a survey, each cut down to the least that shows it and written as a test (`harness survey --shrink`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness_checkers::Property;
use serde::Deserialize;
use tokio::sync::watch;

use super::own_command::{self, last_words, own_command};
use crate::survey::record::{ShrunkFind, SurveyRecord};

/// Time for one find, at most; the search itself ends after half an hour.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// A find that is not cut down yet, and the run that showed it.
pub struct FoundRun {
    pub find: String,
    property: Property,
    run: PathBuf,
}

/// The finds of a version that are not cut down yet; `place` has the folder of each of its hunts.
pub fn left(record: &SurveyRecord, place: &Path) -> Vec<FoundRun> {
    let finds = record.finds().into_iter();
    let is_known = |name: &str| record.shrunk.iter().any(|shrunk| shrunk.find == name);
    finds
        .filter(|found| !is_known(&found.find.name()))
        .filter_map(|found| {
            Some(FoundRun {
                find: found.find.name(),
                property: found.find.property,
                run: run_of(&place.join(found.promise()), &found.find.run)?,
            })
        })
        .collect()
}

/// The folder of a run of the hunt whose results are in `place`, if it is still there.
fn run_of(place: &Path, run: &str) -> Option<PathBuf> {
    let hunts = fs::read_dir(place).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    hunts.map(|hunt| hunt.join(run)).find(|run| run.is_dir())
}

/// Cuts it down as a user would, and writes the test into `place`.
///
/// # Errors
///
/// The search ended without the violation; the sentence says how.
pub async fn shrink(found: &FoundRun, place: &Path, stop: watch::Receiver<bool>) -> Result<ShrunkFind, String> {
    #[derive(Deserialize)]
    struct Shrunk {
        property: Property,
        detected_after_ms: Option<u64>,
        again: Vec<String>,
    }
    let test = format!("test_{}.py", found.find.to_lowercase().replace([' ', '-'], "_"));
    let log = place.join("shrink.log");
    let mut command = own_command(&log)?;
    command.args(["shrink", "--json", "--quiet", "--color=never"]);
    command.arg(&found.run).arg("--as-test").arg(place.join(&test));
    command.arg("--results").arg(place.join("shrink"));
    let (_, printed) = own_command::run(command, LIMIT, stop).await?;
    let result: Shrunk = serde_json::from_slice(&printed).map_err(|_| last_words(&log).join("; "))?;
    match result.detected_after_ms {
        Some(_) if result.property != found.property => Err(format!(
            "its run violates {}, which `harness shrink` cuts down first",
            result.property.id()
        )),
        Some(detected_after_ms) => Ok(ShrunkFind {
            find: found.find.clone(),
            again: result.again,
            detected_after_ms,
            test,
        }),
        None => Err("the violation did not occur again".to_owned()),
    }
}
