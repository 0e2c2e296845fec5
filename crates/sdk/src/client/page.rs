//! Lists that come in pages.

use futures::future::BoxFuture;
use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};

use super::Error;
use crate::transport::RequestError;

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// What stands on it.
    pub items: Vec<T>,
    /// Asks for the page after it; nothing on the last one.
    pub next_page_token: Option<String>,
}

/// Every item of a list: pages are fetched as they are reached.
pub(super) fn items<'a, T: Send + 'a>(
    fetch: impl Fn(Option<String>) -> BoxFuture<'a, Result<Page<T>, Error>> + Send + 'a,
) -> impl Stream<Item = Result<T, Error>> + Send + 'a {
    stream::try_unfold((fetch, Some(None)), |(fetch, token)| async move {
        let Some(token) = token else {
            return Ok::<_, Error>(None);
        };
        let page = fetch(token.clone()).await?;
        if page.next_page_token.is_some() && page.next_page_token == token {
            // It would go round for ever.
            let repeated = "a page names itself as the next one".to_owned();
            return Err(RequestError::Malformed(repeated).into());
        }
        let next = page.next_page_token.map(Some);
        Ok(Some((stream::iter(page.items).map(Ok), (fetch, next))))
    })
    .try_flatten()
}
