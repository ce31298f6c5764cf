//! The stored run that `harness shrink` runs again, with its first violation.

use harness_checkers::{Options, Property, ReadOptions, Violation};

use super::Failure;
use super::examined::examine;
use super::experiment::{completed, options_of, set_option};
use super::hunt_args::ShrinkArgs;
use crate::config::Config;
use crate::hunt::find::causes;
use crate::hunt::shrink::ShrinkGround;
use crate::plan::Plan;
use crate::plan::kept_windows::planned;
use crate::report::Diagnosis;
use crate::store::{self, RunInfo};

/// A stored run with a violation.
pub struct Original {
    pub name: String,
    /// The options of `harness run` that make it again.
    pub options: Vec<(String, String)>,
    pub property: Property,
    /// The classes of its violations of that property, the first in front.
    pub classes: Vec<String>,
    /// The window in which the violation happened.
    pub suspect: Option<u32>,
    /// The numbers of its windows in its plan.
    pub windows: Vec<u32>,
    pub config: Config,
    pub plan: Plan,
}

impl Original {
    /// Returns the class of its first violation.
    pub fn class(&self) -> &str {
        &self.classes[0]
    }

    /// Returns the violation that a run repeats: of the same property, and on models of a class of the original run.
    /// With real programs, one cause may have another class each time.
    pub fn shown_in<'a>(&self, diagnosis: &'a Diagnosis, ground: ShrinkGround) -> Option<&'a Violation> {
        let any_class = ground != ShrinkGround::Models;
        let mut same = causes(diagnosis).into_iter().filter(|(property, violation)| {
            *property == self.property && (any_class || self.classes.contains(&violation.class))
        });
        same.next().map(|(_, violation)| violation)
    }
}

/// Returns a stored run with these options: `backend=redis locks=2`.
#[cfg(test)]
pub fn original_of(words: &str) -> Original {
    let options: Vec<(&str, &str)> = words.split(' ').filter_map(|word| word.split_once('=')).collect();
    let options = super::experiment::typed_options(&options);
    let (_, config) = completed(&options, std::path::Path::new("")).unwrap();
    let plan = planned(&config).unwrap();
    Original {
        name: "the run".to_owned(),
        options,
        property: Property::Hl001,
        classes: vec!["granted-twice".to_owned()],
        suspect: None,
        windows: plan.windows.iter().map(|window| window.number).collect(),
        config,
        plan,
    }
}

/// Reads the run and its violations.
pub fn original(args: &ShrinkArgs) -> Result<Original, Failure> {
    let stored = store::find(&args.results, &args.wanted).map_err(Failure::usage)?;
    let Some(info) = stored.info.clone() else {
        let why = "only a stored run can be run again: a history alone does not have the options of its run";
        return Err(Failure::usage(why));
    };
    let examined = examine(&stored, &ReadOptions::default(), &Options::default())?;
    let causes = causes(&examined.diagnosis);
    let Some((property, violation)) = causes.first() else {
        let why = format!("{} has no violation", info.run);
        return Err(Failure::usage(format!(
            "{why}\nhint: `harness list runs` shows the runs that failed"
        )));
    };
    let of_property = causes.iter().filter(|(other, _)| other == property);
    let mut options = options_of(&info.again);
    let names_models = options
        .iter()
        .any(|(name, value)| name == "runtime" && value == RunInfo::SIMULATED);
    if info.is_simulated() && !names_models {
        // the run was on models because there were no servers
        set_option(&mut options, "runtime", Some(RunInfo::SIMULATED.to_owned()));
    }
    let (_, config) = completed(&options, &args.results)?;
    let plan = planned(&config).map_err(Failure::usage)?;
    Ok(Original {
        name: info.run,
        options,
        property: *property,
        classes: of_property.map(|(_, violation)| violation.class.clone()).collect(),
        suspect: violation.window,
        windows: plan.windows.iter().map(|window| window.number).collect(),
        config,
        plan,
    })
}
