//! Suggestions ("did you mean") for an unknown fault, recipe, option, key or message.

/// Minimum similarity of suggested words, by Jaro and Winkler.
const ALIKE: f64 = 0.8;

/// Returns the known words that resemble the typed one, the most similar first.
pub fn similar<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // a common prefix has a large weight, since truncated names begin correctly
    let likeness = |known: &str| strsim::jaro_winkler(&typed.to_lowercase(), &known.to_lowercase());
    let scored = known.into_iter().map(|known| (likeness(known), known));
    let mut alike: Vec<(f64, &str)> = scored.filter(|(likeness, _)| *likeness >= ALIKE).collect();
    alike.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    alike.into_iter().map(|(_, known)| known).collect()
}

/// Returns "there is no key `leese`" with the hint "did you mean `lease`?", or with `otherwise` if nothing is similar.
pub fn unknown_word<'a>(what: &str, typed: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    let hint = match similar(typed, known).first() {
        Some(nearest) => format!("\nhint: did you mean `{nearest}`?"),
        None if otherwise.is_empty() => String::new(),
        None => format!("\nhint: {otherwise}"),
    };
    format!("there is no {what} `{typed}`{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 5] = ["lease", "time", "partition", "latency", "pause-holder"];

    #[test]
    fn a_misspelt_or_shortened_word_is_recognised() {
        for (typed, meant) in [
            ("leese", "lease"),
            ("tyme", "time"),
            ("PARTITON", "partition"),
            ("pause-h", "pause-holder"),
        ] {
            assert_eq!(similar(typed, KEYS).first(), Some(&meant), "{typed}");
        }
        assert_eq!(
            unknown_word("key", "leese", KEYS, "see the list"),
            "there is no key `leese`\nhint: did you mean `lease`?"
        );
    }

    #[test]
    fn a_word_that_resembles_nothing_is_answered_without_a_guess() {
        for typed in ["foo", "xyz", "", "backend", "interval"] {
            assert_eq!(similar(typed, KEYS), [] as [&str; 0], "{typed}");
        }
        assert_eq!(
            unknown_word("key", "foo", KEYS, "see the list"),
            "there is no key `foo`\nhint: see the list"
        );
        assert_eq!(unknown_word("key", "foo", KEYS, ""), "there is no key `foo`");
    }
}
