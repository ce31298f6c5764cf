//! `harness explain`: what a property means, why it breaks, how to tell the causes apart, how to mend them.

use harness_checkers::Property;

use super::complain;
use super::stdout::print;
use crate::exit::Exit;

pub fn explain(wanted: &str) -> Exit {
    match Property::ALL
        .into_iter()
        .find(|property| property.id().eq_ignore_ascii_case(wanted))
    {
        Some(property) => {
            print(text(property));
            Exit::Holds
        }
        None => complain(
            Exit::Usage,
            format!("there is no property `{wanted}`; there are HL001 to HL009"),
        ),
    }
}

/// The property in one sentence.
pub fn first_line(property: Property) -> &'static str {
    text(property).lines().nth(2).unwrap_or_default()
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_explanation_begins_with_its_property_and_one_sentence() {
        for property in Property::ALL {
            let title = format!("{}  {}", property.id(), property.name());
            assert_eq!(text(property).lines().next(), Some(title.as_str()));
            assert!(first_line(property).len() > 20, "{}", property.id());
            assert!(
                text(property).lines().all(|line| line.chars().count() <= 104),
                "{}",
                property.id()
            );
        }
    }
}
