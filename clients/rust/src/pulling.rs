//! Pulling over HTTP: for programs that keep no connection. For all others [`Client`](crate::Client) is faster and needs no deadline.

use crate::admin::{Admin, AdminError};
use crate::pull_api::{
    Pop, PopAck, PopAcked, PopExtend, PopExtended, PopNack, PopNacked, PopRequest, PopResponse,
};

impl Admin {
    /// Messages of one lane, for a while; `None`: nothing has come in time. Makes the group if there is none.
    ///
    /// ```no_run
    /// # async fn example(admin: laneway_client::Admin) -> Result<(), laneway_client::admin::AdminError> {
    /// use laneway_client::pull_api::{PopAck, PopRequest};
    ///
    /// let wish = PopRequest { wait_ms: Some(10_000), ..PopRequest::default() };
    /// while let Some(pop) = admin.pop("orders", "billing", &wish).await? {
    ///     for message in &pop.messages {
    ///         println!("{}", message.payload);
    ///     }
    ///     admin.ack("orders", "billing", &PopAck::all(&pop)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pop(&self, topic: &str, group: &str, wish: &PopRequest) -> Result<Option<Pop>, AdminError> {
        let answer: PopResponse = self.post(topic, group, "pop", wish).await?;
        Ok(answer.pop)
    }

    /// Acknowledges what is done of a pop, at any broker. Safe to send again.
    pub async fn ack(&self, topic: &str, group: &str, ack: &PopAck) -> Result<PopAcked, AdminError> {
        self.post(topic, group, "ack", ack).await
    }

    /// Refuses a message of a pop: it is tried again, or given up.
    pub async fn nack(&self, topic: &str, group: &str, nack: &PopNack) -> Result<PopNacked, AdminError> {
        self.post(topic, group, "nack", nack).await
    }

    /// Gives a pop more time, counted from now.
    pub async fn extend(
        &self,
        topic: &str,
        group: &str,
        extend: &PopExtend,
    ) -> Result<PopExtended, AdminError> {
        self.post(topic, group, "extend", extend).await
    }
}

impl PopAck {
    /// Everything that a pop has brought.
    pub fn all(pop: &Pop) -> Self {
        Self { partition: pop.partition, epoch: pop.epoch, next: Some(pop.end_offset), ..Self::default() }
    }
}
