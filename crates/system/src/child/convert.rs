//! Writes a value of the script engine as JSON.
//!
//! The walk is bounded by depth and by the size of its output: every value that it visits writes something. It may run code of the script
//! (getters, proxies); the interrupt check of the engine bounds that.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use rquickjs::function::This;
use rquickjs::{Array, Atom, Coerced, Ctx, Error, Function, Object, String as Text, Type, Value};

use super::natives::Natives;

/// How deep lists and maps may nest in a result. The reader of the other side takes 128 levels, some of which are the answer's own.
pub(super) const DEPTH_MAX: usize = 100;

/// Integral numbers from here on have no 64-bit integer: 2 to the power of 63.
const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;

/// Why a value has no JSON form.
#[derive(Debug)]
pub(super) enum Problem {
    /// The engine failed or the script threw. The exception is pending.
    Engine,
    Cycle,
    Depth,
    Size,
}

impl From<Error> for Problem {
    fn from(_: Error) -> Self {
        Self::Engine
    }
}

/// Returns a value as JSON of at most `bytes_max` bytes.
pub(super) fn to_json<'js>(
    natives: &Natives<'js>,
    value: &Value<'js>,
    bytes_max: usize,
) -> Result<Vec<u8>, Problem> {
    let mut writer = Writer {
        natives,
        out: Vec::new(),
        bytes_max,
        above: Vec::new(),
    };
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer<'a, 'js> {
    natives: &'a Natives<'js>,
    out: Vec<u8>,
    bytes_max: usize,
    /// The objects that contain the current value, to find cycles.
    above: Vec<Object<'js>>,
}

impl<'js> Writer<'_, 'js> {
    fn value(&mut self, value: &Value<'js>) -> Result<(), Problem> {
        match value.type_of() {
            Type::Bool => self.json(&value.as_bool()),
            Type::Int => self.json(&value.as_int()),
            Type::Float => self.number(value.as_float().unwrap_or(f64::NAN)),
            Type::String => match value.as_string() {
                Some(string) => self.text(string),
                None => self.raw(b"null"),
            },
            Type::BigInt => self.big_int(value),
            _ if is_left_out(value) => self.raw(b"null"),
            _ => match value.as_object() {
                Some(object) => self.object(object),
                None => self.raw(b"null"),
            },
        }
    }

    fn number(&mut self, number: f64) -> Result<(), Problem> {
        self.json(&json_number(number))
    }

    fn big_int(&mut self, value: &Value<'js>) -> Result<(), Problem> {
        let Coerced(digits) = value.get::<Coerced<String>>()?;
        if digits.parse::<i64>().is_ok() || digits.parse::<u64>().is_ok() {
            self.raw(digits.as_bytes())
        } else {
            self.json(&digits)
        }
    }

    fn text(&mut self, string: &Text<'js>) -> Result<(), Problem> {
        let text = self.natives.text(string)?;
        self.json(&text)
    }

    fn object(&mut self, object: &Object<'js>) -> Result<(), Problem> {
        if self.above.len() >= DEPTH_MAX {
            return Err(Problem::Depth);
        }
        if self.above.contains(object) {
            return Err(Problem::Cycle);
        }
        self.above.push(object.clone());
        if let Some(array) = object.as_array() {
            self.array(array)?;
        } else if object.is_instance_of(&self.natives.map) {
            self.map(object)?;
        } else if object.is_instance_of(&self.natives.set) {
            self.set(object)?;
        } else if object.is_instance_of(&self.natives.date) {
            self.date(object)?;
        } else {
            self.members(object)?;
        }
        self.above.pop();
        Ok(())
    }

    fn array(&mut self, array: &Array<'js>) -> Result<(), Problem> {
        self.raw(b"[")?;
        for index in 0..array.len() {
            if index > 0 {
                self.raw(b",")?;
            }
            self.value(&array.get::<Value>(index)?)?;
        }
        self.raw(b"]")
    }

    fn members(&mut self, object: &Object<'js>) -> Result<(), Problem> {
        self.raw(b"{")?;
        let mut first = true;
        for key in object.keys::<Atom>() {
            let key = key?;
            let value: Value = object.get(key.clone())?;
            if is_left_out(&value) {
                continue;
            }
            let name = key.to_js_string()?;
            self.member(&mut first, &name, &value)?;
        }
        self.raw(b"}")
    }

    fn member(
        &mut self,
        first: &mut bool,
        name: &Text<'js>,
        value: &Value<'js>,
    ) -> Result<(), Problem> {
        if !std::mem::take(first) {
            self.raw(b",")?;
        }
        self.text(name)?;
        self.raw(b":")?;
        self.value(value)
    }

    fn map(&mut self, map: &Object<'js>) -> Result<(), Problem> {
        let entries = entries(map.ctx(), &self.natives.map_for_each, map)?;
        self.raw(b"{")?;
        let mut first = true;
        for (key, value) in entries {
            if is_left_out(&key) || is_left_out(&value) {
                continue;
            }
            let Coerced(name) = key.get::<Coerced<Text>>()?;
            self.member(&mut first, &name, &value)?;
        }
        self.raw(b"}")
    }

    fn set(&mut self, set: &Object<'js>) -> Result<(), Problem> {
        let entries = entries(set.ctx(), &self.natives.set_for_each, set)?;
        self.raw(b"[")?;
        for (place, (_, value)) in entries.into_iter().enumerate() {
            if place > 0 {
                self.raw(b",")?;
            }
            self.value(&value)?;
        }
        self.raw(b"]")
    }

    fn date(&mut self, date: &Object<'js>) -> Result<(), Problem> {
        match self
            .natives
            .date_text
            .call::<_, Text>((This(date.clone()),))
        {
            Ok(text) => self.text(&text),
            Err(Error::Exception) => {
                // The only date without a text is the invalid one.
                let _ = date.ctx().catch();
                self.raw(b"null")
            }
            Err(error) => Err(error.into()),
        }
    }

    fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Problem> {
        serde_json::to_writer(&mut self.out, value).map_err(|_| Problem::Size)?;
        self.check_size()
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.out.write_all(bytes).map_err(|_| Problem::Size)?;
        self.check_size()
    }

    fn check_size(&self) -> Result<(), Problem> {
        if self.out.len() > self.bytes_max {
            return Err(Problem::Size);
        }
        Ok(())
    }
}

/// Returns a number for JSON: an integer if it is integral, null if it is not finite.
pub(super) fn json_number(number: f64) -> serde_json::Value {
    if number.fract() == 0.0 && (-INTEGER_END..INTEGER_END).contains(&number) {
        #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
        return (number as i64).into();
    }
    number.into()
}

/// Returns whether a value has no place in a result.
fn is_left_out(value: &Value<'_>) -> bool {
    value.is_function() || value.is_symbol()
}

type Entries<'js> = Vec<(Value<'js>, Value<'js>)>;

/// Returns keys and values of a map or a set, by the engine's own `forEach`.
fn entries<'js>(
    ctx: &Ctx<'js>,
    for_each: &Function<'js>,
    object: &Object<'js>,
) -> Result<Entries<'js>, Error> {
    let found: Rc<RefCell<Entries<'js>>> = Rc::default();
    let sink = Rc::clone(&found);
    let visit = Function::new(ctx.clone(), move |value: Value<'js>, key: Value<'js>| {
        sink.borrow_mut().push((key, value));
    })?;
    for_each.call::<_, ()>((This(object.clone()), visit))?;
    Ok(found.take())
}
