//! Turns what a script threw into an outcome.

use rquickjs::{Coerced, Ctx, Object, String as Text, Value};

use super::convert;
use super::engine::SCRIPT_NAME;
use super::natives::Natives;
use crate::script::frame::Outcome;

/// The longest error text in bytes: enough to recognise the error, and small in a reason that is stored.
const MESSAGE_BYTES_MAX: usize = 2048;

/// What an exception means.
pub(super) enum Thrown {
    /// The engine ran out of memory.
    Memory,
    /// The engine ran out of stack.
    Stack,
    /// The exception was `null`: from the script, or from an engine that had no memory left for an error object.
    Null,
    /// An error of the script.
    Error { message: String, line: Option<u32> },
}

impl Thrown {
    pub(super) fn into_outcome<V>(self) -> Outcome<V> {
        let (message, line) = match self {
            Self::Error { message, line } => (message, line),
            Self::Null => ("null".to_owned(), None),
            Self::Memory => ("InternalError: out of memory".to_owned(), None),
            Self::Stack => (
                "RangeError: Maximum call stack size exceeded".to_owned(),
                None,
            ),
        };
        Outcome::Thrown { message, line }
    }
}

/// Takes the pending exception and describes it. This may run code of the script (a getter, `toString`), and what that throws is ignored.
pub(super) fn take<'js>(ctx: &Ctx<'js>, natives: &Natives<'js>) -> Thrown {
    let value = ctx.catch();
    let thrown = describe(ctx, natives, &value);
    // Whatever the description threw must not stay pending.
    let _ = ctx.catch();
    thrown
}

fn describe<'js>(ctx: &Ctx<'js>, natives: &Natives<'js>, value: &Value<'js>) -> Thrown {
    if value.is_null() {
        return Thrown::Null;
    }
    let Some(object) = value.as_object().filter(|_| value.is_error()) else {
        return Thrown::Error {
            message: shorten(other_text(ctx, natives, value)),
            line: None,
        };
    };
    let name = member(ctx, natives, object, "name");
    let message = member(ctx, natives, object, "message");
    match (name.as_deref(), message.as_deref()) {
        (Some("InternalError"), Some("out of memory")) => return Thrown::Memory,
        (Some("RangeError"), Some("Maximum call stack size exceeded")) => return Thrown::Stack,
        _ => {}
    }
    let line = member(ctx, natives, object, "stack").and_then(|stack| line_of(&stack));
    let name = name.unwrap_or_else(|| "Error".to_owned());
    let text = match message {
        Some(message) if !message.is_empty() => format!("{name}: {message}"),
        _ => name,
    };
    Thrown::Error {
        message: shorten(text),
        line,
    }
}

/// Returns a member as text, or `None` if it has no text.
fn member<'js>(
    ctx: &Ctx<'js>,
    natives: &Natives<'js>,
    object: &Object<'js>,
    name: &str,
) -> Option<String> {
    let found = object
        .get::<_, Text>(name)
        .and_then(|text| natives.text(&text))
        .ok();
    if found.is_none() {
        let _ = ctx.catch();
    }
    found
}

/// Returns a text for a thrown value that is no error: text as it is, others as JSON.
fn other_text<'js>(ctx: &Ctx<'js>, natives: &Natives<'js>, value: &Value<'js>) -> String {
    if let Some(string) = value.as_string() {
        return natives.text(string).unwrap_or_default();
    }
    if value.is_undefined() {
        return "undefined".to_owned();
    }
    if !value.is_function()
        && value.is_object()
        && let Ok(json) = convert::to_json(natives, value, MESSAGE_BYTES_MAX)
    {
        return String::from_utf8_lossy(&json).into_owned();
    }
    let _ = ctx.catch();
    value
        .get::<Coerced<Text>>()
        .and_then(|Coerced(text)| natives.text(&text))
        .unwrap_or_else(|_| format!("a thrown {}", value.type_name()))
}

/// Returns the line of the first place in the script that a stack trace names, for example `at f (script:3:7)`.
fn line_of(stack: &str) -> Option<u32> {
    let mark = format!("{SCRIPT_NAME}:");
    stack.lines().find_map(|frame| {
        let (before, rest) = frame.rsplit_once(&mark)?;
        let is_place = before.ends_with(['(', ' ']);
        let digits = rest.split(':').next()?;
        is_place.then(|| digits.parse().ok())?
    })
}

/// Cuts a text to the size of a message.
pub(super) fn shorten(mut text: String) -> String {
    if text.len() > MESSAGE_BYTES_MAX {
        let mut end = MESSAGE_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_in_the_script_is_the_line() {
        assert_eq!(line_of("    at script:3:7\n"), Some(3));
        assert_eq!(
            line_of("    at parse (native)\n    at f (script:12:1)\n    at <eval> (script:1:1)\n"),
            Some(12)
        );
        assert_eq!(line_of("    at g (<input>:1:1)\n"), None);
        assert_eq!(line_of("    at f (myscript:9:1)\n"), None);
        assert_eq!(line_of("script:"), None);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = shorten("é".repeat(MESSAGE_BYTES_MAX));
        assert!(text.len() <= MESSAGE_BYTES_MAX + '…'.len_utf8());
        assert!(text.ends_with('…'));
    }
}
