//! A function that is to become a definition: what both macros ask of it, and what both make of it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, FnArg, GenericArgument, ItemFn, LitStr, Pat, PatType, PathArguments,
    ReturnType, Signature, Type,
};

/// Tuples of more have no serde form.
const ARGUMENTS_MAX: usize = 16;

/// What the function is to become, for messages.
pub(crate) struct Kind {
    /// With its article.
    pub(crate) what: &'static str,
    /// What it returns.
    pub(crate) result: &'static str,
}

/// A function that passed the checks.
pub(crate) struct Function {
    pub(crate) item: ItemFn,
    /// Everything but the context.
    pub(crate) arguments: Vec<Argument>,
    /// The `T` of the returned result.
    pub(crate) output: Type,
    /// What it is called on the wire.
    pub(crate) name: LitStr,
}

pub(crate) struct Argument {
    /// What callers see.
    pub(crate) shown: Ident,
    /// What stands for it where nothing of the user's may be meant.
    pub(crate) hidden: Ident,
    pub(crate) r#type: Type,
}

impl Function {
    /// Checks what both macros ask for. `context` takes the context away from the parameters, if there is one.
    pub(crate) fn read(
        item: ItemFn,
        name: Option<LitStr>,
        kind: &Kind,
        context: impl FnOnce(&mut Vec<PatType>) -> syn::Result<()>,
    ) -> syn::Result<Self> {
        check_signature(&item.sig, kind)?;
        let mut parameters = parameters(&item.sig, kind)?;
        context(&mut parameters)?;
        if let Some(extra) = parameters.get(ARGUMENTS_MAX) {
            let many = format!("{} takes at most {ARGUMENTS_MAX} arguments", kind.what);
            return Err(Error::new(extra.span(), many));
        }
        let arguments = parameters
            .iter()
            .enumerate()
            .map(|(index, parameter)| argument(index, parameter))
            .collect::<syn::Result<_>>()?;
        let output = output(&item.sig, kind)?;
        let name = name.unwrap_or_else(|| {
            let text = item.sig.ident.to_string();
            LitStr::new(
                text.strip_prefix("r#").unwrap_or(&text),
                item.sig.ident.span(),
            )
        });
        Ok(Self {
            item,
            arguments,
            output,
            name,
        })
    }

    pub(crate) fn ident(&self) -> &Ident {
        &self.item.sig.ident
    }

    /// The arguments as one tuple pattern with its type.
    pub(crate) fn tuple(&self) -> TokenStream {
        let names = self.hidden();
        let types = self.arguments.iter().map(|argument| &argument.r#type);
        quote!((#(#names,)*): (#(#types,)*))
    }

    /// The arguments as they are passed on.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = &Ident> {
        self.arguments.iter().map(|argument| &argument.hidden)
    }

    /// The function that makes a call, and the type with the body on it.
    pub(crate) fn expand(&self, call: &TokenStream, unused: &str, doc: &str) -> TokenStream {
        let (ident, vis) = (self.ident(), &self.item.vis);
        let (shown_attributes, body_attributes) = self.attributes();
        let (output, name) = (&self.output, &self.name);
        let parameters = self.arguments.iter().map(|argument| {
            let (shown, r#type) = (&argument.shown, &argument.r#type);
            quote!(#shown: #r#type)
        });
        // Spans of the types: what serde cannot do is said there.
        let given = self.arguments.iter().map(|argument| {
            let shown = &argument.shown;
            quote_spanned!(argument.r#type.span()=> .argument(#shown))
        });
        let checks = self.arguments.iter().map(|argument| {
            let r#type = &argument.r#type;
            quote_spanned!(r#type.span()=> ::longhaul_sdk::macro_support::crosses_the_wire::<#r#type>();)
        });
        let output_check = quote_spanned!(output.span()=> ::longhaul_sdk::macro_support::crosses_the_wire::<#output>(););
        let mut signature = self.item.sig.clone();
        signature.ident = Ident::new("run", ident.span());
        let block = &self.item.block;
        quote! {
            #(#shown_attributes)*
            #[must_use = #unused]
            #[allow(dead_code, clippy::too_many_arguments, reason = "what is not called here may be called elsewhere")]
            #vis fn #ident(#(#parameters),*) -> #call<#output> {
                #call::named(#name)#(#given)*
            }

            #[doc = #doc]
            #[allow(non_camel_case_types, dead_code, reason = "it is called like the function")]
            #vis struct #ident {}

            impl #ident {
                #(#body_attributes)*
                #[doc = "The body as a plain function."]
                #[allow(dead_code, reason = "the worker calls it through the definition")]
                #vis #signature #block
            }

            const _: fn() = || {
                #(#checks)*
                #output_check
            };
        }
    }

    /// What describes the function goes on the function that callers see, what is about its code goes with the code.
    fn attributes(&self) -> (Vec<&Attribute>, Vec<&Attribute>) {
        self.item.attrs.iter().partition(|attribute| {
            ["doc", "deprecated"]
                .iter()
                .any(|shown| attribute.path().is_ident(shown))
        })
    }
}

fn check_signature(signature: &Signature, kind: &Kind) -> syn::Result<()> {
    let refuse = |span: Span, why: &str| Err(Error::new(span, format!("{} {why}", kind.what)));
    if !signature.generics.params.is_empty() {
        let why = "cannot be generic: it is known by one name and must have one type";
        return refuse(signature.generics.params.span(), why);
    }
    if let Some(clause) = &signature.generics.where_clause {
        return refuse(
            clause.where_token.span,
            "cannot be generic, so there is nothing to say `where` about",
        );
    }
    if let Some(token) = &signature.constness {
        return refuse(token.span, "cannot be `const`");
    }
    if let Some(token) = &signature.unsafety {
        return refuse(
            token.span,
            "cannot be `unsafe`: the worker has no promise to make",
        );
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.extern_token.span, "cannot be `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(variadic.dots.spans[0], "takes a fixed number of arguments");
    }
    Ok(())
}

fn parameters(signature: &Signature, kind: &Kind) -> syn::Result<Vec<PatType>> {
    signature
        .inputs
        .iter()
        .map(|input| match input {
            FnArg::Typed(parameter) => Ok(parameter.clone()),
            FnArg::Receiver(receiver) => Err(Error::new(
                receiver.self_token.span,
                format!("{} is a free function, without `self`", kind.what),
            )),
        })
        .collect()
}

fn argument(index: usize, parameter: &PatType) -> syn::Result<Argument> {
    match &*parameter.ty {
        Type::Reference(reference) => {
            return Err(Error::new(
                reference.and_token.span,
                "arguments are read from a payload: take an owned type, such as `String` for `&str`",
            ));
        }
        Type::ImplTrait(implied) => {
            return Err(Error::new(
                implied.impl_token.span,
                "arguments are read from a payload: name the type",
            ));
        }
        _ => {}
    }
    let shown = match &*parameter.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        pattern => Ident::new(&format!("argument_{}", index + 1), pattern.span()),
    };
    Ok(Argument {
        shown,
        hidden: format_ident!("__argument_{index}", span = Span::mixed_site()),
        r#type: (*parameter.ty).clone(),
    })
}

/// The `T` of `ActivityResult<T>`, `Result<T, _>` and the like.
fn output(signature: &Signature, kind: &Kind) -> syn::Result<Type> {
    let expected = format!("{} returns `{}<…>`", kind.what, kind.result);
    let returned = match &signature.output {
        ReturnType::Type(_, returned) => &**returned,
        ReturnType::Default => {
            return Err(Error::new(signature.paren_token.span.close(), expected));
        }
    };
    let first = match returned {
        Type::Path(path) => {
            path.path
                .segments
                .last()
                .and_then(|segment| match &segment.arguments {
                    PathArguments::AngleBracketed(arguments) => arguments.args.first(),
                    PathArguments::None | PathArguments::Parenthesized(_) => None,
                })
        }
        _ => None,
    };
    match first {
        Some(GenericArgument::Type(output)) => Ok(output.clone()),
        _ => Err(Error::new(returned.span(), expected)),
    }
}
