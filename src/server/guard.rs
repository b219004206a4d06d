//! Who may ask. A browser on this machine can be made to call 127.0.0.1 by any page it visits; the page cannot forge
//! `Host` and `Origin`. So both must name this machine or a host that the operator allows, unless there is none to check
//! (`curl` sends no `Origin`).

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use laneway_client::{ErrorCode, Problem};

use super::Context;
use super::problem::Failure;

/// Refuses requests that another site has sent or that were made under another name.
pub(super) async fn check(State(context): State<Context>, request: Request, next: Next) -> Response {
    match foreign(request.headers(), &context.allowed_hosts) {
        None => next.run(request).await,
        Some((name, value)) => {
            let detail = format!(
                "{name} {value:?} is not one that this broker serves: it answers to this machine only"
            );
            Failure::from(Problem::new(ErrorCode::ForeignHost, detail).with_field(name)).into_response()
        }
    }
}

fn foreign(headers: &HeaderMap, allowed: &[String]) -> Option<(&'static str, String)> {
    let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let host = text(header::HOST);
    if let Some(host) = host.as_ref().filter(|host| !is_allowed(host, allowed)) {
        return Some(("Host", host.clone()));
    }
    let origin = text(header::ORIGIN)?;
    let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://")).unwrap_or("");
    let same = host.is_some_and(|host| name_of(&host).eq_ignore_ascii_case(name_of(authority)));
    let is_home = is_allowed(authority, allowed) && (same || !is_elsewhere(authority));
    (!is_home).then_some(("Origin", origin))
}

/// The name or address without its port.
fn name_of(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// Names of this machine and those that were allowed, with any port. As a `Host`, an address is as good as a name: a page
/// cannot rebind it.
fn is_allowed(authority: &str, allowed: &[String]) -> bool {
    let host = name_of(authority);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok()
        || allowed.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// As an `Origin`, an address other than of this machine is a page of somebody else, unless it is the one that was asked.
fn is_elsewhere(authority: &str) -> bool {
    name_of(authority).parse::<IpAddr>().is_ok_and(|ip| !ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_and_allowed_ones_pass() {
        for good in ["localhost", "LOCALHOST:7420", "127.0.0.1:7420", "[::1]:7420", "[::1]", "10.0.0.7:80"] {
            assert!(is_allowed(good, &[]), "{good}");
        }
        for bad in
            ["", "evil.example", "evil.example:7420", "localhost.evil.example", "127.0.0.1.evil.example"]
        {
            assert!(!is_allowed(bad, &[]), "{bad}");
        }
        let allowed = ["bus.internal".to_owned()];
        assert!(is_allowed("Bus.Internal:7420", &allowed));
        assert!(!is_allowed("bus.internal.evil.example", &allowed));
    }

    #[test]
    fn a_page_of_another_address_is_foreign_and_one_of_the_same_is_not() {
        let ask = |host: &str, origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            foreign(&headers, &["bus.internal".to_owned()]).map(|(name, _)| name)
        };
        assert_eq!(ask("127.0.0.1:7420", "http://127.0.0.1:3000"), None);
        assert_eq!(ask("127.0.0.1:7420", "http://[::1]:3000"), None);
        assert_eq!(ask("10.0.0.7:7420", "http://10.0.0.7:7420"), None);
        assert_eq!(ask("10.0.0.7:7420", "https://bus.internal"), None);
        assert_eq!(ask("127.0.0.1:7420", "http://6.6.6.6"), Some("Origin"));
        assert_eq!(ask("10.0.0.7:7420", "http://10.0.0.8:7420"), Some("Origin"));
        assert_eq!(ask("127.0.0.1:7420", "null"), Some("Origin"));
        assert_eq!(ask("evil.example", "http://evil.example"), Some("Host"));
    }
}
