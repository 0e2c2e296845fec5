//! The options in the parentheses of the attribute.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitStr, Path, Token, parenthesized};

/// `name = "…"`.
#[derive(Default)]
pub(crate) struct ActivityAttributes {
    pub(crate) name: Option<LitStr>,
}

/// `name = "…"`, `signals(…)`, `queries(…)`, `updates(…)`.
#[derive(Default)]
pub(crate) struct WorkflowAttributes {
    pub(crate) name: Option<LitStr>,
    pub(crate) signals: Vec<Path>,
    pub(crate) queries: Vec<Path>,
    pub(crate) updates: Vec<Path>,
}

impl Parse for ActivityAttributes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = Self::default();
        entries(input, |key, input| match key.to_string().as_str() {
            "name" => read_name(key, input, &mut attributes.name),
            _ => Err(Error::new(
                key.span(),
                format!("unknown option `{key}`; an activity takes `name = \"…\"`"),
            )),
        })?;
        Ok(attributes)
    }
}

impl Parse for WorkflowAttributes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = Self::default();
        entries(input, |key, input| match key.to_string().as_str() {
            "name" => read_name(key, input, &mut attributes.name),
            "signals" => read_list(key, input, &mut attributes.signals),
            "queries" => read_list(key, input, &mut attributes.queries),
            "updates" => read_list(key, input, &mut attributes.updates),
            _ => Err(Error::new(
                key.span(),
                format!(
                    "unknown option `{key}`; a workflow takes `name = \"…\"`, `signals(…)`, `queries(…)` and `updates(…)`"
                ),
            )),
        })?;
        Ok(attributes)
    }
}

/// Parses entries between commas. Each begins with a key.
fn entries(
    input: ParseStream<'_>,
    mut entry: impl FnMut(&Ident, ParseStream<'_>) -> syn::Result<()>,
) -> syn::Result<()> {
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        entry(&key, input)?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

fn read_name(key: &Ident, input: ParseStream<'_>, name: &mut Option<LitStr>) -> syn::Result<()> {
    input.parse::<Token![=]>()?;
    let text: LitStr = input.parse()?;
    if text.value().trim().is_empty() {
        return Err(Error::new(text.span(), "a name cannot be blank"));
    }
    if name.replace(text).is_some() {
        return Err(Error::new(key.span(), "`name` is given twice"));
    }
    Ok(())
}

fn read_list(key: &Ident, input: ParseStream<'_>, list: &mut Vec<Path>) -> syn::Result<()> {
    if !list.is_empty() {
        return Err(Error::new(key.span(), format!("`{key}` is given twice")));
    }
    let content;
    parenthesized!(content in input);
    list.extend(Punctuated::<Path, Token![,]>::parse_terminated(&content)?);
    Ok(())
}
