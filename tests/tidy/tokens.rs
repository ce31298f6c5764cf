//! The tokens of Rust source, as far as paths in it need them: words, lifetimes, `::`, and other marks one by one.

/// Whether a token is a word.
pub fn is_word(token: &str) -> bool {
    token.starts_with(is_of_word)
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The tokens of a file, without comments and the contents of strings and characters.
pub fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let word = rest.find(|letter| !is_of_word(letter)).unwrap_or(rest.len());
        let (length, is_token) = if let Some(length) = length_of_silence(rest) {
            (length, false)
        } else if word > 0 {
            (word, true)
        } else if let Some(lifetime) = rest.strip_prefix('\'') {
            let length = lifetime.find(|letter| !is_of_word(letter));
            (length.map_or(rest.len(), |length| length + 1), true)
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (letter.len_utf8(), !letter.is_whitespace())
        };
        let (token, after) = rest.split_at(length);
        found.extend(is_token.then_some(token));
        rest = after;
    }
    found
}

/// How long the comment, string or character is that begins here.
fn length_of_silence(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(length_of_comment(text));
    }
    if let Some(quoted) = text.strip_prefix('\'') {
        return length_of_character(quoted).map(|length| length + 1);
    }
    let prefix = text.find(|letter| !"brc".contains(letter))?;
    let (prefix, quoted) = text.split_at(prefix);
    if let Some(bare) = quoted.strip_prefix('"').filter(|_| !prefix.contains('r')) {
        let mut is_escaped = false;
        let end = bare.find(|letter| {
            let ends = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            ends
        });
        return Some(end.map_or(text.len(), |end| prefix.len() + 1 + end + 1));
    }
    let marks = quoted.find(|letter| letter != '#')?;
    if !prefix.contains('r') || !quoted[marks..].starts_with('"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(marks));
    let begin = prefix.len() + marks + 1;
    let length = text[begin..].find(&end);
    Some(length.map_or(text.len(), |length| begin + length + end.len()))
}

/// Of one that may have others in it.
fn length_of_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(next) = text[at..].find(['/', '*']) {
        at += next;
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Of a character behind its first quotation mark; `None`: it is the mark of a lifetime.
fn length_of_character(quoted: &str) -> Option<usize> {
    let mut letters = quoted.char_indices();
    let (_, first) = letters.next()?;
    if first == '\\' {
        letters.next();
        return letters.find(|(_, letter)| *letter == '\'').map(|(at, _)| at + 1);
    }
    letters
        .next()
        .filter(|(_, letter)| *letter == '\'')
        .map(|(at, _)| at + 1)
}
