//! A pipeline of four steps, and its trace: `cargo run --example order_pipeline`
//!
//! intake → validate → charge → ship, a topic and a group per step. An order of three items leads to three charges: one fails once and is
//! retried, one succeeds, one can never be charged and becomes a dead letter after two attempts, and holds nobody up. Each message and
//! what follows from it are one step: nothing is charged twice, whatever is killed meanwhile. At the end the trace of that order is drawn.
//!
//! Without `--url` it brings its own broker, on a private PostgreSQL that goes afterwards.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use laneway::bench::database::Database;
use laneway::broker::{Broker, BrokerSettings, Running};
use laneway::session::Sessions;
use laneway::store::{DatabaseSettings, Store};
use laneway::{drawing, server};
use laneway_client::admin::AdminError;
use laneway_client::dead_letter::{DeadLetter, DeadLetterQuery};
use laneway_client::topic::CreateTopic;
use laneway_client::wire::WantedSettings;
use laneway_client::{Admin, Client, Delivery, ErrorCode, NewMessage, Options, Outputs, Stop};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const STEPS: [&str; 4] = ["intake", "validate", "charge", "ship"];
/// Parcels of all orders below: two of ada, one of bob.
const PARCELS: usize = 3;
/// Columns of the drawing.
const WIDTH: usize = 110;
/// How long everything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a few orders through a pipeline of four steps.
#[derive(Parser)]
struct Args {
    /// Where a broker listens; absent: one of its own.
    #[arg(long)]
    url: Option<String>,
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
    match (&order.items[0][..], delivery.attempts) {
        ("tea", 0) => Err("the bank does not answer".to_owned()),
        ("safe", _) => Err("the limit of the card is exceeded".to_owned()),
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

/// A broker with a PostgreSQL of its own.
struct Own {
    database: Database,
    running: Running,
    serving: JoinHandle<()>,
    stop: CancellationToken,
}

impl Own {
    async fn start() -> Result<(Self, String), Box<dyn Error>> {
        let database = Database::open(None).await?;
        let store = Store::new(DatabaseSettings::new(database.url()))?;
        store.wait_until_reachable().await?;
        store.migrate().await?;
        let (broker, running) = Broker::start(store, BrokerSettings::default());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("ws://{}/v1/ws", listener.local_addr()?);
        let context = server::Context {
            sessions: Sessions::new(broker.clone()),
            broker,
            metrics: Arc::default(),
            allowed_hosts: Arc::default(),
            postgres: None,
        };
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server::serve(listener, context, stop.clone()));
        Ok((Self { database, running, serving, stop }, url))
    }

    async fn stop(self) -> Result<(), Box<dyn Error>> {
        self.stop.cancel();
        self.serving.await?;
        self.running.stop(PATIENCE).await;
        Ok(self.database.close().await?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (own, url) = match Args::parse().url {
        Some(url) => (None, url),
        None => Own::start().await.map(|(own, url)| (Some(own), url))?,
    };
    let result = shop(&url).await;
    if let Some(own) = own {
        own.stop().await?;
    }
    result
}

/// Sends orders through the pipeline, and draws the trace of the first.
async fn shop(url: &str) -> Result<(), Box<dyn Error>> {
    let admin = Admin::new(url)?;
    make_topics(&admin).await?;
    let client = Client::connect(url, Options::default()).await?;
    let (told, mut news) = mpsc::channel(64);
    let handlings: [Handling; 4] = [intake, validate, charge, ship];
    let mut running = Vec::new();
    for (step, handling) in STEPS.into_iter().zip(handlings) {
        let stop = Stop::new();
        let run = tokio::spawn(run(client.clone(), step, handling, told.clone(), stop.clone()));
        running.push((stop, run));
    }
    let orders = [("ada", vec!["tea", "pot", "safe"]), ("bob", vec!["cup"])];
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
    println!();
    for line in drawing::lines(&admin.show_trace(traces[0]).await?, WIDTH, std::io::stdout().is_terminal()) {
        println!("{line}");
    }
    Ok(())
}
