//! How the pools of connections are used, read at each scrape from the pools themselves.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::manager::Connector;

/// The pools of a store, by name.
#[derive(Debug)]
pub(super) struct PoolUse {
    pools: [(&'static str, bb8::Pool<Connector>); 2],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    pool: &'static str,
    state: &'static str,
}

impl PoolUse {
    pub fn new(pools: [(&'static str, bb8::Pool<Connector>); 2]) -> Self {
        Self { pools }
    }

    fn encode_connections(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Connections of a pool, in use and idle";
        let mut family = encoder.encode_descriptor("pool_connections", help, None, MetricType::Gauge)?;
        for (pool, connections) in &self.pools {
            let bb8::State { connections, idle_connections: idle, .. } = connections.state();
            for (state, count) in [("in_use", connections.saturating_sub(idle)), ("idle", idle)] {
                let labels = StateLabel { pool, state };
                ConstGauge::new(i64::from(count)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_bounds(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Connections that a pool may have";
        let mut family = encoder.encode_descriptor("pool_connections_max", help, None, MetricType::Gauge)?;
        for (pool, connections) in &self.pools {
            let max = i64::from(connections.config().max_size);
            ConstGauge::new(max).encode(family.encode_family(&PoolLabel { pool })?)?;
        }
        Ok(())
    }

    fn encode_count(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        count: impl Fn(&bb8::Statistics) -> f64,
    ) -> std::fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (pool, connections) in &self.pools {
            let counter = ConstCounter::new(count(&connections.state().statistics));
            counter.encode(family.encode_family(&PoolLabel { pool })?)?;
        }
        Ok(())
    }
}

impl Collector for PoolUse {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        self.encode_connections(&mut encoder)?;
        self.encode_bounds(&mut encoder)?;
        let waits = ("pool_waits", "Times that a connection of a pool was waited for, and came");
        self.encode_count(&mut encoder, waits, |statistics| statistics.get_waited as f64)?;
        let timeouts = ("pool_timeouts", "Times that no connection of a pool came in time");
        self.encode_count(&mut encoder, timeouts, |statistics| statistics.get_timed_out as f64)?;
        let seconds = ("pool_wait_seconds", "How long connections of a pool were waited for, in all");
        self.encode_count(&mut encoder, seconds, |statistics| statistics.get_wait_time.as_secs_f64())
    }
}
