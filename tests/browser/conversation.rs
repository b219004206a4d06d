//! A page publishes and subscribes with plain JavaScript; a page of another site gets nowhere.

use serde_json::{Value, json};

use crate::chromium::FOREIGN_HOST;
use crate::harness::socket::make_topic;
use crate::harness::{Server, TestDatabase};
use crate::site::Site;

const PAGE: &str = include_str!("page.html");

/// A broker with the topic that the page uses, and the page.
async fn broker_and_site(database: &TestDatabase, args: &[&str]) -> (Server, Site) {
    let server = Server::start(&[&["--database-url", database.url.as_str()], args].concat()).await;
    make_topic(&server.address, "orders", 1).await;
    (server, Site::serve(PAGE).await)
}

#[tokio::test]
async fn a_browser_publishes_and_subscribes_with_its_own_websocket() {
    let database = TestDatabase::new().await;
    let (mut server, mut site) = broker_and_site(&database, &[]).await;

    let seen = site.visit("127.0.0.1", &server.address).await;

    assert_eq!(seen["failed"], Value::Null, "{seen}");
    assert_eq!(seen["subprotocol"], "laneway.v1.json");
    assert_eq!(seen["welcome"]["id"], 1);
    let units = json!([{ "partition": 0, "positions": [0, 1, 2], "first_offset": 0 }]);
    assert_eq!(seen["published"], json!({ "type": "published", "id": 2, "units": units }));
    assert_eq!(seen["subscribed"]["group"], "billing");
    assert_eq!(seen["granted"]["committed_offset"], 0);
    assert_messages(seen["messages"].as_array().unwrap());
    assert_eq!(seen["acked"]["id"], 4);
    assert_eq!(seen["acked"]["committed_offset"], 3);
    assert_eq!(seen["closed"], json!({ "code": 1000, "clean": true }));
    assert_eq!(database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await, 3);
    assert_eq!(server.stop().await, 0);
}

/// As the page has published them, each in the encoding that it came in.
fn assert_messages(messages: &[Value]) {
    let offsets: Vec<_> = messages.iter().map(|message| message["offset"].as_i64().unwrap()).collect();
    assert_eq!(offsets, [0, 1, 2]);
    let payloads: Vec<_> =
        messages.iter().map(|message| (message["payload"].clone(), message["encoding"].clone())).collect();
    assert_eq!(
        payloads,
        [
            (json!("Grüße, 世界 🛤"), json!("text")),
            (json!({ "order": 17, "lines": [1.5, null, "a\"b"] }), json!("json")),
            (json!("AH+A/w=="), json!("base64")),
        ]
    );
    assert_eq!(messages[0]["key"], "customer-7");
}

/// The second visit shows that nothing but the missing permission has ended the first.
#[tokio::test]
async fn a_page_of_another_site_is_refused_until_its_host_is_allowed() {
    let database = TestDatabase::new().await;
    let (mut server, mut site) = broker_and_site(&database, &[]).await;

    let refused = site.visit(FOREIGN_HOST, &server.address).await;

    assert_eq!(refused, json!({ "failed": "not connected" }));
    assert_eq!(database.number("SELECT count(*) FROM laneway.message").await, 0);
    assert_eq!(server.stop().await, 0);

    let arguments = ["--database-url", database.url.as_str(), "--allow-host", FOREIGN_HOST];
    let mut server = Server::start(&arguments).await;
    let served = site.visit(FOREIGN_HOST, &server.address).await;
    assert_eq!(served["acked"]["committed_offset"], 3, "{served}");
    assert_eq!(server.stop().await, 0);
}
