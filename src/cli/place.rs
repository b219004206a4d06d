//! A place in a topic, as people write it on the command line.

use laneway_client::Start;

/// `earliest`, `latest`, a time, or an offset.
pub(super) fn start(text: &str) -> Result<Start, String> {
    match text {
        "earliest" => return Ok(Start::Earliest),
        "latest" => return Ok(Start::Latest),
        _ => {}
    }
    match (text.parse::<u64>(), text.parse::<jiff::Timestamp>()) {
        (Ok(offset), _) => i64::try_from(offset).map(Start::Offset).map_err(|error| error.to_string()),
        (Err(_), Ok(at)) => Ok(Start::At(at.to_string())),
        (Err(_), Err(_)) => {
            Err("say earliest, latest, a time like 2026-11-16T06:00:00Z, or an offset".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_word_an_offset_or_a_time() {
        assert_eq!(start("earliest"), Ok(Start::Earliest));
        assert_eq!(start("latest"), Ok(Start::Latest));
        assert_eq!(start("1042"), Ok(Start::Offset(1042)));
        assert_eq!(start("2026-11-16T06:00:00+02:00"), Ok(Start::At("2026-11-16T04:00:00Z".into())));
        for wrong in ["", "-1", "middle", "2026-11-16", "9223372036854775808"] {
            assert!(start(wrong).is_err(), "{wrong}");
        }
    }
}
