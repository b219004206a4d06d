//! `laneway keys`: keys of encrypted topics. Made here, listed by a broker; the list never holds a key.

use clap::{Args, Subcommand};
use laneway_client::keys::{KeyDescription, KeyList};

use super::access::{Access, print_table};
use super::{Failure, wrong_usage};
use crate::cli::output::println;
use crate::encryption::ring;
use crate::limits::RING_KEY_NAME_CHARS_MAX;

#[derive(Debug, Args)]
pub(super) struct Keys {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key and print it as an entry of a key ring; needs no broker
    #[command(after_help = "Examples:\n  (umask 077; laneway keys generate 2026-11 > /etc/laneway/keys)\n\n\
        To rotate, add the new entry below the others and restart the brokers one by one; then move it to the top and restart again:\n  \
        laneway keys generate 2027-05 >> /etc/laneway/keys")]
    Generate {
        /// 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'
        name: String,
    },
    /// List the keys of a broker, and those that stored messages still need
    #[command(after_help = "Examples:\n  laneway keys list\n  \
        laneway keys list --json | jq '.keys[] | select(.data_keys == 0).name'\n\n\
        A key with no data keys may leave the rings. One that is missing is needed, and this broker lacks it.")]
    List,
}

impl Keys {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Generate { name } => {
                let rule = format!(
                    "a name has 1 to {RING_KEY_NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, '.', '_' and '-'"
                );
                let name = ring::check_name(&name).ok_or_else(|| wrong_usage("keys", rule))?;
                println!("{}", &*ring::generate(&name));
                Ok(())
            }
            Action::List => {
                let keys = self.access.admin()?.list_keys().await?;
                self.access.print(&keys, print)
            }
        }
    }
}

fn print(list: &KeyList) {
    match list.encrypted_topics {
        0 => println!("no topic is encrypted"),
        1 => println!("1 topic is encrypted"),
        topics => println!("{topics} topics are encrypted"),
    }
    if list.keys.is_empty() {
        return println!("this broker has no key ring: see --key-ring-file of `laneway serve`");
    }
    let row = |key: &KeyDescription| {
        [
            key.name.clone(),
            key.fingerprint.clone(),
            key.role.as_str().to_owned(),
            key.data_keys.to_string(),
            key.open_data_keys.to_string(),
            key.topics.to_string(),
            key.last_made_at.clone().unwrap_or_else(|| "never".into()),
        ]
    };
    print_table(
        ["KEY", "FINGERPRINT", "ROLE", "DATA KEYS", "OPEN", "TOPICS", "LAST USED"],
        list.keys.iter().map(row),
    );
}
