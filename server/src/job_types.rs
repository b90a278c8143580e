//! The bundled job types.

pub mod export_markdown;

use jobdeck::WorkerBuilder;

use crate::storage::FileStore;

/// Lets a worker run every bundled type.
pub fn register(builder: WorkerBuilder, storage: FileStore) -> WorkerBuilder {
    builder.register(export_markdown::handler(storage))
}
