//! `#[worker_task]` of `longhaul-conductor-sdk`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::{
    Error, Expr, FnArg, GenericArgument, ItemFn, LitStr, Pat, PathArguments, ReturnType, Token,
    Type, parse2,
};

use crate::function::{Kind, check_signature};

const KIND: Kind = Kind {
    what: "a worker",
    result: "TaskResponse",
};

/// The settings of a worker that the attribute takes, besides the two that are durations.
const SETTINGS: [&str; 9] = [
    "thread_count",
    "domain",
    "worker_id",
    "register_task_def",
    "overwrite_task_def",
    "strict_schema",
    "paused",
    "lease_extend_enabled",
    "register_schema",
];

/// `"task type"`, settings, and `task_definition = …`.
struct Attributes {
    task_type: Option<LitStr>,
    /// Calls of setters.
    settings: Vec<TokenStream>,
    task_definition: Option<Expr>,
}

impl Parse for Attributes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = Self {
            task_type: None,
            settings: Vec::new(),
            task_definition: None,
        };
        if input.peek(LitStr) {
            let text: LitStr = input.parse()?;
            if text.value().trim().is_empty() {
                return Err(Error::new(text.span(), "a task type cannot be blank"));
            }
            attributes.task_type = Some(text);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let mut seen = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            let value: Expr = input.parse()?;
            if seen.contains(&key.to_string()) {
                return Err(Error::new(key.span(), format!("`{key}` is given twice")));
            }
            seen.push(key.to_string());
            attributes.set(&key, value)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(attributes)
    }
}

impl Attributes {
    fn set(&mut self, key: &Ident, value: Expr) -> syn::Result<()> {
        let millis = |setter: &str| {
            let setter = Ident::new(setter, key.span());
            quote!(.#setter(::core::time::Duration::from_millis(#value)))
        };
        let name = key.to_string();
        match name.as_str() {
            "task_definition" => self.task_definition = Some(value),
            "poll_interval_millis" => self.settings.push(millis("poll_interval")),
            "poll_timeout" => self.settings.push(millis("poll_timeout")),
            name if SETTINGS.contains(&name) => self.settings.push(quote!(.#key(#value))),
            _ => {
                let known = SETTINGS.map(|name| format!("`{name}`")).join(", ");
                return Err(Error::new(
                    key.span(),
                    format!(
                        "unknown option `{key}`; a worker takes its task type, `poll_interval_millis`, `poll_timeout`, {known} and `task_definition`"
                    ),
                ));
            }
        }
        Ok(())
    }
}

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let attributes: Attributes = parse2(attribute)?;
    let mut item: ItemFn = parse2(item)?;
    check_signature(&item.sig, &KIND)?;
    let parameters = parameters(&mut item)?;
    let reads: Vec<_> = parameters.iter().map(|parameter| &parameter.read).collect();
    let schemas = parameters.iter().map(|parameter| &parameter.schema);
    let output_schema = output_schema(&item.sig.output);
    let (ident, vis) = (&item.sig.ident, &item.vis);
    let task_type = attributes.task_type.unwrap_or_else(|| {
        let text = ident.to_string();
        LitStr::new(text.strip_prefix("r#").unwrap_or(&text), ident.span())
    });
    let names: Vec<_> = (0..reads.len())
        .map(|index| format_ident!("__parameter_{index}"))
        .collect();
    let read = quote!(#(let #names = #reads;)*);
    let is_async = item.sig.asyncness.is_some();
    let called = if is_async {
        quote!(#ident(#(#names),*).await)
    } else {
        quote!(#ident(#(#names),*))
    };
    let outcome = outcome(&item.sig.output, &called);
    let support = quote!(::longhaul_conductor_sdk::macro_support);
    let response = quote!(
        ::longhaul_conductor_sdk::worker::TaskResponse<::longhaul_conductor_sdk::worker::Outcome>
    );
    let task = quote!(::longhaul_conductor_sdk::model::Task);
    let (definitions, worker) = if is_async {
        (
            quote!(async fn __execute(__task: ::std::sync::Arc<#task>) -> #response { #read #outcome }),
            quote!(#support::asynchronous(#task_type, __execute)),
        )
    } else {
        (
            quote!(fn __execute(__task: &#task) -> #response { #read #outcome }),
            quote!(#support::synchronous(#task_type, __execute)),
        )
    };
    let setters = &attributes.settings;
    let definition = attributes
        .task_definition
        .map(|definition| quote!(.task_definition(#definition)));
    let doc = format!("The worker of the task type `{}`.", task_type.value());
    Ok(quote! {
        #item

        #[doc = #doc]
        #[allow(non_camel_case_types, dead_code, reason = "it has the name of the function")]
        #vis struct #ident {}

        impl #ident {
            #[doc = "Returns the worker, for a handler that does not discover it."]
            #[allow(dead_code, reason = "a handler may discover it")]
            #vis fn worker() -> ::longhaul_conductor_sdk::worker::AnyWorker {
                #[allow(unused_imports, reason = "which of them is used depends on the types")]
                use #support::{IsNoOption as _, IsOption as _, WithSchema as _, WithoutSchema as _};
                #definitions
                #support::described(#worker, ::std::vec![#(#schemas),*], #output_schema)
                    .settings(::longhaul_conductor_sdk::settings::CodeSettings::new()#(#setters)*)
                    #definition
            }
        }

        #support::inventory::submit! {
            #support::Declared(<#ident>::worker)
        }
    })
}

/// The code for a parameter.
struct Parameter {
    /// Reads it from the input.
    read: TokenStream,
    /// Describes it for the schema of the input.
    schema: TokenStream,
}

/// Returns the code for the parameters. Removes the attributes of serde from them.
fn parameters(item: &mut ItemFn) -> syn::Result<Vec<Parameter>> {
    let support = quote!(::longhaul_conductor_sdk::macro_support);
    let mut parameters = Vec::new();
    for input in &mut item.sig.inputs {
        let parameter = match input {
            FnArg::Typed(parameter) => parameter,
            FnArg::Receiver(receiver) => {
                let free = "a worker must be a free function, without `self`";
                return Err(Error::new(receiver.self_token.span, free));
            }
        };
        if let Type::Reference(reference) = &*parameter.ty {
            let owned = "parameters are read from JSON: use an owned type, such as `String` instead of `&str`";
            return Err(Error::new(reference.and_token.span, owned));
        }
        let Pat::Ident(pattern) = &*parameter.pat else {
            let named = "a parameter is found in the input by its name: give it one";
            return Err(Error::new(parameter.pat.span(), named));
        };
        let text = pattern.ident.to_string();
        let mut name = LitStr::new(
            text.strip_prefix("r#").unwrap_or(&text),
            pattern.ident.span(),
        );
        let mut default = None;
        for attribute in &parameter.attrs {
            if !attribute.path().is_ident("serde") {
                continue;
            }
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("rename") {
                    name = meta.value()?.parse()?;
                } else if meta.path.is_ident("default") {
                    default = Some(if meta.input.peek(Token![=]) {
                        let path: LitStr = meta.value()?.parse()?;
                        let path: syn::Path = path.parse()?;
                        quote!(#path)
                    } else {
                        quote!(::core::default::Default::default)
                    });
                } else {
                    return Err(meta.error("a parameter takes `rename` and `default`"));
                }
                Ok(())
            })?;
        }
        parameter
            .attrs
            .retain(|attribute| !attribute.path().is_ident("serde"));
        let r#type = &parameter.ty;
        let defaulted = default.as_ref().map(|_| quote!(.defaulted()));
        let schema = quote! {
            #support::Parameter::new(
                #name,
                (&#support::Probe::<#r#type>::new()).schema(),
                (&#support::Probe::<#r#type>::new()).is_option(),
            )#defaulted
        };
        let read = match default {
            Some(default) => quote_spanned!(r#type.span()=>
                #support::parameter_or::<#r#type>(&__task, #name, #default)?),
            None => quote_spanned!(r#type.span()=>
                #support::parameter::<#r#type>(&__task, #name)?),
        };
        parameters.push(Parameter { read, schema });
    }
    Ok(parameters)
}

/// Returns the schema of the output: that of the returned type, or of the `T` of a `Result` or `TaskResponse`.
fn output_schema(output: &ReturnType) -> TokenStream {
    let ReturnType::Type(_, returned) = output else {
        return quote!(::core::option::Option::None);
    };
    let output = match last(returned) {
        Some((name, Some(argument))) if name == "Result" || name == "TaskResponse" => argument,
        Some(_) | None => (**returned).clone(),
    };
    if is_opaque(&output) {
        return quote!(::core::option::Option::None);
    }
    quote!((&::longhaul_conductor_sdk::macro_support::Probe::<#output>::new()).schema())
}

/// Returns whether a type is `impl Trait`, or has one in it. Such a type has no name outside the signature.
fn is_opaque(r#type: &Type) -> bool {
    let text = quote!(#r#type).to_string();
    text.split_whitespace().any(|word| word == "impl")
}

/// Returns the outcome of the call. A `Result` and a `TaskResponse` may fail; a `TaskResult` is used as it is.
fn outcome(output: &ReturnType, called: &TokenStream) -> TokenStream {
    let into = quote!(::longhaul_conductor_sdk::worker::IntoOutcome::into_outcome);
    let whole = quote!(::longhaul_conductor_sdk::worker::Outcome::from);
    let ReturnType::Type(_, returned) = output else {
        return quote!(#into(#called));
    };
    let inner = match last(returned) {
        Some((name, arguments)) if name == "Result" || name == "TaskResponse" => arguments,
        Some((name, _)) if name == "TaskResult" => return quote!(Ok(#whole(#called))),
        Some(_) | None => return quote!(#into(#called)),
    };
    match inner.as_ref().and_then(last) {
        Some((name, _)) if name == "TaskResult" => quote!(Ok(#whole(#called?))),
        Some(_) | None => quote!(#into(#called?)),
    }
}

/// Returns the last name of a type, and its first argument.
fn last(r#type: &Type) -> Option<(String, Option<Type>)> {
    let Type::Path(path) = r#type else {
        return None;
    };
    let segment = path.path.segments.last()?;
    let argument = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(found) => Some(found.clone()),
                _ => None,
            })
        }
        PathArguments::None | PathArguments::Parenthesized(_) => None,
    };
    Some((segment.ident.to_string(), argument))
}
