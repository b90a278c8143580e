//! Every route in one place.

#![allow(unreachable_pub, reason = "the component macro makes its own items public")]

use leptos::prelude::*;
use leptos_meta::provide_meta_context;
use leptos_router::components::{FlatRoutes, Route, Router};
use leptos_router::{SsrMode, path};

use crate::clock::Clock;
use crate::frame::Frame;
use crate::model::PageFacts;
use crate::pages::{
    demo::DemoPage, job::JobPage, jobs::JobsPage, not_found::NotFoundPage, set_up::SetUpPage, sign_in::SignInPage,
};

/// The deck. Drawn whole on the server, then brought to life.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    let facts = SharedValue::new(facts).into_inner();
    Clock::provide(facts.now);
    provide_context(facts.locale);
    provide_context(facts);
    view! {
        <Router>
            <Frame>
                <FlatRoutes fallback=NotFoundPage>
                    <Route path=path!("/sign-in") view=SignInPage ssr=SsrMode::Async />
                    <Route path=path!("/setup") view=SetUpPage ssr=SsrMode::Async />
                    <Route path=path!("/jobs") view=JobsPage ssr=SsrMode::Async />
                    <Route path=path!("/jobs/:id") view=JobPage ssr=SsrMode::Async />
                    <Route path=path!("/demo") view=DemoPage ssr=SsrMode::Async />
                </FlatRoutes>
            </Frame>
        </Router>
    }
}

#[cfg(feature = "ssr")]
fn facts() -> PageFacts {
    crate::ssr::page_facts()
}

/// Never called: the browser reads the facts the server sent.
#[cfg(not(feature = "ssr"))]
fn facts() -> PageFacts {
    PageFacts {
        locale: crate::Locale::default(),
        theme: None,
        viewer: None,
        environment: String::new(),
        version: String::new(),
        can_set_up: false,
        now: Default::default(),
    }
}
