//! Colours of pages, measured: those with different meanings are distinguishable, also with a colour vision deficiency,
//! and text is readable.
//!
//! A deficiency is simulated by the matrices of Machado, Oliveira and Fernandes, "A Physiologically-based Model for
//! Simulation of Color Vision Deficiency" (2009), for people who lack one kind of cone:
//! <https://www.inf.ufrgs.br/~oliveira/pubs_files/CVD_Simulation/CVD_Simulation.html>. Differences are distances in Oklab,
//! <https://bottosson.github.io/posts/oklab/>; contrasts are those of WCAG 2.2, <https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio>.

use super::STYLE;

type Rgb = [f64; 3];

/// The linear RGB that each kind of vision perceives of each primary colour.
const EYES: [(&str, [Rgb; 3]); 4] = [
    ("most", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "without red",
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    ),
    (
        "without green",
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ),
    (
        "without blue",
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ),
];

/// Distance in Oklab from which on two colours are distinguished at a glance: a just noticeable difference is about 0.02.
const APART: f64 = 0.09;

/// Colours that are seen or compared side by side: verdicts, parts of drawings, and a violation with a verdict.
const SEEN_TOGETHER: [(&str, &str); 13] = [
    ("pass", "fail"),
    ("pass", "unsure"),
    ("fail", "unsure"),
    ("violation", "fault"),
    ("violation", "hold"),
    ("violation", "unsure"),
    ("violation", "fail"),
    ("violation", "pass"),
    ("fault", "hold"),
    ("fault", "fail"),
    ("fault", "unsure"),
    ("fault", "pass"),
    ("hold", "unsure"),
];

/// Returns the colours of the light page and of the dark one.
fn schemes() -> [(&'static str, &'static str); 2] {
    let dark = STYLE
        .find("@media (prefers-color-scheme: dark)")
        .expect("there is a dark page");
    [("light", &STYLE[..dark]), ("dark", &STYLE[dark..])]
}

fn linear(style: &str, name: &str) -> Rgb {
    let start = style
        .find(&format!("--{name}: #"))
        .unwrap_or_else(|| panic!("there is no --{name}"));
    let digits = &style[start + name.len() + 5..][..6];
    [0, 2, 4].map(|at| {
        let value = f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    })
}

fn times(matrix: &[Rgb; 3], color: Rgb) -> Rgb {
    matrix.map(|row| row.iter().zip(color).map(|(one, other)| one * other).sum())
}

fn oklab(color: Rgb) -> Rgb {
    let cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ];
    let lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ];
    times(&lab, times(&cones, color).map(f64::cbrt))
}

fn contrast(one: Rgb, other: Rgb) -> f64 {
    let bright = |[red, green, blue]: Rgb| 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    let (one, other) = (bright(one), bright(other));
    one.max(other) / one.min(other)
}

#[test]
fn what_means_something_else_looks_different_to_all_eyes() {
    for (scheme, style) in schemes() {
        for (eyes, matrix) in &EYES {
            let seen = |name| oklab(times(matrix, linear(style, name)).map(|part| part.clamp(0.0, 1.0)));
            for (one, other) in SEEN_TOGETHER {
                let apart: f64 = seen(one)
                    .iter()
                    .zip(seen(other))
                    .map(|(one, other)| (one - other).powi(2))
                    .sum();
                let apart = apart.sqrt();
                assert!(
                    apart >= APART,
                    "{scheme}: {one} and {other} are {apart:.3} apart for eyes of {eyes}"
                );
            }
        }
    }
}

#[test]
fn words_can_be_read_and_bars_seen() {
    for (scheme, style) in schemes() {
        for (name, on, least) in [
            ("text", "ground", 4.5),
            ("quiet", "ground", 4.5),
            ("quiet", "raised", 4.5),
            ("pass", "ground", 4.5),
            ("fail", "ground", 4.5),
            ("unsure", "ground", 4.5),
            ("on-hold", "hold", 4.5),
            ("on-fault", "fault-ground", 4.5),
            ("hold", "ground", 3.0),
            ("violation", "ground", 3.0),
        ] {
            let found = contrast(linear(style, name), linear(style, on));
            assert!(found >= least, "{scheme}: {name} on {on} has a contrast of {found:.2}");
        }
    }
}
