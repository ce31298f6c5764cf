//! The tokens of Rust source by `proc-macro2`, as far as paths in it need them: words, `::`, and single other marks.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// Whether a token is a word.
pub fn is_word(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// Returns the tokens of a file, without comments, strings, characters and numbers.
pub fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    add_tokens(text.parse().expect("the source is Rust"), &mut found);
    found
}

fn add_tokens(stream: TokenStream, found: &mut Vec<String>) {
    let mut is_joint = false;
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (begin, end) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                found.push(begin.to_owned());
                add_tokens(group.stream(), found);
                found.push(end.to_owned());
            }
            TokenTree::Ident(word) => match found.last_mut() {
                // a lifetime is two tokens
                Some(last) if is_joint && last == "'" => last.push_str(&word.to_string()),
                _ => found.push(word.to_string()),
            },
            TokenTree::Punct(mark) => {
                // a `::` is two tokens
                match found.last_mut() {
                    Some(last) if is_joint && last == ":" && mark.as_char() == ':' => last.push(':'),
                    _ => found.push(mark.to_string()),
                }
                is_joint = mark.spacing() == Spacing::Joint;
            }
            TokenTree::Literal(_) => {}
        }
    }
}
