//! `#[activity]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, PatType, Type, parse2};

use crate::attributes::ActivityAttributes;
use crate::function::{Function, Kind};

const KIND: Kind = Kind {
    what: "an activity",
    result: "ActivityResult",
};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let attributes: ActivityAttributes = parse2(attribute)?;
    let item: ItemFn = parse2(item)?;
    let mut takes_context = false;
    let function = Function::read(item, attributes.name, &KIND, |parameters| {
        takes_context = take_context(parameters)?;
        Ok(())
    })?;
    let (ident, name, output) = (function.ident(), &function.name, &function.output);
    let doc = format!(
        "The activity `{}`, to register with a worker.",
        name.value()
    );
    let shared = function.expand(
        &quote!(::longhaul_sdk::ActivityCall),
        "a call does nothing until a workflow's context makes it",
        &doc,
    );
    let tuple = function.tuple();
    let arguments = function.hidden();
    let context = takes_context.then(|| quote!(__context,));
    let constructor = if function.item.sig.asyncness.is_some() {
        quote!(new)
    } else {
        quote!(blocking)
    };
    Ok(quote! {
        #shared

        impl ::longhaul_sdk::Activity for #ident {
            type Output = #output;

            fn definition() -> ::longhaul_sdk::ActivityDefinition {
                ::longhaul_sdk::ActivityDefinition::#constructor(
                    #name,
                    |__context: ::longhaul_sdk::ActivityContext, #tuple| Self::run(#context #(#arguments),*),
                )
            }
        }
    })
}

/// Removes the context from the parameters. It is the first parameter, and is recognized by its type. Returns whether there is one.
fn take_context(parameters: &mut Vec<PatType>) -> syn::Result<bool> {
    let is_context = |r#type: &Type| {
        matches!(r#type, Type::Path(path)
            if path.path.segments.last().is_some_and(|segment| segment.ident == "ActivityContext"))
    };
    for (index, parameter) in parameters.iter().enumerate() {
        match &*parameter.ty {
            Type::Reference(reference) if is_context(&reference.elem) => {
                let owned = "take `ActivityContext` by value, without `&`";
                return Err(Error::new(reference.and_token.span, owned));
            }
            r#type if is_context(r#type) && index > 0 => {
                let first = "`ActivityContext` must be the first parameter";
                return Err(Error::new_spanned(r#type, first));
            }
            _ => {}
        }
    }
    let takes_context = parameters
        .first()
        .is_some_and(|first| is_context(&first.ty));
    if takes_context {
        parameters.remove(0);
    }
    Ok(takes_context)
}
