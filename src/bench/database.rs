//! The database under test: the one that was given, or a private one in a temporary directory that goes with it.

use tempfile::TempDir;

use super::BenchError;
use crate::postgres::{PrivatePostgres, Settings};

/// A database for the time of a measurement.
#[derive(Debug)]
pub enum Database {
    Given { url: String },
    Private { server: PrivatePostgres, directory: TempDir },
}

impl Database {
    /// Takes the given one, or starts one of our own, set up as `serve` would.
    pub async fn open(url: Option<String>) -> Result<Self, BenchError> {
        if let Some(url) = url {
            return Ok(Self::Given { url });
        }
        let directory = tempfile::Builder::new().prefix("laneway-bench-").tempdir()?;
        open_to_all(&directory)?;
        let server = PrivatePostgres::start(Settings::new(directory.path().join("data"))).await?;
        Ok(Self::Private { server, directory })
    }

    pub fn url(&self) -> String {
        match self {
            Self::Given { url } => url.clone(),
            Self::Private { server, .. } => server.url(),
        }
    }

    /// Ends the private one and removes its files.
    pub async fn close(self) -> Result<(), BenchError> {
        match self {
            Self::Given { .. } => {}
            Self::Private { server, directory } => {
                server.stop().await?;
                directory.close()?;
            }
        }
        Ok(())
    }
}

/// Root's PostgreSQL runs as another user, who has to get through.
fn open_to_all(directory: &TempDir) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))
}
