//! What request handlers share.

use std::path::Path;
use std::sync::Arc;

use axum::extract::FromRef;
use jobdeck::Store;
use jobdeck_app::ssr::{AppContext, LinkRequest};
use leptos::config::LeptosOptions;

use crate::auth::Auth;
use crate::config::HttpConfig;
use crate::links::{LinkRights, LinkSigner};
use crate::live::Hub;
use crate::shutdown::Shutdown;
use crate::storage::FileStore;

/// Handed to every request handler. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The database.
    pub store: Store,
    /// What pages and server functions see of the server.
    pub app: AppContext,
    /// Live changes of watched jobs.
    pub hub: Hub,
    /// Addresses and cookies.
    pub config: Arc<HttpConfig>,
    /// Set once the process stops: event streams end on it.
    pub shutdown: Shutdown,
    /// Where exported files are.
    pub(crate) storage: FileStore,
    /// Signs and checks links for people without an account.
    pub(crate) links: LinkSigner,
    pub(crate) auth: Arc<Auth>,
    pub(crate) leptos: LeptosOptions,
}

impl AppState {
    /// Puts the parts together: files in `data_dir`, signing keys from the database. Must be called inside a tokio
    /// runtime, where the readers of live changes and of signing keys run.
    ///
    /// # Errors
    /// If the folder cannot be used or the database does not answer.
    pub async fn load(store: Store, config: HttpConfig, data_dir: &Path, shutdown: Shutdown) -> anyhow::Result<Self> {
        let storage = FileStore::in_folder(&data_dir.join("files"))?;
        let links = LinkSigner::load(&store).await?;
        links.keep_fresh(store.clone(), shutdown.clone());
        let app = AppContext {
            store: store.clone(),
            assets: crate::http::assets::from_manifest(),
            environment: config.environment.as_str().into(),
            export_link: {
                let links = links.clone();
                Arc::new(move |LinkRequest { job_id, issued_by, can_cancel, can_again }| {
                    links.path(job_id, LinkRights { cancel: can_cancel, again: can_again }, issued_by)
                })
            },
        };
        Ok(Self {
            app,
            hub: Hub::new(store.clone(), shutdown.clone()),
            config: Arc::new(config),
            storage,
            links,
            shutdown,
            auth: Arc::default(),
            leptos: LeptosOptions::builder()
                .output_name("jobdeck")
                .site_root("target/site")
                .site_pkg_dir("assets")
                .build(),
            store,
        })
    }
}

impl FromRef<AppState> for LeptosOptions {
    fn from_ref(state: &AppState) -> Self {
        state.leptos.clone()
    }
}

impl FromRef<AppState> for Store {
    fn from_ref(state: &AppState) -> Self {
        state.store.clone()
    }
}

impl FromRef<AppState> for Hub {
    fn from_ref(state: &AppState) -> Self {
        state.hub.clone()
    }
}
