//! The drawing of operations without a legal order: calls and answers, the longest prefix that has an order, the possible states, and the
//! answer that is impossible in all of them. An SVG document, or a page that loads nothing.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};

use crate::linearizability::{Explanation, Operation};

/// Operations of the prefix that are drawn besides the needed ones: the last ones.
const MAX_PREFIX: usize = 24;
/// Pixels of a lane, of a letter, of the shortest bar, of the labels beside the lanes, and of the words below them.
const LANE: usize = 34;
const LETTER: usize = 7;
const SHORTEST: usize = 18;
const LABELS: usize = 90;
const FOOT: usize = 52;

/// A drawing of operations, by [`OrderDrawing::of`] or [`OrderDrawing::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderDrawing {
    title: String,
    operations: Vec<DrawnOperation>,
    states: Vec<String>,
}

/// One operation of a drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnOperation {
    /// Its lane: the client.
    pub lane: String,
    /// The call and the answer, in words.
    pub text: String,
    /// The time of the call, in any unit.
    pub call: u64,
    /// The time of the answer; `None` if it is unknown.
    pub reply: Option<u64>,
    /// Its position in the order of the longest prefix, from 1.
    pub turn: Option<usize>,
    /// Whether its answer is impossible.
    pub impossible: bool,
    /// Whether an order exists without its answer.
    pub needed: bool,
}

impl OrderDrawing {
    /// Creates a drawing with a title and the states that were possible at the impossible answer.
    pub fn new(title: impl Into<String>, mut operations: Vec<DrawnOperation>, states: Vec<String>) -> Self {
        operations.sort_by_key(|operation| operation.call);
        Self {
            title: title.into(),
            operations,
            states,
        }
    }

    /// Draws an explanation: the needed operations, and the end of the prefix. `lane` and `words` return the lane and the words of an
    /// operation by its place.
    pub fn of<State: Debug, Op>(
        title: impl Into<String>,
        explanation: &Explanation<State>,
        operations: &[Operation<Op>],
        lane: impl Fn(usize) -> String,
        words: impl Fn(usize) -> String,
    ) -> Self {
        let prefix = &explanation.prefix;
        let last = &prefix[prefix.len().saturating_sub(MAX_PREFIX)..];
        let shown = last.iter().chain(&explanation.needed).chain([&explanation.blocked]);
        let shown: BTreeSet<usize> = shown.copied().collect();
        let drawn = shown.into_iter().map(|place| DrawnOperation {
            lane: lane(place),
            text: words(place),
            call: operations[place].call,
            reply: operations[place].reply,
            turn: prefix.iter().position(|other| *other == place).map(|turn| turn + 1),
            impossible: place == explanation.blocked,
            needed: explanation.needed.contains(&place),
        });
        let states = explanation.states.iter().map(|state| format!("{state:?}")).collect();
        Self::new(title, drawn.collect(), states)
    }

    /// Returns the drawing as an SVG document. Its colours are classes, with a style of its own.
    pub fn svg(&self) -> String {
        let lanes = self.lanes();
        let columns = Columns::of(&self.operations);
        let (width, height) = (LABELS + columns.width + 30, LANE * lanes.len() + FOOT + 10);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\"><title>{}</title><style>{STYLE}</style>",
            escaped(&self.title)
        );
        for (row, lane) in lanes.iter().enumerate() {
            let y = row * LANE + 5;
            let rule = y + LANE - 2;
            // Writing to a string does not fail.
            let _ = write!(
                svg,
                "<text class=\"lane\" x=\"4\" y=\"{}\">{}</text><line class=\"rule\" x1=\"{LABELS}\" x2=\"{}\" y1=\"{rule}\" y2=\"{rule}\"/>",
                y + 20,
                escaped(lane),
                width - 10,
            );
            let own = self.operations.iter().filter(|operation| operation.lane == *lane);
            own.for_each(|operation| bar(&mut svg, operation, &columns, y));
        }
        self.impossible_moment(&mut svg, &columns, height);
        svg.push_str("</svg>");
        svg
    }

    /// Returns a page of several drawings.
    pub fn page(title: &str, drawings: &[Self]) -> String {
        let sections: String = drawings.iter().map(Self::section).collect();
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title><style>{PAGE_STYLE}</style></head>\
             <body>{sections}</body></html>\n",
            escaped(title)
        )
    }

    /// Returns the drawing as a page: the SVG, the order of the longest prefix, and the states after it.
    pub fn html(&self) -> String {
        Self::page(&self.title, std::slice::from_ref(self))
    }

    fn section(&self) -> String {
        let mut page = format!("<section><h1>{}</h1>{}", escaped(&self.title), self.svg());
        let mut turns: Vec<&DrawnOperation> = self.operations.iter().filter(|of| of.turn.is_some()).collect();
        turns.sort_by_key(|operation| operation.turn);
        if let Some(first) = turns.first() {
            let _ = write!(
                page,
                "<p>The longest prefix that has an order:</p><ol start=\"{}\">",
                first.turn.unwrap_or(1)
            );
            for DrawnOperation { lane, text, turn, .. } in turns {
                let (number, lane, text) = (turn.unwrap_or(1), escaped(lane), escaped(text));
                let _ = write!(page, "<li value=\"{number}\">{lane}: {text}</li>");
            }
            page.push_str("</ol>");
        }
        if let Some(sentence) = self.sentence() {
            let _ = write!(page, "<p>{}</p>", escaped(&sentence));
        }
        page.push_str("<p class=\"quiet\">A number is the place in that order. Filled operations are needed for the proof: without the \
                       answer of any one of them there is an order. An open end is an unknown outcome.</p></section>");
        page
    }

    fn blocked(&self) -> Option<&DrawnOperation> {
        self.operations.iter().find(|operation| operation.impossible)
    }

    fn sentence(&self) -> Option<String> {
        let blocked = self.blocked()?;
        let states = match self.states.as_slice() {
            [] => return None,
            [only] => format!("The only possible state then is {only}"),
            several => format!("The possible states then are {}", several.join(" and ")),
        };
        Some(format!(
            "{states}, and {}: {} is impossible.",
            blocked.lane, blocked.text
        ))
    }

    fn lanes(&self) -> Vec<String> {
        let mut lanes: Vec<String> = Vec::new();
        for operation in &self.operations {
            if !lanes.contains(&operation.lane) {
                lanes.push(operation.lane.clone());
            }
        }
        lanes
    }

    /// Draws a line at the impossible answer, with the states that were possible.
    fn impossible_moment(&self, svg: &mut String, columns: &Columns, height: usize) {
        let Some(blocked) = self.blocked() else { return };
        let x = LABELS + blocked.reply.map_or(columns.width, |reply| columns.at(reply));
        let (middle, states) = (LABELS + columns.width / 2, escaped(&self.states.join(" or ")));
        let (anchor, y) = (if x > middle { "end" } else { "start" }, height - FOOT + 20);
        let _ = write!(
            svg,
            "<line class=\"end\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"{}\"/><text class=\"end\" text-anchor=\"{anchor}\" x=\"{x}\" \
             y=\"{}\">{}</text>",
            height - FOOT + 6,
            y + 2,
            if states.is_empty() {
                "impossible here".to_owned()
            } else {
                format!("possible here: {states}")
            },
        );
    }
}

fn bar(svg: &mut String, operation: &DrawnOperation, columns: &Columns, y: usize) {
    let from = LABELS + columns.at(operation.call);
    let to = LABELS + operation.reply.map_or(columns.width + 20, |reply| columns.at(reply));
    let class = match (operation.impossible, operation.needed) {
        (true, _) => "bar impossible",
        (false, true) => "bar needed",
        (false, false) => "bar",
    };
    let open = if operation.reply.is_none() { " open" } else { "" };
    let (width, text) = (to.saturating_sub(from).max(4), escaped(&words(operation)));
    let _ = write!(
        svg,
        "<g><title>{}: {text}</title><rect class=\"{class}{open}\" x=\"{from}\" y=\"{y}\" width=\"{width}\" height=\"{}\" rx=\"3\"/>\
         <text class=\"words\" x=\"{}\" y=\"{}\">{text}</text></g>",
        escaped(&operation.lane),
        LANE - 8,
        from + 5,
        y + 18,
    );
}

/// Returns the words of an operation: its position in the order, the call and the answer (`3 write 2`).
fn words(operation: &DrawnOperation) -> String {
    match operation.turn {
        Some(turn) => format!("{turn}  {}", operation.text),
        None => operation.text.clone(),
    }
}

/// The columns of a drawing: its calls and replies from left to right, by order and not by time, with room for the words of each bar.
struct Columns {
    /// The place of each moment in pixels, by moment.
    places: Vec<(u64, usize)>,
    width: usize,
}

impl Columns {
    fn of(operations: &[DrawnOperation]) -> Self {
        let each = operations.iter();
        let moments = each.flat_map(|operation| [Some(operation.call), operation.reply]);
        let moments: BTreeSet<u64> = moments.flatten().collect();
        let mut columns = Self {
            places: Vec::new(),
            width: 0,
        };
        let ending = |reply: Option<u64>| operations.iter().filter(move |operation| operation.reply == reply);
        for moment in moments {
            for operation in ending(Some(moment)) {
                columns.width = columns.width.max(columns.at(operation.call) + room(operation));
            }
            columns.places.push((moment, columns.width));
            columns.width += SHORTEST;
        }
        let open = ending(None).map(|operation| columns.at(operation.call) + room(operation));
        columns.width = open.fold(columns.width, usize::max);
        columns
    }

    fn at(&self, moment: u64) -> usize {
        let after = self.places.partition_point(|(before, _)| *before < moment);
        self.places.get(after).map_or(self.width, |(_, place)| *place)
    }
}

fn room(operation: &DrawnOperation) -> usize {
    words(operation).chars().count() * LETTER + 10
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no other control characters than these.
            '\t' | '\n' | '\r' => escaped.push(' '),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

const STYLE: &str = ".lane,.words,.end{font:12px ui-monospace,monospace;fill:#222}.rule{stroke:#ddd}.bar{fill:#fff;stroke:#6b7280}\
.needed{fill:#dbeafe;stroke:#1d4ed8}.impossible{fill:#fee2e2;stroke:#b91c1c}.open{stroke-dasharray:4 3}line.end{stroke:#b91c1c;\
stroke-dasharray:2 2}text.end{fill:#b91c1c}";
const PAGE_STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em;color:#222;background:#fff}h1{font-size:1.1em}section{\
overflow-x:auto;margin-bottom:3em}ol{font-family:ui-monospace,monospace;font-size:13px}.quiet{color:#6b7280}";
