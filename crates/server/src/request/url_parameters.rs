//! URL parameters, read like a body: one by one, with all mistakes refused together.

use std::cell::RefCell;

use http::Uri;
use longhaul_protocol::workflow_command::FieldErrors;

use crate::gate::Refusal;

/// The parameters of a request. The first value of a repeated parameter counts.
pub(crate) struct UrlParameters {
    parameters: Vec<(String, String)>,
    errors: RefCell<FieldErrors>,
}

impl UrlParameters {
    pub(crate) fn of(uri: &Uri) -> Self {
        let parameters = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
        Self {
            parameters,
            errors: RefCell::default(),
        }
    }

    /// Returns a parameter's text; an empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Reads `1`, `0`, `true` or `false` in any case. An absent or empty parameter is false.
    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.text(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(_) => {
                self.refuse(name, "must be 1, 0, true or false");
                false
            }
        }
    }

    /// Reads `page_size`, a number from 1 to `max`.
    pub(crate) fn page_size(&self, default: usize, max: usize) -> usize {
        let Some(text) = self.text("page_size") else {
            return default;
        };
        match text.parse() {
            Ok(size) if (1..=max).contains(&size) => size,
            _ => {
                self.refuse("page_size", &format!("must be a number from 1 to {max}"));
                default
            }
        }
    }

    /// Reads where the previous page ended. Clients send `next_page_token`; the published API calls it `page_token`.
    pub(crate) fn page_token<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self
            .text("next_page_token")
            .or_else(|| self.text("page_token"))?;
        let token = read(text);
        if token.is_none() {
            self.refuse("next_page_token", "is not a token of this list");
        }
        token
    }

    pub(crate) fn refuse(&self, name: &str, message: &str) {
        self.errors
            .borrow_mut()
            .entry(name.to_owned())
            .or_default()
            .push(message.to_owned());
    }

    /// Ends the reading. Fails with every mistake that was recorded.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let errors = self.errors.borrow();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Refusal::invalid(&errors))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(text: &str) -> UrlParameters {
        UrlParameters::of(&format!("/x?{text}").parse().unwrap())
    }

    #[test]
    fn values_are_percent_decoded_and_the_first_counts() {
        let parameters = parameters("a=one%20two&a=three&b=&c=MTI=&d=x+y");
        assert_eq!(parameters.text("a"), Some("one two"));
        assert_eq!(parameters.text("b"), None);
        assert_eq!(parameters.text("c"), Some("MTI="));
        assert_eq!(parameters.text("d"), Some("x y"));
        assert_eq!(parameters.text("e"), None);
    }

    #[test]
    fn flags_are_words_or_digits() {
        for (text, expected) in [
            ("f=1", true),
            ("f=TRUE", true),
            ("f=0", false),
            ("f=False", false),
            ("f=", false),
            ("", false),
        ] {
            let parameters = parameters(text);
            assert_eq!(parameters.flag("f"), expected, "{text}");
            assert!(parameters.check().is_ok(), "{text}");
        }
        let parameters = parameters("f=yes");
        parameters.flag("f");
        assert!(parameters.check().is_err());
    }

    #[test]
    fn page_sizes_outside_the_range_are_refused() {
        for (text, expected) in [
            ("", Some(50)),
            ("page_size=1", Some(1)),
            ("page_size=200", Some(200)),
        ] {
            let parameters = parameters(text);
            assert_eq!(Some(parameters.page_size(50, 200)), expected);
            assert!(parameters.check().is_ok());
        }
        for text in [
            "page_size=0",
            "page_size=201",
            "page_size=-1",
            "page_size=ten",
            "page_size=1.5",
        ] {
            let parameters = parameters(text);
            parameters.page_size(50, 200);
            assert!(parameters.check().is_err(), "{text}");
        }
    }
}
