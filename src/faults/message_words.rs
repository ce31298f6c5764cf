//! Faults on messages in words, for plans and reports.

use std::time::Duration;

use harness_proxy::{MessageAction, MessageRuleSpec};

use crate::client_role::{ANYONE, HOLDER, IDLE_CLIENT};

/// Returns the chosen message and the act on it in words.
pub(super) fn in_words(meant: &MessageRuleSpec, kills: bool) -> String {
    let MessageRuleSpec {
        message,
        occurrence,
        whose,
        ..
    } = meant;
    let of = match *whose {
        ANYONE => "of anyone".to_owned(),
        HOLDER => "of the holder".to_owned(),
        IDLE_CLIENT => "of an idle client".to_owned(),
        other => format!("of a {}", other.name()),
    };
    let accepted = accepted_in_words(meant);
    let which = format!("the {} {accepted}`{}` {of}", ordinal(*occurrence), message.name());
    result_in_words(&which, meant.action, meant.refuse, kills)
}

/// Returns `accepted ` if only accepted ones count.
pub(super) fn accepted_in_words(meant: &MessageRuleSpec) -> &'static str {
    if meant.accepted { "accepted " } else { "" }
}

/// Returns the fate of the message that `which` names, or with `kills` that of the process that sent it.
pub(super) fn result_in_words(which: &str, action: MessageAction, refuse: Option<Duration>, kills: bool) -> String {
    if kills {
        return format!("{which} is carried out, and its client's process is killed before the reply comes");
    }
    let late = |time: Duration| format!("{}ms late", time.as_millis());
    let refused = refuse
        .map(|time| format!(", and the client is refused for {}ms", time.as_millis()))
        .unwrap_or_default();
    match action {
        MessageAction::DropRequest => format!("{which} is lost before the server; its connection ends{refused}"),
        MessageAction::DropReply => format!("{which} is carried out, its reply is lost; the connection ends{refused}"),
        MessageAction::DelayRequest(time) => format!("{which} reaches the server {}", late(time)),
        MessageAction::DelayReply(time) => format!("the reply to {which} comes {}", late(time)),
    }
}

fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
