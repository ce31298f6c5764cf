//! Text as HTML takes it. Whatever comes from a run goes through here: names, causes and errors are anybody's.

/// Text, with everything escaped that means something to HTML.
pub fn text(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len());
    for letter in raw.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter if is_odd(letter) => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Letters that are not to be in a file: control characters, and marks that turn the direction of what follows.
fn is_odd(letter: char) -> bool {
    (letter.is_control() && !matches!(letter, '\n' | '\t'))
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A sentence of ours: what stands between backticks is code.
pub fn prose(raw: &str) -> String {
    let escaped = text(raw);
    let parts: Vec<&str> = escaped.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escaped;
    }
    let marked = parts.iter().enumerate().map(|(place, part)| {
        if place % 2 == 1 {
            format!("<code>{part}</code>")
        } else {
            (*part).to_owned()
        }
    });
    marked.collect()
}

/// JSON that may stand in a script element: no `<`, so that nothing in it ends the element.
pub fn json(value: &str) -> String {
    value
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Puts values at the `{{places}}` of a template. A value is taken as it is, and nothing in it is a place.
///
/// # Panics
/// When the template has a place without a value, or a value is for no place: both are files of ours.
pub fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut used = 0;
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (place, after) = after.split_once("}}").expect("a place ends");
        let value = values.iter().find(|(name, _)| *name == place);
        filled.push_str(before);
        filled.push_str(value.unwrap_or_else(|| panic!("no value for {place}")).1);
        used += 1;
        rest = after;
    }
    assert!(used >= values.len(), "a value is for no place");
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(
            text("<script>'\"&</script>\u{1b}[31m\u{202e}"),
            "&lt;script&gt;&#39;&quot;&amp;&lt;/script&gt;\u{fffd}[31m\u{fffd}"
        );
        assert_eq!(prose("lock `<b>` held"), "lock <code>&lt;b&gt;</code> held");
        assert_eq!(prose("an odd ` stays"), "an odd ` stays");
        assert!(!json(r#"{"a":"</script><!--"}"#).contains('<'));
    }

    #[test]
    fn a_value_is_no_template() {
        assert_eq!(fill("a {{x}} c {{y}}", &[("x", "{{y}}"), ("y", "d")]), "a {{y}} c d");
    }
}
