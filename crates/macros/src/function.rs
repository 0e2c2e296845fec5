//! The function of an activity or workflow: the checks and the generated code that both macros share.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, FnArg, GenericArgument, ItemFn, LitStr, Pat, PatType, PathArguments,
    ReturnType, Signature, Type,
};

/// serde supports tuples of at most this length.
const ARGUMENTS_MAX: usize = 16;

/// The kind of the function, for error messages.
pub(crate) struct Kind {
    /// The kind, with its article.
    pub(crate) what: &'static str,
    /// The name of its result type.
    pub(crate) result: &'static str,
}

/// A function that passed the checks.
pub(crate) struct Function {
    pub(crate) item: ItemFn,
    /// The parameters without the context.
    pub(crate) arguments: Vec<Argument>,
    /// The `T` of the returned result.
    pub(crate) output: Type,
    /// The name on the wire.
    pub(crate) name: LitStr,
}

pub(crate) struct Argument {
    /// The name that callers see.
    pub(crate) shown: Ident,
    /// A name that cannot collide with a name in user code.
    pub(crate) hidden: Ident,
    pub(crate) r#type: Type,
}

impl Function {
    /// Checks the function. `context` removes the context from the parameters, if there is one.
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

    /// Returns the arguments as one tuple pattern with its type.
    pub(crate) fn tuple(&self) -> TokenStream {
        let names = self.hidden();
        let types = self.arguments.iter().map(|argument| &argument.r#type);
        quote!((#(#names,)*): (#(#types,)*))
    }

    /// Returns the names of the arguments in generated code.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = &Ident> {
        self.arguments.iter().map(|argument| &argument.hidden)
    }

    /// Generates the function that returns a call, and the type with the body.
    pub(crate) fn expand(&self, call: &TokenStream, unused: &str, doc: &str) -> TokenStream {
        let (ident, vis) = (self.ident(), &self.item.vis);
        let (shown_attributes, body_attributes) = self.attributes();
        let (output, name) = (&self.output, &self.name);
        let parameters = self.arguments.iter().map(|argument| {
            let (shown, r#type) = (&argument.shown, &argument.r#type);
            quote!(#shown: #r#type)
        });
        // With the spans of the types, the compiler reports a type that serde does not support at its place.
        let given = self.arguments.iter().map(|argument| {
            let shown = &argument.shown;
            quote_spanned!(argument.r#type.span()=> .argument(#shown))
        });
        let checks = self.arguments.iter().map(|argument| {
            let r#type = &argument.r#type;
            quote_spanned!(r#type.span()=> ::longhaul_sdk::macro_support::check_serde::<#r#type>();)
        });
        let output_check = quote_spanned!(output.span()=> ::longhaul_sdk::macro_support::check_serde::<#output>(););
        let mut signature = self.item.sig.clone();
        signature.ident = Ident::new("run", ident.span());
        let block = &self.item.block;
        quote! {
            #(#shown_attributes)*
            #[must_use = #unused]
            #[allow(dead_code, clippy::too_many_arguments, reason = "it may be called in another crate")]
            #vis fn #ident(#(#parameters),*) -> #call<#output> {
                #call::named(#name)#(#given)*
            }

            #[doc = #doc]
            #[allow(non_camel_case_types, dead_code, reason = "it has the name of the function")]
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

    /// Splits the attributes: documentation goes to the function that callers see, all others go to the body.
    fn attributes(&self) -> (Vec<&Attribute>, Vec<&Attribute>) {
        self.item.attrs.iter().partition(|attribute| {
            ["doc", "deprecated"]
                .iter()
                .any(|shown| attribute.path().is_ident(shown))
        })
    }
}

pub(crate) fn check_signature(signature: &Signature, kind: &Kind) -> syn::Result<()> {
    let refuse = |span: Span, why: &str| Err(Error::new(span, format!("{} {why}", kind.what)));
    if !signature.generics.params.is_empty() {
        let why = "cannot be generic: one name must refer to one type";
        return refuse(signature.generics.params.span(), why);
    }
    if let Some(clause) = &signature.generics.where_clause {
        return refuse(
            clause.where_token.span,
            "cannot have a `where` clause, because it cannot be generic",
        );
    }
    if let Some(token) = &signature.constness {
        return refuse(token.span, "cannot be `const`");
    }
    if let Some(token) = &signature.unsafety {
        return refuse(
            token.span,
            "cannot be `unsafe`: the worker calls it from safe code",
        );
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.extern_token.span, "cannot be `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(
            variadic.dots.spans[0],
            "must have a fixed number of arguments",
        );
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
                format!("{} must be a free function, without `self`", kind.what),
            )),
        })
        .collect()
}

fn argument(index: usize, parameter: &PatType) -> syn::Result<Argument> {
    match &*parameter.ty {
        Type::Reference(reference) => {
            return Err(Error::new(
                reference.and_token.span,
                "arguments are decoded from a payload: use an owned type, such as `String` instead of `&str`",
            ));
        }
        Type::ImplTrait(implied) => {
            return Err(Error::new(
                implied.impl_token.span,
                "arguments are decoded from a payload: use a named type",
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

/// Returns the `T` of `ActivityResult<T>`, `Result<T, _>` and the like.
fn output(signature: &Signature, kind: &Kind) -> syn::Result<Type> {
    let expected = format!("{} must return `{}<…>`", kind.what, kind.result);
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
