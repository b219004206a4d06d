//! A pipeline of four steps against a running broker: `cargo run --example order_pipeline -- --url ws://127.0.0.1:7420/v1/ws`
//!
//! intake → validate → charge → ship, a topic and a group per step. One order has two items, and so leads to two charges. One
//! charge fails once and is retried. One order can never be charged: it becomes a dead letter after two attempts, and holds nobody
//! up. Each message and what follows from it are one step: nothing is charged twice, whatever is killed meanwhile.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use laneway_client::admin::{AdminError, DEFAULT_URL};
use laneway_client::dead_letter::{DeadLetter, DeadLetterQuery};
use laneway_client::topic::CreateTopic;
use laneway_client::wire::WantedSettings;
use laneway_client::{Admin, Client, Delivery, ErrorCode, NewMessage, Options, Outputs, Stop};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use uuid::Uuid;

const STEPS: [&str; 4] = ["intake", "validate", "charge", "ship"];
/// Parcels of all orders below: one of ada, two of bob.
const PARCELS: usize = 3;
/// How long everything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a few orders through a pipeline of four steps.
#[derive(Parser)]
struct Args {
    /// Where a broker listens.
    #[arg(long, default_value = DEFAULT_URL)]
    url: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    customer: String,
    items: Vec<String>,
}

type Handling = fn(&Delivery, Order) -> Result<Outputs, String>;

/// The topic that a step reads.
fn topic(step: &str) -> String {
    format!("shop.{step}")
}

/// A message of one order; those of one customer stay in order.
fn message(order: &Order) -> NewMessage {
    NewMessage {
        payload: serde_json::to_vec(order).expect("an order is always JSON").into(),
        key: Some(order.customer.clone().into()),
        content_type: Some("application/json".to_owned()),
        ..NewMessage::default()
    }
}

fn intake(_: &Delivery, order: Order) -> Result<Outputs, String> {
    Ok(Outputs::to(topic("validate"), message(&order)))
}

/// A charge per item.
fn validate(_: &Delivery, order: Order) -> Result<Outputs, String> {
    let charge = |item: &String| Order { items: vec![item.clone()], ..order.clone() };
    Ok(order.items.iter().map(|item| (topic("charge"), message(&charge(item)))).collect())
}

fn charge(delivery: &Delivery, order: Order) -> Result<Outputs, String> {
    match (&order.customer[..], delivery.attempts) {
        ("ada", 0) => Err("the bank does not answer".to_owned()),
        ("eve", _) => Err("the card is stolen".to_owned()),
        _ => Ok(Outputs::to(topic("ship"), message(&order))),
    }
}

/// The end of the pipeline.
fn ship(_: &Delivery, _: Order) -> Result<Outputs, String> {
    Ok(Outputs::none())
}

/// What a step has made of a message.
struct News {
    step: &'static str,
    trace_id: Uuid,
    result: Result<usize, String>,
    order: Order,
}

/// Runs one step until it is stopped.
async fn run(
    client: Client,
    step: &'static str,
    handling: Handling,
    news: mpsc::Sender<News>,
    stop: Stop,
) -> Result<(), laneway_client::Error> {
    let settings =
        WantedSettings { max_attempts: Some(2), backoff_base_ms: Some(200), ..WantedSettings::default() };
    let mut messages = client.subscribe(topic(step), step).settings(settings).await?;
    let handler = async |delivery: Arc<Delivery>| {
        let order: Order = serde_json::from_slice(&delivery.payload).map_err(|error| error.to_string())?;
        let outputs = handling(&delivery, order.clone());
        let result = outputs.as_ref().map(Outputs::len).map_err(String::clone);
        // Whoever listens may be gone when the last message is handled.
        news.send(News { step, trace_id: delivery.trace_id, result, order }).await.ok();
        outputs
    };
    messages.run_pipeline(4, &stop, handler).await.map(drop)
}

async fn make_topics(admin: &Admin) -> Result<(), AdminError> {
    for step in STEPS {
        match admin.create_topic(&CreateTopic::new(topic(step), 4)).await {
            Ok(_) => println!("made topic {}", topic(step)),
            Err(AdminError::Refused(problem)) if problem.code == ErrorCode::TopicExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The dead letter of one of our orders, if there is one yet.
async fn find_dead(admin: &Admin, ours: &BTreeSet<Uuid>) -> Result<Option<DeadLetter>, AdminError> {
    let is_ours = |letter: &DeadLetter| Uuid::parse_str(&letter.trace_id).is_ok_and(|id| ours.contains(&id));
    let mut query = DeadLetterQuery { group: Some("charge".to_owned()), ..DeadLetterQuery::default() };
    loop {
        let page = admin.list_dead_letters(&query).await?;
        let found = page.dead_letters.into_iter().find(is_ours);
        if found.is_some() || page.next.is_none() {
            return Ok(found);
        }
        query.after = page.next;
    }
}

/// Prints what happens to our orders until all parcels are shipped and one order is dead.
async fn watch(
    admin: &Admin,
    ours: &BTreeSet<Uuid>,
    news: &mut mpsc::Receiver<News>,
) -> Result<(), AdminError> {
    let mut parcels = 0;
    let mut look = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            Some(News { step, trace_id, result, order }) = news.recv() => {
                if !ours.contains(&trace_id) {
                    continue; // left over from a run before
                }
                let said = match &result {
                    Ok(outputs) => format!("leads to {outputs}"),
                    Err(reason) => format!("fails: {reason}"),
                };
                println!("  {step:<8} {:<4} {:<12} {said}", order.customer, order.items.join(", "));
                parcels += usize::from(step == "ship");
            }
            _ = look.tick() => {
                if parcels >= PARCELS && let Some(letter) = find_dead(admin, ours).await? {
                    println!("  dead after {} attempts: {}", letter.attempts, letter.reason);
                    return Ok(());
                }
            }
        }
    }
}

/// The HTTP API is on the same port as the socket.
fn http_url(url: &str, path: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("ws", url));
    let host = rest.split('/').next().unwrap_or(rest);
    let is_secure = matches!(scheme, "wss" | "https");
    format!("{}://{host}{path}", if is_secure { "https" } else { "http" })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Args { url } = Args::parse();
    let admin = Admin::new(&url)?;
    make_topics(&admin).await?;
    let client = Client::connect(&url, Options::default()).await?;
    let (told, mut news) = mpsc::channel(64);
    let handlings: [Handling; 4] = [intake, validate, charge, ship];
    let mut running = Vec::new();
    for (step, handling) in STEPS.into_iter().zip(handlings) {
        let stop = Stop::new();
        let run = tokio::spawn(run(client.clone(), step, handling, told.clone(), stop.clone()));
        running.push((stop, run));
    }
    let orders = [("ada", vec!["tea"]), ("bob", vec!["cup", "pot"]), ("eve", vec!["safe"])];
    let mut traces = Vec::new();
    for (customer, items) in orders {
        let items = items.into_iter().map(str::to_owned).collect();
        let order = Order { customer: customer.to_owned(), items };
        let trace_id = Uuid::now_v7();
        client.publish(&topic("intake"), NewMessage { trace_id: Some(trace_id), ..message(&order) }).await?;
        traces.push(trace_id);
    }
    let ours: BTreeSet<Uuid> = traces.iter().copied().collect();
    tokio::time::timeout(PATIENCE, watch(&admin, &ours, &mut news)).await??;
    drop(news);
    for (stop, run) in running {
        stop.stop();
        run.await??;
    }
    client.close().await;
    let of_bob = traces[1];
    println!("trace {of_bob}:");
    println!(
        "{}",
        reqwest::get(http_url(&url, &format!("/v1/traces/{of_bob}/messages"))).await?.text().await?
    );
    Ok(())
}
