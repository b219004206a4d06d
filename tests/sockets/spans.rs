//! OpenTelemetry: what a collector gets. It speaks real OTLP: protobuf over HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use laneway_client::wire::{NewMessage, StepPublish, Subprotocol, Transact};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use uuid::Uuid;

use crate::harness::socket::{Socket, ack, make_topic, text};
use crate::harness::{Server, TestDatabase, wait};
use crate::metrics::becomes;

type Spans = Arc<Mutex<Vec<Span>>>;

/// Takes whatever is sent to it.
async fn collector() -> (String, Spans) {
    let spans = Spans::default();
    let take = async |State(spans): State<Spans>, body: Bytes| {
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        spans.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        let answer = ExportTraceServiceResponse::default().encode_to_vec();
        ([(CONTENT_TYPE, "application/x-protobuf")], answer)
    };
    let router = Router::new().route("/v1/traces", post(take)).with_state(spans.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (format!("http://{address}"), spans)
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_join_the_trace_of_the_producer() {
    let (endpoint, spans) = collector().await;
    let database = TestDatabase::new().await;
    let mut server =
        Server::start(&["--database-url", &database.url, "--lane-drain", "2s", "--otlp-endpoint", &endpoint])
            .await;
    for topic in ["orders", "charges"] {
        make_topic(&server.address, topic, 1).await;
    }
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = BTreeMap::from([("traceparent".to_owned(), parent.to_owned())]);
    let mut socket = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let order = |payload: &str| NewMessage { headers: headers.clone(), ..text(payload) };
    socket.publish("orders", vec![order("first"), order("second")]).await;
    socket.subscribe("billing", "orders").await;
    let batch = socket.batch().await;
    assert_eq!(batch.messages.len(), 2);
    let step = Transact {
        id: 0,
        step_id: Uuid::now_v7(),
        acks: vec![ack(&batch, None, &[0])],
        publishes: vec![StepPublish { topic: "charges".into(), messages: vec![text("charge")] }],
    };
    socket.transact(step).await.unwrap();
    socket.ack_below(&batch, 2).await.unwrap();
    socket.close().await;
    // Two publishes, two deliveries, two acks, a step and what it has published.
    wait::until("all spans", async || spans.lock().unwrap().len() >= 8).await;
    let spans = spans.lock().unwrap().clone();
    let trace = Uuid::parse_str("0af7651916cd43dd8448eb211c80319c").unwrap();
    assert!(spans.iter().all(|span| span.trace_id == trace.as_bytes()), "{spans:#?}");
    let named = |name: &str| -> Vec<&Span> { spans.iter().filter(|span| span.name == name).collect() };
    let (published, delivered) = (named("publish orders"), named("deliver orders"));
    let (acked, stepped, charged) =
        (named("ack orders"), named("transact charges"), named("publish charges"));
    assert_eq!((published.len(), delivered.len(), acked.len()), (2, 2, 2), "{spans:#?}");
    assert_eq!((stepped.len(), charged.len(), spans.len()), (1, 1, 8));
    assert!(published.iter().all(|span| span.parent_span_id == 0xb7ad_6b71_6920_3331_u64.to_be_bytes()));
    for (at, span) in delivered.iter().enumerate() {
        assert!(published.iter().any(|publish| publish.span_id == span.parent_span_id), "{span:#?}");
        assert_ne!(span.parent_span_id, delivered[1 - at].parent_span_id);
    }
    assert!(acked.iter().all(|span| delivered.iter().any(|deliver| deliver.span_id == span.parent_span_id)));
    // The step, and the message that it has published, hang below the publish of what it has acknowledged.
    let first = published.iter().find(|publish| publish.span_id == stepped[0].parent_span_id).unwrap();
    assert_eq!(charged[0].parent_span_id, first.span_id);
    assert!(spans.iter().all(|span| span.end_time_unix_nano >= span.start_time_unix_nano));
    let attributes: Vec<&str> = delivered[0].attributes.iter().map(|pair| pair.key.as_str()).collect();
    assert!(attributes.contains(&"messaging.consumer.group.name"), "{attributes:?}");
    assert_eq!(server.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_nothing_but_its_spans() {
    let database = TestDatabase::new().await;
    let mut server =
        Server::start(&["--database-url", &database.url, "--otlp-endpoint", "http://127.0.0.1:9"]).await;
    make_topic(&server.address, "orders", 1).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    socket.publish("orders", vec![text("m")]).await;
    server.logged("they are lost").await;
    becomes(&server, "spans_lost_total", 1.0).await;
    socket.publish("orders", vec![text("n")]).await;
    socket.close().await;
    assert_eq!(server.stop().await, 0);
}
