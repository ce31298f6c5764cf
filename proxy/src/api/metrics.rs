//! The proxy metrics of Toxiproxy, in the text format of Prometheus:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>.

use std::fmt::Write;

use crate::direction::Direction;

/// Returns the labels of one direction of a proxy.
pub fn labels(direction: Direction, listener: &str, proxy: &str, upstream: &str) -> String {
    let [listener, proxy, upstream] = [listener, proxy, upstream].map(escaped);
    let direction = direction.name();
    format!(r#"direction="{direction}",listener="{listener}",proxy="{proxy}",upstream="{upstream}""#)
}

/// Returns two counters for each of these labels: the bytes that arrived, and those that were sent on.
pub fn text(traffic: &[(String, [u64; 2])]) -> String {
    let mut text = String::new();
    for (place, name, what) in [(0, "received", "arrived"), (1, "sent", "were sent on")] {
        let name = format!("toxiproxy_proxy_{name}_bytes_total");
        text += &format!("# HELP {name} Bytes that {what}, by proxy and direction.\n# TYPE {name} counter\n");
        for (labels, bytes) in traffic {
            writeln!(text, "{name}{{{labels}}} {}", bytes[place]).expect("a string takes all");
        }
    }
    text
}

fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_may_contain_anything() {
        let labels = labels(Direction::ToServer, "127.0.0.1:1", "a \"b\" \\ c\nd", "db:2");
        let lines = text(&[(labels, [7, 5])]);
        let expected = r#"toxiproxy_proxy_sent_bytes_total{direction="upstream",listener="127.0.0.1:1",proxy="a \"b\" \\ c\nd",upstream="db:2"} 5"#;
        assert!(lines.lines().any(|line| line == expected), "{lines}");
    }
}
