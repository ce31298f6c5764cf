//! The finds of a survey, each cut down to the least that shows it and written as a test (`harness survey --shrink`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness_checkers::Property;
use serde::Deserialize;
use tokio::sync::watch;

use super::own_command::{self, last_lines, own_command};
use super::records::hunts;
use crate::hunt::find::cause_name;
use crate::report::words::quoted_words;
use crate::survey::record::{RecordedFind, SurveyRecord};

/// Time for one find, at most; the search itself ends after half an hour.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// A find that is not cut down yet, and the run that showed it.
pub struct FoundRun {
    pub find: String,
    /// The name of the test that it is written as.
    pub test: String,
    property: Property,
    run: PathBuf,
}

/// Returns the finds of a version that are not cut down yet; `place` has the folder of each of its hunts.
pub fn left(record: &SurveyRecord, place: &Path) -> Vec<FoundRun> {
    let finds = record.finds().into_iter();
    finds
        .filter(|found| !record.shrunk.contains_key(&found.find.name()))
        .filter_map(|found| {
            let find = found.find.name();
            let test = find.to_lowercase().replace([' ', '-'], "_");
            Some(FoundRun {
                test: format!("test_{test}.py"),
                find,
                property: found.find.property,
                run: run_of(&place.join(found.promise()), found.find)?,
            })
        })
        .collect()
}

/// Returns the folder of the run that showed a find of a hunt in `place`, if the run was made on this machine and still exists.
fn run_of(place: &Path, find: &RecordedFind) -> Option<PathBuf> {
    hunts(place).into_iter().find_map(|(folder, record)| {
        let mut finds = record.finds.iter();
        let found = finds.find(|known| known.is_of(find.property, &find.class))?;
        let run = place.join(folder).join(&found.run);
        run.is_dir().then_some(run)
    })
}

/// Cuts it down as a user would, and writes the test into `place`. Returns the command that shows it.
///
/// # Errors
///
/// The search ended without the violation; the sentence says how.
pub async fn shrink(found: &FoundRun, place: &Path, stop: watch::Receiver<bool>) -> Result<String, String> {
    let log = place.join("shrink.log");
    let mut command = own_command(&log)?;
    command.args(["shrink", "--json", "--quiet", "--color=never"]);
    command.arg(&found.run).arg("--as-test").arg(place.join(&found.test));
    command.arg("--results").arg(place.join("shrink"));
    let (_, printed) = own_command::run(command, LIMIT, stop).await?;
    let result: Shrunk = serde_json::from_slice(&printed).map_err(|_| last_lines(&log).join("; "))?;
    result.command(found)
}

/// The result of `harness shrink --json`.
#[derive(Deserialize)]
struct Shrunk {
    property: Property,
    class: String,
    detected_after_ms: Option<u64>,
    again: Vec<String>,
}

impl Shrunk {
    /// Returns the command that shows this find. The error says why it does not.
    fn command(&self, found: &FoundRun) -> Result<String, String> {
        let shows = cause_name(self.property, &self.class);
        match self.detected_after_ms {
            None => Err("the violation did not occur again".to_owned()),
            Some(_) if self.property != found.property => Err(format!(
                "its run violates {}, which `harness shrink` cuts down first",
                self.property.id()
            )),
            // a smaller run of real programs may end with another violation of the property
            Some(_) if shows != found.find => Err(format!("its shortest run shows {shows}")),
            Some(_) => Ok(quoted_words(&self.again).join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_that_of_a_find_only_if_it_shows_the_find() {
        let found = FoundRun {
            find: "HL005 ghost".to_owned(),
            test: String::new(),
            property: Property::Hl005,
            run: PathBuf::new(),
        };
        let command = |property, class: &str, detected_after_ms| {
            let (class, again) = (class.to_owned(), vec!["harness".to_owned(), "run".to_owned()]);
            let shrunk = Shrunk {
                property,
                class,
                detected_after_ms,
                again,
            };
            shrunk.command(&found)
        };
        assert_eq!(command(Property::Hl005, "ghost", Some(7)).unwrap(), "harness run");
        let other = command(Property::Hl005, "free", Some(7)).unwrap_err();
        assert_eq!(other, "its shortest run shows HL005 free");
        let first = command(Property::Hl001, "ghost", Some(7)).unwrap_err();
        assert!(first.starts_with("its run violates HL001"), "{first}");
        assert!(command(Property::Hl005, "ghost", None).is_err());
    }
}
