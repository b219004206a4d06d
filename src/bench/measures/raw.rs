//! What needs no broker process: the limit alone, and the appender in this process.

use super::{Course, LIMIT};
use crate::bench::report::{Bar, Environment, Findings, Report};
use crate::bench::stage::WARM_UP;
use crate::bench::{BenchError, Database, append, limit};
use crate::broker::{Broker, BrokerSettings};
use crate::limits::SHUTDOWN_TIMEOUT;
use crate::store::{DatabaseSettings, Store};

/// The raw insert alone.
pub async fn limit_only(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let url = database.url();
    let environment = Environment::of(&url, course.schedule).await?;
    limit::measure(&url, WARM_UP).await?;
    let mut findings = Findings::new("limit", LIMIT);
    course.steps(1);
    for _ in 0..course.schedule.rounds {
        findings.limits.push(course.limit(&url).await?);
    }
    Ok(findings.report(environment))
}

/// The raw insert and the appender in turn.
pub async fn append(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let url = database.url();
    let environment = Environment::of(&url, course.schedule).await?;
    let store = Store::new(DatabaseSettings::new(&url))?;
    store.wait_until_reachable().await?;
    store.migrate().await?;
    let (broker, running) = Broker::start(store, BrokerSettings::default());
    limit::measure(&url, WARM_UP).await?;
    append::measure(&broker, WARM_UP).await?;
    let mut findings = Findings::new("append", LIMIT);
    course.steps(2);
    for _ in 0..course.schedule.rounds {
        findings.limits.push(course.limit(&url).await?);
        course.step("append");
        findings.rates.push(append::measure(&broker, course.window()).await?);
    }
    append::clear(&broker).await?; // the database may stay
    drop(broker);
    running.stop(SHUTDOWN_TIMEOUT).await;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("append", ratio, "× limit", Bar::AtLeast(0.6));
    Ok(findings.report(environment))
}
