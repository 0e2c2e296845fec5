//! `#[workflow]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Error, ItemFn, Type, parse2};

use crate::attributes::WorkflowAttributes;
use crate::function::{Function, Kind};

const KIND: Kind = Kind {
    what: "a workflow",
    result: "WorkflowResult",
};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let attributes: WorkflowAttributes = parse2(attribute)?;
    let item: ItemFn = parse2(item)?;
    if item.sig.asyncness.is_none() {
        let why = "a workflow must be `async`";
        return Err(Error::new(item.sig.fn_token.span, why));
    }
    let no_context = Error::new(
        item.sig.paren_token.span.close(),
        "the first parameter of a workflow must be a `WorkflowContext`",
    );
    let function = Function::read(item, attributes.name, &KIND, |parameters| {
        if parameters.is_empty() {
            return Err(no_context);
        }
        let context = parameters.remove(0);
        match &*context.ty {
            Type::Reference(reference) => Err(Error::new(
                reference.and_token.span,
                "take `WorkflowContext` by value, without `&`",
            )),
            _ => Ok(()),
        }
    })?;
    let (ident, name, output) = (function.ident(), &function.name, &function.output);
    let doc = format!(
        "The workflow `{}`, to register with a worker.",
        name.value()
    );
    let shared = function.expand(
        &quote!(::longhaul_sdk::WorkflowCall),
        "a call does nothing until a client or a workflow's context makes it",
        &doc,
    );
    let tuple = function.tuple();
    let arguments = function.hidden();
    // With the spans of the constants, the compiler reports a message of another kind at its constant.
    let signals = attributes
        .signals
        .iter()
        .map(|path| quote_spanned!(path.span()=> .signal(&#path)));
    let queries = attributes
        .queries
        .iter()
        .map(|path| quote_spanned!(path.span()=> .query(&#path)));
    let updates = attributes
        .updates
        .iter()
        .map(|path| quote_spanned!(path.span()=> .update(&#path)));
    Ok(quote! {
        #shared

        impl ::longhaul_sdk::Workflow for #ident {
            type Output = #output;

            fn definition() -> ::longhaul_sdk::WorkflowDefinition {
                ::longhaul_sdk::WorkflowDefinition::new(
                    #name,
                    |__context: ::longhaul_sdk::WorkflowContext, #tuple| Self::run(__context, #(#arguments),*),
                )
                #(#signals)*
                #(#queries)*
                #(#updates)*
                .from_attribute()
            }
        }
    })
}
