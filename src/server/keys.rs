//! `/v1/keys`: which keys of encrypted topics this broker has, and which are still needed.

use axum::Json;
use axum::extract::State;
use laneway_client::keys::{KeyDescription, KeyList, KeyRole};

use super::Context;
use super::openapi::Common;
use super::problem::Failure;
use crate::broker::keys::{KeyShown, KeysShown, Role};

/// Keys of encrypted topics, by name and fingerprint.
#[utoipa::path(
    get,
    path = "/v1/keys",
    operation_id = "list_keys",
    tag = "brokers",
    responses((status = 200, body = KeyList, description = "Those of this broker first"), Common)
)]
pub(super) async fn list(State(context): State<Context>) -> Result<Json<KeyList>, Failure> {
    let KeysShown { encrypted_topics, keys } = context.broker.list_keys().await?;
    Ok(Json(KeyList { encrypted_topics, keys: keys.into_iter().map(description).collect() }))
}

fn description(key: KeyShown) -> KeyDescription {
    let used = key.used.as_ref();
    KeyDescription {
        name: key.name,
        fingerprint: key.fingerprint.to_string(),
        role: match key.role {
            Role::Seals => KeyRole::Seals,
            Role::Opens => KeyRole::Opens,
            Role::Missing => KeyRole::Missing,
        },
        data_keys: used.map_or(0, |used| used.data_keys),
        open_data_keys: used.map_or(0, |used| used.open_keys),
        topics: used.map_or(0, |used| used.topics),
        first_made_at: used.map(|used| used.first_made_at.to_string()),
        last_made_at: used.map(|used| used.last_made_at.to_string()),
    }
}
