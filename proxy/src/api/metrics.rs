//! The proxy metrics of Toxiproxy, in the text format of Prometheus:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>.

use std::fmt::Write;

use crate::direction::Direction;

/// Bytes that one proxy carried in one direction.
pub struct Traffic {
    pub proxy: String,
    pub listener: String,
    pub upstream: String,
    pub direction: Direction,
    /// Bytes.
    pub received: u64,
    pub sent: u64,
}

/// Returns two counters for each direction of each proxy.
pub fn text(traffic: &[Traffic]) -> String {
    let received = metric("received", "arrived", traffic, |traffic| traffic.received);
    received + &metric("sent", "were sent on", traffic, |traffic| traffic.sent)
}

fn metric(name: &str, what: &str, traffic: &[Traffic], value: impl Fn(&Traffic) -> u64) -> String {
    let name = format!("toxiproxy_proxy_{name}_bytes_total");
    let mut text = format!("# HELP {name} Bytes that {what}, by proxy and direction.\n# TYPE {name} counter\n");
    for one in traffic {
        let direction = one.direction.name();
        let [listener, proxy, upstream] = [&one.listener, &one.proxy, &one.upstream].map(|label| escaped(label));
        let labels = format!(r#"direction="{direction}",listener="{listener}",proxy="{proxy}",upstream="{upstream}""#);
        writeln!(text, "{name}{{{labels}}} {}", value(one)).expect("a string takes all");
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
        let traffic = Traffic {
            proxy: "a \"b\" \\ c\nd".into(),
            listener: "127.0.0.1:1".into(),
            upstream: "db:2".into(),
            direction: Direction::ToServer,
            received: 7,
            sent: 5,
        };
        let lines = text(&[traffic]);
        let expected = r#"toxiproxy_proxy_sent_bytes_total{direction="upstream",listener="127.0.0.1:1",proxy="a \"b\" \\ c\nd",upstream="db:2"} 5"#;
        assert!(lines.lines().any(|line| line == expected), "{lines}");
    }
}
