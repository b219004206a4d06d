//! `/metrics` in the two formats that exist: OpenMetrics, and the older plain text for those who accept nothing newer, such as
//! `promtool check metrics` and older scrapers.
//!
//! They differ in comments only. Samples have the same names in both; but OpenMetrics describes a counter without its
//! `_total`, and plain text with it.

use axum::http::{HeaderMap, header};

/// The media type of OpenMetrics.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of the plain text.
pub(super) const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether the request asks for plain text, and not for OpenMetrics beside it, as Prometheus does.
pub(super) fn wants_plain_text(headers: &HeaderMap) -> bool {
    let accepts = |media_type: &str| {
        let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        accepted.any(|value| value.contains(media_type))
    };
    accepts("text/plain") && !accepts("application/openmetrics-text")
}

/// The plain text that says the same.
pub(super) fn plain_text(open_metrics: &str) -> String {
    let mut plain = String::with_capacity(open_metrics.len());
    let mut help: Option<&str> = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = Some(described); // its type, which decides its name, comes next
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            describe(&mut plain, help.take(), typed);
        } else if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

fn describe(plain: &mut String, help: Option<&str>, typed: &str) {
    let (name, kind) = typed.split_once(' ').unwrap_or((typed, "untyped"));
    let suffix = if kind == "counter" { "_total" } else { "" };
    if let Some((_, sentence)) = help.and_then(|help| help.split_once(' ')) {
        plain.push_str(&format!("# HELP {name}{suffix} {sentence}\n"));
    }
    plain.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_for_those_who_ask_for_nothing_newer() {
        let asks = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            wants_plain_text(&headers)
        };
        assert!(asks("text/plain"));
        assert!(!asks("*/*"));
        assert!(!asks("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"));
        assert!(!wants_plain_text(&HeaderMap::new()));
    }

    #[test]
    fn a_counter_is_described_with_its_suffix_and_the_rest_stays() {
        let open = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum 1.5\n\
            # HELP b How many.\n# TYPE b counter\nb_total{x=\"# HELP\"} 2\n# EOF\n";
        let plain = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\na_seconds_sum 1.5\n\
            # HELP b_total How many.\n# TYPE b_total counter\nb_total{x=\"# HELP\"} 2\n";
        assert_eq!(plain_text(open), plain);
    }
}
