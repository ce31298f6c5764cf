//! Durations in options, faults and files: `200ms`, `1.5s`, `2m`.

use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Parses `200ms`, `1.5s`, `2m`; a bare number is refused, since its unit would be a guess.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = unit.zip(number.parse::<f64>().ok()).map(|(unit, number)| number * unit);
    let seconds = seconds.ok_or_else(|| format!("`{text}` is not a duration such as 200ms, 1.5s or 2m"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(format!("`{text}` is not a duration from 0 to a year")),
    }
}

/// Returns a parser of durations from `least` to `most`.
pub fn duration_within(least: Duration, most: Duration) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| match parse_duration(text)? {
        duration if duration < least => Err(format!("at least {least:?}")),
        duration if duration > most => Err(format!("at most {most:?}")),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert!(parse_duration("5").unwrap_err().contains("`5`"));
        assert!(parse_duration("-1s").is_err());
        assert!(parse_duration("9000000000000000000s").is_err());
    }
}
