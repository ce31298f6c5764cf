//! Prose and script data as HTML takes them. Elements are `maud`'s: text in them is escaped by its type.

use maud::{Markup, PreEscaped, html};

use crate::report::escape;

/// A sentence of ours: what is between backticks is code.
pub fn prose(raw: &str) -> Markup {
    let parts: Vec<&str> = raw.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (raw) };
    }
    html! {
        @for (place, part) in parts.iter().enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// JSON in a script element: no `<`, so that nothing in it ends the element, and no character that [`whole`] would escape.
pub fn json(value: &str) -> Markup {
    let mut escaped = String::with_capacity(value.len());
    for letter in value.chars() {
        if letter == '<' || escape::is_control(letter) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            escaped.push(letter);
        }
    }
    PreEscaped(escaped)
}

/// A page without control characters, whichever of its parts had them.
pub fn whole(page: Markup) -> String {
    escape::lines(&page.into_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        let name = "<script>'\"&</script>\u{1b}[31m\u{202e}";
        assert_eq!(
            whole(html! { b title=(name) { (name) } }),
            "<b title=\"&lt;script&gt;'&quot;&amp;&lt;/script&gt;\\u{1b}[31m\\u{202e}\">&lt;script&gt;'&quot;&amp;&lt;/script&gt;\\u{1b}[31m\\u{202e}</b>"
        );
        assert_eq!(
            prose("lock `<b>` held").into_string(),
            "lock <code>&lt;b&gt;</code> held"
        );
        assert_eq!(prose("an odd ` stays").into_string(), "an odd ` stays");
    }

    #[test]
    fn script_data_is_json_and_ends_no_element() {
        let value = serde_json::json!({ "a": "</script><!--\u{202e}\u{2028}\n" });
        let data = whole(json(&value.to_string()));
        assert!(!data.contains('<') && data.is_ascii(), "{data}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&data).unwrap(), value);
    }
}
