//! `harness explain`: the meaning of a property, the usual causes of a violation, how to distinguish them, and their repair.

use harness_checkers::Property;

use super::Failure;
use super::stdout::print;
use crate::config::suggest::unknown_word;
use crate::exit::Exit;

pub fn explain(wanted: &str) -> Result<Exit, Failure> {
    let mut known = Property::ALL.into_iter();
    let is_wanted = |property: &Property| {
        [property.id(), property.name()]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(wanted))
    };
    let property = known.find(is_wanted);
    let unknown = || {
        let hint = "the properties are HL001 to HL011, and their names such as \"herd\"";
        Failure::usage(unknown_word("property", wanted, [], hint))
    };
    print(text(property.ok_or_else(unknown)?));
    Ok(Exit::Holds)
}

/// Returns the property in one sentence.
pub fn sentence(property: Property) -> String {
    let sentence = text(property).split("\n\n").nth(1).unwrap_or_default();
    sentence.replace('\n', " ")
}

fn text(property: Property) -> &'static str {
    match property {
        Property::Hl001 => include_str!("explain/HL001.txt"),
        Property::Hl002 => include_str!("explain/HL002.txt"),
        Property::Hl003 => include_str!("explain/HL003.txt"),
        Property::Hl004 => include_str!("explain/HL004.txt"),
        Property::Hl005 => include_str!("explain/HL005.txt"),
        Property::Hl006 => include_str!("explain/HL006.txt"),
        Property::Hl007 => include_str!("explain/HL007.txt"),
        Property::Hl008 => include_str!("explain/HL008.txt"),
        Property::Hl009 => include_str!("explain/HL009.txt"),
        Property::Hl010 => include_str!("explain/HL010.txt"),
        Property::Hl011 => include_str!("explain/HL011.txt"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use harness_checkers::{History, Options, ReadOptions, check};

    use super::*;

    /// Columns of a terminal.
    const WIDEST: usize = 80;

    #[test]
    fn every_explanation_begins_with_its_property_and_one_sentence() {
        for property in Property::ALL {
            let title = format!("{}  {}", property.id(), property.name());
            assert_eq!(text(property).lines().next(), Some(title.as_str()));
            let sentence = sentence(property);
            assert!(sentence.len() > 20 && sentence.ends_with('.'), "{sentence}");
            let mut lines = text(property).lines();
            let wide = lines.find(|line| line.chars().count() > WIDEST);
            assert_eq!(wide, None, "{}", property.id());
        }
    }

    #[test]
    fn every_class_of_a_violation_is_explained() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/checkers/tests/golden");
        let (mut classes, mut missing) = (BTreeSet::new(), BTreeSet::new());
        for entry in std::fs::read_dir(folder).unwrap() {
            let history = History::open(&entry.unwrap().path(), &ReadOptions::default()).unwrap();
            for finding in check(&history, &Options::still()).findings {
                let id = finding.property.id();
                for violation in finding.violations {
                    let is_explained = text(finding.property).contains(&format!("\n  {} ", violation.class));
                    if !is_explained {
                        missing.insert((id, violation.class.clone()));
                    }
                    classes.insert((id, violation.class));
                }
            }
        }
        assert!(classes.len() > 40, "{classes:?}");
        assert_eq!(missing, BTreeSet::new());
    }

    #[test]
    fn every_explanation_draws_who_holds_and_what_is_wrong_before_it_explains() {
        for property in Property::ALL {
            let drawing = text(property).split("\n\n").nth(2).unwrap_or_default();
            let lines: Vec<&str> = drawing.lines().collect();
            let lane =
                |line: &&&str| line.starts_with("   ") && line[3..].starts_with(|letter: char| letter.is_alphabetic());
            assert!(lines.iter().filter(lane).count() >= 2, "{drawing}");
            assert!(drawing.is_ascii() && drawing.contains("hold"), "{drawing}");
            // the first line is a time scale; the last two point at the violation and describe it
            let scale = lines[0].trim();
            assert!(scale.starts_with(|letter: char| letter.is_ascii_digit()), "{drawing}");
            let [.., pointer, said] = &lines[..] else {
                panic!("{drawing}")
            };
            assert!(
                pointer.contains('^') && pointer.trim().trim_matches('^').is_empty(),
                "{drawing}"
            );
            assert!(said.trim().len() > 8, "{drawing}");
            let pointers = lines.iter().filter(|line| line.trim_start().starts_with('^'));
            assert_eq!(pointers.count(), 1, "{drawing}");
        }
    }
}
