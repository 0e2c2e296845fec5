//! A router that can list its routes, for tests that must cover every route and for generated documents.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter};

use crate::App;

/// One route: a method and a path with its parameters in braces, such as `/api/workflows/{workflow_id}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub method: &'static str,
    pub path: String,
}

/// The methods that one path accepts.
#[derive(Clone)]
pub(crate) struct Endpoint {
    methods: Vec<&'static str>,
    router: MethodRouter<App>,
}

impl Endpoint {
    /// Returns an endpoint with the methods of both.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.methods.extend(other.methods);
        self.router = self.router.merge(other.router);
        self
    }
}

macro_rules! methods {
    ($($name:ident $method:ident,)+) => {$(
        /// Returns an endpoint for this method.
        pub(crate) fn $name<H, T>(handler: H) -> Endpoint
        where
            H: Handler<T, App>,
            T: 'static,
        {
            Endpoint {
                methods: vec![stringify!($method)],
                router: axum::routing::on(MethodFilter::$method, handler),
            }
        }
    )+};
}

methods! {
    get GET,
    post POST,
    put PUT,
    delete DELETE,
}

/// Defines the routing functions of a plane. Each takes what the route requires of its callers and a handler. The plane's `serve`
/// checks the request, calls the handler and renders what it returns.
macro_rules! routing_functions {
    ($door:ty, $call:ty => $reply:ty; $($name:ident)+) => {$(
        fn $name<F, A>(door: impl Into<$door>, handler: F) -> Endpoint
        where
            F: Fn($call) -> A + Clone + Send + Sync + 'static,
            A: Future<Output = Result<$reply, Refusal>> + Send + 'static,
        {
            let door = door.into();
            routes::$name(move |State(app): State<App>, request: Request<HttpBody>| {
                serve(door, app, request, handler.clone())
            })
        }
    )+};
}

pub(crate) use routing_functions;

/// Paths with their endpoints.
#[derive(Default)]
pub(crate) struct Routes {
    router: Router<App>,
    listed: Vec<Route>,
}

impl Routes {
    pub(crate) fn route(mut self, path: &str, endpoint: Endpoint) -> Self {
        let routes = endpoint.methods.iter().map(|method| Route {
            method,
            path: path.to_owned(),
        });
        self.listed.extend(routes);
        self.router = self.router.route(path, endpoint.router);
        self
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.listed.extend(other.listed);
        self.router = self.router.merge(other.router);
        self
    }

    pub(crate) fn method_not_allowed_fallback<H, T>(mut self, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.router = self.router.method_not_allowed_fallback(handler);
        self
    }

    pub(crate) fn fallback<H, T>(mut self, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.router = self.router.fallback(handler);
        self
    }

    pub(crate) fn into_router(self) -> Router<App> {
        self.router
    }

    /// Returns the list of routes, with `prefix` before each path.
    pub(crate) fn below(self, prefix: &str) -> Vec<Route> {
        let full = |route: Route| Route {
            path: format!("{prefix}{}", route.path),
            ..route
        };
        self.listed.into_iter().map(full).collect()
    }
}
