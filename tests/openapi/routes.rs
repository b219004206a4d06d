//! The document and the routes are the same, both ways, and the bounds that it states are those of the code.

use laneway::limits;
use laneway_client::{ErrorCode, Problem};
use serde_json::Value;

use crate::harness::{Server, TestDatabase};

/// One operation of the document.
#[derive(Debug)]
pub struct Operation {
    pub method: String,
    pub path: String,
    pub id: String,
    /// No parameters and no body.
    pub takes_nothing: bool,
}

pub async fn document(server: &Server) -> Value {
    reqwest::get(server.url("/openapi.json")).await.unwrap().json().await.unwrap()
}

pub fn operations(document: &Value) -> Vec<Operation> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| -> Vec<Operation> {
        let operations = item.as_object().unwrap().iter();
        let operation = |(method, operation): (&String, &Value)| Operation {
            method: method.clone(),
            path: path.clone(),
            id: operation["operationId"].as_str().unwrap().to_owned(),
            takes_nothing: operation.get("parameters").is_none() && operation.get("requestBody").is_none(),
        };
        operations.map(operation).collect()
    };
    paths.iter().flat_map(of_path).collect()
}

async fn server() -> (TestDatabase, Server) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    (database, server)
}

async fn ask(server: &Server, method: &str, path: &str) -> (u16, String, String) {
    let method = reqwest::Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let response = reqwest::Client::new().request(method, server.url(path)).send().await.unwrap();
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, allow) = (response.status().as_u16(), header("allow").unwrap_or_default());
    (status, allow, response.text().await.unwrap())
}

fn code(body: &str) -> Option<ErrorCode> {
    serde_json::from_str::<Problem>(body).ok().map(|problem| problem.code)
}

/// The values of all `$ref`s below a value.
fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let here = fields.get("$ref").and_then(Value::as_str);
            here.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[tokio::test]
async fn every_reference_of_the_document_leads_somewhere() {
    let (_database, server) = server().await;
    let document = document(&server).await;
    let references = references(&document);
    assert!(references.len() > 100, "{}", references.len());
    let missing = references.iter().filter(|path| document.pointer(path.trim_start_matches('#')).is_none());
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[tokio::test]
async fn every_operation_of_the_document_is_served_and_no_other_method_is() {
    let (_database, server) = server().await;
    let document = document(&server).await;
    let operations = operations(&document);
    for path in document["paths"].as_object().unwrap().keys() {
        let concrete = path.replace(['{', '}'], "");
        let described: Vec<&str> = operations
            .iter()
            .filter(|operation| operation.path == *path)
            .map(|o| o.method.as_str())
            .collect();
        for method in ["get", "put", "post", "patch", "delete"] {
            let (status, allow, body) = ask(&server, method, &concrete).await;
            match described.contains(&method) {
                true => {
                    let missing = [Some(ErrorCode::UnknownRoute), Some(ErrorCode::MethodNotAllowed)];
                    assert!(!missing.contains(&code(&body)), "{method} {path}: {body}");
                }
                false => {
                    assert_eq!(code(&body), Some(ErrorCode::MethodNotAllowed), "{method} {path}: {body}");
                    assert_eq!(status, 405);
                    let mut allowed: Vec<String> =
                        allow.split(',').map(|method| method.trim().to_lowercase()).collect();
                    allowed.retain(|method| method != "head"); // comes with every GET
                    allowed.sort();
                    let mut described = described.clone();
                    described.sort_unstable();
                    assert_eq!(allowed, described, "{path} allows what it describes");
                }
            }
        }
    }
}

/// The router is made of `routes!` alone, which takes no handler without a description; the socket is the one exception.
#[test]
fn no_route_is_served_without_a_description() {
    let router = include_str!("../../src/server/mod.rs");
    let plain: Vec<&str> = router.lines().filter(|line| line.contains(".route(")).collect();
    assert_eq!(plain.len(), 1, "{plain:?}");
    assert!(plain[0].contains("WEBSOCKET_PATH"), "{plain:?}");
    assert!(!router.contains(".nest(") && !router.contains(".merge(") && !router.contains("_service("));
    assert!(router.matches(".routes(routes!(").count() > 10);
}

#[tokio::test]
async fn every_operation_has_a_name_of_its_own_a_summary_and_the_refusals_that_all_have() {
    let (_database, server) = server().await;
    let document = document(&server).await;
    let operations = operations(&document);
    let mut ids: Vec<&str> = operations.iter().map(|operation| operation.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), operations.len(), "operation ids are unique");
    for operation in &operations {
        let described = &document["paths"][&operation.path][&operation.method];
        assert!(described["summary"].as_str().is_some_and(|text| !text.is_empty()), "{operation:?}");
        for status in ["403", "413", "500", "503"] {
            let content = &described["responses"][status]["content"];
            assert!(content["application/problem+json"].is_object(), "{operation:?} {status}");
        }
    }
    let codes = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
    assert_eq!(codes.len(), ErrorCode::ALL.len());
}

/// The types stand in the client's crate, the bounds in the broker's: the one must say what the other enforces.
#[tokio::test]
async fn the_bounds_of_the_document_are_those_of_the_code() {
    let (_database, server) = server().await;
    let document = document(&server).await;
    let schema =
        |name: &str, field: &str| document["components"]["schemas"][name]["properties"][field].clone();
    let ms = |duration: std::time::Duration| duration.as_millis() as u64;
    let max = |schema: Value| schema["maximum"].as_u64().unwrap();
    let min = |schema: Value| schema["minimum"].as_u64().unwrap();
    for topic in ["CreateTopic", "AlterTopic"] {
        assert_eq!(max(schema(topic, "payload_bytes_max")), u64::from(limits::PAYLOAD_BYTES_MAX_MAX));
        assert_eq!(max(schema(topic, "dedup_window_ms")), ms(limits::DEDUP_WINDOW_MAX));
    }
    assert_eq!(min(schema("CreateTopic", "segment_messages")), u64::from(limits::SEGMENT_MESSAGES_MIN));
    assert_eq!(max(schema("CreateTopic", "segment_messages")), u64::from(limits::SEGMENT_MESSAGES_MAX));
    let part = |name: &str| document["components"]["schemas"][name].clone();
    assert_eq!(max(part("AgeMs")), ms(limits::RETENTION_AGE_MAX));
    assert_eq!(max(part("DelayMs")), ms(limits::SCHEDULE_AHEAD_MAX));
    assert_eq!(max(part("StoredBytes")), limits::RETENTION_BYTES_MAX);
    assert_eq!(max(part("Sequence")), limits::SEQUENCE_MAX as u64);
    assert_eq!(min(schema("WantedSettings", "ack_deadline_ms")), ms(limits::ACK_DEADLINE_MIN));
    assert_eq!(max(schema("WantedSettings", "ack_deadline_ms")), ms(limits::ACK_DEADLINE_MAX));
    assert_eq!(max(schema("WantedSettings", "max_attempts")), u64::from(limits::ATTEMPTS_MAX));
    assert_eq!(max(schema("WantedSettings", "backoff_base_ms")), ms(limits::BACKOFF_MAX));
    assert_eq!(max(schema("WantedSettings", "backoff_cap_ms")), ms(limits::BACKOFF_MAX));
    assert_eq!(
        schema("WantedSettings", "backoff_factor")["maximum"].as_f64(),
        Some(limits::BACKOFF_FACTOR_MAX)
    );
    for field in ["delay_ms", "window_ms", "window_max_ms", "max_age_ms"] {
        assert_eq!(max(schema("WantedSettings", field)), ms(limits::AGE_MAX));
    }
    for field in ["transaction_id", "content_type"] {
        let schema = &document["components"]["schemas"]["PublishMessage"]["allOf"][0]["properties"][field];
        assert_eq!(schema["maxLength"].as_u64(), Some(limits::TRANSACTION_ID_CHARS_MAX as u64));
    }
}
