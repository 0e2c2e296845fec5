//! Which host names the server accepts, and which web pages may send changes to it.
//!
//! A server without credentials trusts every caller that can reach it. On loopback these are the programs of this machine. Web pages
//! in a browser of this machine must not be among them: a page can point its own name at 127.0.0.1 and send requests to the server
//! (DNS rebinding), or send a form to it. The browser sends the name in `Host` and the page in `Origin`.

use std::net::IpAddr;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use futures::future::{Either, Ready, ready};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use longhaul_protocol::Reason;
use tower::{Layer, Service};

use crate::App;
use crate::gate::Refusal;

/// The names that requests may be sent to.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Whether only this machine's own names and `names` are accepted; otherwise every name is.
    is_local: bool,
    names: Vec<String>,
}

impl Hosts {
    /// Accepts any name. Web pages may send changes if they come from the name that the request is sent to, or from one of `names`.
    pub fn any(names: Vec<String>) -> Self {
        Self {
            is_local: false,
            names: lowercase(names),
        }
    }

    /// Accepts `localhost`, loopback addresses and `names`.
    pub fn local(names: Vec<String>) -> Self {
        Self {
            is_local: true,
            names: lowercase(names),
        }
    }

    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        // A request with an absolute URI, as sent to a proxy, needs no `Host` header.
        let in_full = uri
            .authority()
            .map(|authority| authority.as_str().as_bytes());
        let targets = || {
            let named = headers.get_all(HOST).iter().map(|host| host.as_bytes());
            in_full.into_iter().chain(named)
        };
        if self.is_local && !targets().all(|target| self.is_allowed(target)) {
            let message = "This server answers to localhost, to loopback addresses and to the names given with --allowed-host.";
            return Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                Reason::HostNotAllowed,
                message,
            ));
        }
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(());
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let target = targets().next();
        if origins.all(|origin| self.is_own(origin.as_bytes(), target)) {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            Reason::OriginNotAllowed,
            "A web page of another site may not change anything here; --allowed-host NAME allows the pages of NAME.",
        ))
    }

    fn is_allowed(&self, authority: &[u8]) -> bool {
        let Some((host, _)) = split(authority) else {
            return false;
        };
        host == "localhost"
            || host
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.to_canonical().is_loopback())
            || self.names.contains(&host)
    }

    /// Returns whether pages of `origin` may send changes: their name is the one that the request is sent to, or an allowed one.
    fn is_own(&self, origin: &[u8], target: Option<&[u8]>) -> bool {
        let Some((default_port, authority)) = [(80, &b"http://"[..]), (443, b"https://")]
            .into_iter()
            .find_map(|(port, scheme)| Some((port, origin.strip_prefix(scheme)?)))
        else {
            return false;
        };
        let Some((host, port)) = split(authority) else {
            return false;
        };
        if self.names.contains(&host) {
            return true;
        }
        let with_port = |port: Option<u16>| port.unwrap_or(default_port);
        target.and_then(split).is_some_and(|(target, target_port)| {
            target == host && with_port(target_port) == with_port(port)
        })
    }
}

fn lowercase(names: Vec<String>) -> Vec<String> {
    let lower = |name: String| name.trim_end_matches('.').to_ascii_lowercase();
    names.into_iter().map(lower).collect()
}

/// Returns the name, in lower case and without brackets, and the port of an authority. Returns `None` if the text is no authority.
fn split(authority: &[u8]) -> Option<(String, Option<u16>)> {
    let authority = std::str::from_utf8(authority).ok()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (
                host,
                port.strip_prefix(':')
                    .or_else(|| port.is_empty().then_some(""))?,
            )
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let port = match port {
        "" => None,
        port => Some(port.parse().ok()?),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

/// Refuses requests to other names and from pages of other sites before any other check.
#[derive(Clone)]
pub(crate) struct HostsLayer(pub(crate) App);

#[derive(Clone)]
pub(crate) struct Guarded<S> {
    app: App,
    inner: S,
}

impl<S> Layer<S> for HostsLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            app: self.0.clone(),
            inner,
        }
    }
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let hosts = &self.app.options().hosts;
        match hosts.check(request.method(), request.uri(), request.headers()) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(refusal) => Either::Right(ready(Ok(self.refuse(request.uri(), refusal)))),
        }
    }
}

impl<S> Guarded<S> {
    fn refuse(&self, uri: &Uri, refusal: Refusal) -> Response {
        if uri.path().starts_with("/api/worker/") {
            crate::worker::envelope::refused(&self.app, refusal)
        } else if crate::conductor::owns(uri.path()) {
            crate::conductor::refused(&self.app, refusal)
        } else {
            crate::control::refused(refusal)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(hosts: &Hosts, method: Method, fields: &[(&'static str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        match hosts.check(&method, &Uri::from_static("/"), &headers) {
            Ok(()) => 200,
            Err(refusal) => refusal.status.as_u16(),
        }
    }

    #[test]
    fn a_local_server_answers_to_its_own_names() {
        let hosts = Hosts::local(vec!["Build.Example.".into()]);
        for (host, status) in [
            ("localhost", 200),
            ("LOCALHOST:8080", 200),
            ("localhost.:80", 200),
            ("127.0.0.1:8080", 200),
            ("127.9.9.9", 200),
            ("[::1]:8080", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("build.example:8080", 200),
            ("evil.example", 421),
            ("evil.example:8080", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost@evil.example", 421),
            ("evil@localhost", 421),
            ("192.168.0.1", 421),
            ("0.0.0.0", 421),
            ("[::1", 421),
            ("[::1]x", 421),
            ("localhost:port", 421),
            ("", 421),
        ] {
            assert_eq!(
                verdict(&hosts, Method::GET, &[("host", host)]),
                status,
                "{host}"
            );
            let any = verdict(&Hosts::any(Vec::new()), Method::GET, &[("host", host)]);
            assert_eq!(any, 200, "{host}");
        }
        // Every browser sends the name.
        assert_eq!(verdict(&hosts, Method::GET, &[]), 200);
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(verdict(&hosts, Method::GET, &two), 421);
        let in_full = Uri::from_static("http://evil.example/api/health");
        let named = HeaderMap::from_iter([(HOST, "localhost".parse().unwrap())]);
        assert!(hosts.check(&Method::GET, &in_full, &named).is_err());
        let in_full = Uri::from_static("http://127.0.0.1:8080/api/health");
        assert!(hosts.check(&Method::GET, &in_full, &named).is_ok());
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        for hosts in [
            Hosts::local(vec!["ui.example".into()]),
            Hosts::any(vec!["ui.example".into()]),
        ] {
            for (origin, status) in [
                ("http://localhost:8080", 200),
                ("http://ui.example", 200),
                ("https://ui.example:444", 200),
                ("http://localhost:3000", 403),
                ("http://localhost", 403),
                ("https://evil.example", 403),
                ("http://localhost:8080.evil.example", 403),
                ("null", 403),
                ("", 403),
            ] {
                let fields = [("host", "localhost:8080"), ("origin", origin)];
                assert_eq!(verdict(&hosts, Method::POST, &fields), status, "{origin}");
                assert_eq!(verdict(&hosts, Method::GET, &fields), 200, "{origin}");
            }
            let own = [("host", "localhost"), ("origin", "http://localhost:80")];
            assert_eq!(verdict(&hosts, Method::DELETE, &own), 200);
        }
    }
}
