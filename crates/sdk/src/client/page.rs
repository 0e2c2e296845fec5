//! Lists in pages.

use futures::future::BoxFuture;
use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};

use super::Error;
use crate::transport::RequestError;

/// One page of a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// The token of the next page. `None` on the last page.
    pub next_page_token: Option<String>,
}

/// Returns every item of a list. Pages are fetched as needed.
pub(super) fn items<'a, T: Send + 'a>(
    fetch: impl Fn(Option<String>) -> BoxFuture<'a, Result<Page<T>, Error>> + Send + 'a,
) -> impl Stream<Item = Result<T, Error>> + Send + 'a {
    stream::try_unfold((fetch, Some(None)), |(fetch, token)| async move {
        let Some(token) = token else {
            return Ok::<_, Error>(None);
        };
        let page = fetch(token.clone()).await?;
        if page.next_page_token.is_some() && page.next_page_token == token {
            // It would never end.
            let repeated = "the token of the next page is the token of this page".to_owned();
            return Err(RequestError::Malformed(repeated).into());
        }
        let next = page.next_page_token.map(Some);
        Ok(Some((stream::iter(page.items).map(Ok), (fetch, next))))
    })
    .try_flatten()
}
