//! Text and script data in HTML. Elements are `maud`'s: text in them is escaped by its type.

use maud::{Markup, PreEscaped, html};

use crate::report::escape;

/// Returns a sentence of harness: text between backticks is code.
pub fn prose(raw: &str) -> Markup {
    prose_with_tokens(raw, "")
}

/// Returns a sentence about tokens that all begin with these digits.
pub fn prose_with_tokens(raw: &str, common: &str) -> Markup {
    let parts: Vec<&str> = raw.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (raw) };
    }
    html! {
        @for (place, part) in parts.iter().enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (tokens(part, common)) }
        }
    }
}

/// Returns a text in which the common digits of all tokens are pale, so that the others stand out.
pub fn tokens(raw: &str, common: &str) -> Markup {
    let parts = raw
        .as_bytes()
        .chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    let parts = parts.map(|part| std::str::from_utf8(part).expect("it is cut next to ASCII"));
    let is_number = |text: &&str| text.starts_with(|letter: char| letter.is_ascii_digit());
    html! {
        @for part in parts {
            @match part.strip_prefix(common).filter(|_| !common.is_empty()).filter(is_number) {
                Some(rest) => { span.same { (common) } (rest) }
                None => { (part) }
            }
        }
    }
}

/// Returns JSON for a script element: without `<`, which could end the element, and without characters that [`whole`] would escape.
pub fn json(value: &str) -> Markup {
    PreEscaped(escape::json(value).replace('<', "\\u003c"))
}

/// Returns a path as a URL has it.
pub fn address(path: &str) -> String {
    let encoded = |byte: u8| match byte.is_ascii_alphanumeric() || b"-_./=,~".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(encoded).collect()
}

/// Returns a page without the control characters of any of its parts.
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
    fn digits_that_all_tokens_have_are_marked_where_a_number_goes_on() {
        let shown = |raw: &str| tokens(raw, "4294967").into_string();
        assert_eq!(
            shown("`ö` token 4294967543 after 4294967675."),
            "`ö` token <span class=\"same\">4294967</span>543 after <span class=\"same\">4294967</span>675."
        );
        for other in ["14294967543", "4294967", "4294967 x", ""] {
            assert_eq!(shown(other), other);
        }
        assert_eq!(shown("<b>"), "&lt;b&gt;");
        assert_eq!(tokens("41 42", "").into_string(), "41 42");
    }

    #[test]
    fn script_data_is_json_and_ends_no_element() {
        let value = serde_json::json!({ "a": "</script><!--\u{202e}\u{2028}\n" });
        let data = whole(json(&value.to_string()));
        assert!(!data.contains('<') && data.is_ascii(), "{data}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&data).unwrap(), value);
    }
}
