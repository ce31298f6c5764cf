//! Words: numbers, times and texts in the form for readers.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

pub use harness_checkers::thousands;

/// Number of digits from which on numbers are hard to compare.
const LONG_NUMBER: usize = 6;

/// Returns the digits with which all of these numbers begin, if the numbers are long and of one length: a reader skips them to see
/// the difference. Empty if the numbers are easy to distinguish.
pub fn common_digits(numbers: &[u64]) -> String {
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let Some(first) = texts.first().filter(|first| first.len() >= LONG_NUMBER) else {
        return String::new();
    };
    let same = |at: &usize| {
        texts
            .iter()
            .all(|text| text.len() == first.len() && text.as_bytes()[*at] == first.as_bytes()[*at])
    };
    let differ = texts.iter().any(|text| text != first);
    match (0..first.len()).take_while(same).count() {
        count if differ => first[..count].to_owned(),
        _ => String::new(),
    }
}

/// `1 client`, `11,042 acquires`
pub fn many(count: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(count), if count == 1 { "" } else { "s" })
}

/// `1.84s`, `3.1ms`, `41µs`: three significant digits.
pub fn span(nanoseconds: u64) -> String {
    let seconds = Duration::from_nanos(nanoseconds).as_secs_f64();
    // each form ends where its rounding would give it one digit more
    match nanoseconds {
        0..999_500 => format!("{:.0}µs", seconds * 1e6),
        999_500..9_950_000 => format!("{:.1}ms", seconds * 1e3),
        9_950_000..999_500_000 => format!("{:.0}ms", seconds * 1e3),
        999_500_000..9_995_000_000 => format!("{seconds:.2}s"),
        _ => format!("{seconds:.1}s"),
    }
}

/// `1m 05s`
pub fn clock(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m {:02}s", seconds % 60),
    }
}

/// `13.90s`: a moment of the run.
pub fn moment(nanoseconds: u64) -> String {
    format!("{:.2}s", Duration::from_nanos(nanoseconds).as_secs_f64())
}

/// `13.90s to 15.74s`; `1.5ms at 13.90s` where both ends have the same digits.
pub fn stretch(from_ns: u64, to_ns: u64) -> String {
    match (moment(from_ns), moment(to_ns)) {
        (from, to) if from == to => format!("{} at {from}", span(to_ns.saturating_sub(from_ns))),
        (from, to) => format!("{from} to {to}"),
    }
}

/// `2026-11-21 06:45 UTC` of `20261121-0645`, as `run.json` has it.
pub fn date(started: &str) -> String {
    match parts(started) {
        Some([year, month, day, hour, minute]) => format!("{year}-{month}-{day} {hour}:{minute} UTC"),
        None => started.to_owned(),
    }
}

/// `2026-11-21T06:45:00Z` of `20261121-0645`; `None` for a text in another form.
pub fn rfc3339(started: &str) -> Option<String> {
    let [year, month, day, hour, minute] = parts(started)?;
    Some(format!("{year}-{month}-{day}T{hour}:{minute}:00Z"))
}

fn parts(started: &str) -> Option<[&str; 5]> {
    let (day, minute) = started.split_once('-')?;
    let all_digits = format!("{day}{minute}").bytes().all(|byte| byte.is_ascii_digit());
    (day.len() == 8 && minute.len() == 4 && all_digits)
        .then(|| [&day[..4], &day[4..6], &day[6..], &minute[..2], &minute[2..]])
}

/// Returns about `count` round steps of time, with their labels.
pub fn axis(from_ns: u64, to_ns: u64, count: u64) -> Vec<(u64, String)> {
    let length = to_ns.saturating_sub(from_ns).max(1);
    let powers = (0..15).map(|power| 10_u64.pow(power));
    let steps = powers.flat_map(|power| [power, power * 2, power * 5]);
    let step = steps.into_iter().find(|step| length / step <= count).unwrap_or(length);
    let digits = 9_u32.saturating_sub(step.ilog10()).min(6) as usize;
    let first = from_ns.div_ceil(step);
    let last = to_ns / step;
    let ticks = (first..=last).map(|number| number * step);
    ticks.map(|at| (at, format!("{:.digits$}s", at as f64 / 1e9))).collect()
}

/// Breaks text into lines of at most `width` characters, at spaces.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_words(text.split_whitespace(), width)
}

/// Breaks words into lines of at most `width` characters; no word is broken.
pub fn wrap_words<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Quotes each word of a command for a shell.
pub fn quoted_words(words: &[String]) -> Vec<String> {
    words.iter().map(|word| quoted(word)).collect()
}

/// Returns a JSON string, which is a string of YAML, TOML, Python and JavaScript, too.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a command on a run, word by word: `harness check results/x`.
pub fn on_run(command: &str, path: &str) -> Vec<String> {
    quoted_words(&["harness", command, path].map(str::to_owned))
}

/// Returns the path of a run that a record in `folder` names, without detours: in a merged record it leads out of the folder, and
/// `results/merged/../shard-0/runs/x` is `results/shard-0/runs/x`. No part of it may be a symbolic link.
pub fn run_path(folder: &str, run: &str) -> String {
    let mut straight = PathBuf::new();
    for part in Path::new(folder).join(run).components() {
        let goes_back = part == Component::ParentDir;
        if goes_back && matches!(straight.components().next_back(), Some(Component::Normal(_))) {
            straight.pop();
        } else {
            straight.push(part);
        }
    }
    straight.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_have_their_common_digits_and_short_ones_none() {
        assert_eq!(common_digits(&[4_294_967_543, 4_294_967_675]), "4294967");
        assert_eq!(common_digits(&[4_294_967_295, 9_000_000_000]), "");
        for apart in [
            &[41, 42][..],
            &[99_999, 100_000],
            &[4_294_967_543],
            &[],
            &[4_294_967_543, 4_294_967_543],
        ] {
            assert_eq!(common_digits(apart), "", "{apart:?}");
        }
    }

    #[test]
    fn spans_keep_what_matters() {
        let spans = [41_000, 3_100_000, 44_000_000, 1_840_000_000, 10_200_000_000].map(span);
        assert_eq!(spans, ["41µs", "3.1ms", "44ms", "1.84s", "10.2s"]);
        // the last lengths of a form, and the first of the next one
        let last = [999_499, 9_949_999, 999_499_999, 9_994_999_999].map(span);
        assert_eq!(last, ["999µs", "9.9ms", "999ms", "9.99s"]);
        let next = [999_500, 9_950_000, 999_500_000, 9_995_000_000].map(span);
        assert_eq!(next, ["1.0ms", "10ms", "1.00s", "10.0s"]);
    }

    #[test]
    fn an_axis_has_whole_steps_inside_its_stretch() {
        let labels = |from_ns, to_ns| {
            let ticks = axis(from_ns, to_ns, 6).into_iter();
            ticks.map(|(_, label)| label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(11_400_000_000, 16_200_000_000), "12s 13s 14s 15s 16s");
        let twentieths = "1.00s 1.05s 1.10s 1.15s 1.20s 1.25s 1.30s";
        assert_eq!(labels(1_000_000_000, 1_300_000_000), twentieths);
        assert!(labels(2_270_100_000, 2_270_900_000).starts_with("2.2702s "));
        let day = "0s 20000s 40000s 60000s 80000s";
        assert_eq!(labels(0, 86_400_000_000_000), day);
    }

    #[test]
    fn a_run_is_dated_by_the_minute_in_its_name() {
        assert_eq!(date("20261121-0645"), "2026-11-21 06:45 UTC");
        assert_eq!(rfc3339("20261121-0645").as_deref(), Some("2026-11-21T06:45:00Z"));
        assert_eq!((date("long ago"), rfc3339("2026ü121-0645")), ("long ago".into(), None));
    }

    #[test]
    fn text_is_wrapped_at_spaces_and_a_long_word_is_alone() {
        assert_eq!(wrap("a bb ccc dddddddd e", 6), ["a bb", "ccc", "dddddddd", "e"]);
    }

    #[test]
    fn a_quoted_word_is_never_broken() {
        let words = ["--client", "'python3 my lock.py'", "--seed"];
        assert_eq!(wrap_words(words.into_iter(), 12), words);
    }

    #[test]
    fn a_word_with_a_space_is_quoted_for_the_shell() {
        assert_eq!(quoted("python3 my_lock.py"), "'python3 my_lock.py'");
        assert_eq!(quoted("--seed=8f"), "--seed=8f");
        assert_eq!(on_run("check", "my runs/7").join(" "), "harness check 'my runs/7'");
    }

    #[test]
    fn the_path_of_a_run_has_no_detour_and_a_way_out_stays() {
        for (folder, run, path) in [
            ("results/a-hunt", "runs/7", "results/a-hunt/runs/7"),
            (
                "results/joined/merged",
                "../../shard-2/a-hunt/runs/7",
                "results/shard-2/a-hunt/runs/7",
            ),
            ("results/joined", "../../shards/1", "shards/1"),
            ("results", "../../shards", "../shards"),
            ("merged", "../../a/runs/7", "../a/runs/7"),
            ("/r/m", "../../b/runs/7", "/b/runs/7"),
            ("/a", "../b", "/b"),
            ("../m", "../../b/runs/7", "../../b/runs/7"),
            ("", "runs/7", "runs/7"),
        ] {
            assert_eq!(run_path(folder, run), path);
        }
    }
}
