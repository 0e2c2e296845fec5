//! Runs a jq program.
//!
//! The interpreter has no interrupt check and no bound on memory, so the program is watched. A program that calls itself too deeply runs
//! into the end of its stack.

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, compile, data};
use jaq_json::{Num, Val, read};

use super::convert::{DEPTH_MAX, Problem, json_number};
use super::sandbox::Meter;
use super::thrown::shorten;
use super::watch::watched;
use crate::script::frame::Outcome;
use crate::script::{Limit, Limits};

/// Runs a program and returns the JSON list of its results.
pub(super) fn run(program: &str, input: &str, limits: &Limits, meter: &Meter) -> Outcome<Vec<u8>> {
    watched(limits, meter, || {
        match results(program, input, limits.result_bytes) {
            Ok(json) => Outcome::Value(json),
            Err(Stop::Limit(limit)) => Outcome::Limit(limit),
            Err(Stop::Error { message, line }) => Outcome::Thrown {
                message: shorten(message),
                line,
            },
        }
    })
}

/// Why a program has no results.
enum Stop {
    Error { message: String, line: Option<u32> },
    Limit(Limit),
}

impl Stop {
    fn error(message: String) -> Self {
        Self::Error {
            message,
            line: None,
        }
    }
}

fn results(program: &str, input: &str, bytes_max: usize) -> Result<Vec<u8>, Stop> {
    let input =
        read::parse_single(input.as_bytes()).map_err(|error| Stop::error(error.to_string()))?;
    let definitions = jaq_core::defs()
        .chain(jaq_std::defs())
        .chain(jaq_json::defs());
    let functions = jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs());
    let arena = Arena::default();
    let file = File {
        code: program,
        path: (),
    };
    let modules = Loader::new(definitions)
        .load(&arena, file)
        .map_err(|errors| loading(program, errors))?;
    let filter = Compiler::default()
        .with_funs(functions)
        .compile(modules)
        .map_err(|errors| compiling(program, errors))?;
    let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut list = List {
        out: b"[".to_vec(),
        bytes_max,
    };
    for result in filter.id.run((context, input)) {
        match result {
            Ok(value) => list.push(&value)?,
            Err(exception) => match exception.get_err() {
                Ok(error) => return Err(Stop::error(error.to_string())),
                // The program asked to end here.
                Err(other) => match other.get_halt() {
                    Ok(0) => break,
                    Ok(code) => {
                        return Err(Stop::error(format!("the program halted with code {code}")));
                    }
                    Err(_) => return Err(Stop::error("break".to_owned())),
                },
            },
        }
    }
    list.out.push(b']');
    Ok(list.out)
}

/// Explains the first error in the text of a program.
fn loading(program: &str, errors: load::Errors<&str, ()>) -> Stop {
    let Some((_, error)) = errors.into_iter().next() else {
        return Stop::error("syntax error".to_owned());
    };
    let (expected, found) = match error {
        load::Error::Io(errors) => {
            return Stop::error(
                errors
                    .into_iter()
                    .next()
                    .map_or_else(|| "module not found".to_owned(), |(_, text)| text),
            );
        }
        load::Error::Lex(errors) => match errors.into_iter().next() {
            Some((expected, found)) => (expected.as_str(), found),
            None => ("other text", ""),
        },
        load::Error::Parse(errors) => match errors.into_iter().next() {
            Some((expected, found)) => (expected.as_str(), found),
            None => ("other text", ""),
        },
    };
    let found_text = match found.chars().take(40).collect::<String>() {
        text if text.is_empty() => "the end".to_owned(),
        text => format!("`{text}`"),
    };
    Stop::Error {
        message: format!("syntax error: expected {expected}, found {found_text}"),
        line: line_of(program, found),
    }
}

/// Explains the first name in a program that does not exist.
fn compiling(program: &str, errors: compile::Errors<&str, ()>) -> Stop {
    let first = errors.into_iter().flat_map(|(_, errors)| errors).next();
    let Some((name, kind)) = first else {
        return Stop::error("the program does not compile".to_owned());
    };
    Stop::Error {
        message: format!("undefined {}: {name}", kind.as_str()),
        line: line_of(program, name),
    }
}

/// Returns the line in which a part of the program begins. A part of another text has none.
fn line_of(program: &str, part: &str) -> Option<u32> {
    let start = (part.as_ptr() as usize).checked_sub(program.as_ptr() as usize)?;
    let before = program.as_bytes().get(..start)?;
    let lines = before.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(lines + 1).ok()
}

/// Results as a JSON list, bounded in depth and in bytes.
struct List {
    out: Vec<u8>,
    bytes_max: usize,
}

impl List {
    fn push(&mut self, value: &Val) -> Result<(), Stop> {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        self.value(value, 0).map_err(|problem| match problem {
            Problem::Depth => Stop::error("a result is nested too deeply".to_owned()),
            Problem::Size | Problem::Engine | Problem::Cycle => {
                Stop::Limit(Limit::Result(self.bytes_max))
            }
        })
    }

    fn value(&mut self, value: &Val, depth: usize) -> Result<(), Problem> {
        if depth > DEPTH_MAX {
            return Err(Problem::Depth);
        }
        match value {
            Val::Null => self.json(&()),
            Val::Bool(value) => self.json(value),
            Val::Num(number) => self.number(number),
            Val::BStr(bytes) | Val::TStr(bytes) => self.json(&String::from_utf8_lossy(bytes)),
            Val::Arr(items) => {
                self.out.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        self.out.push(b',');
                    }
                    self.value(item, depth + 1)?;
                }
                self.out.push(b']');
                self.check_size()
            }
            Val::Obj(members) => {
                self.out.push(b'{');
                for (place, (name, member)) in members.iter().enumerate() {
                    if place > 0 {
                        self.out.push(b',');
                    }
                    match name {
                        Val::BStr(bytes) | Val::TStr(bytes) => {
                            self.json(&String::from_utf8_lossy(bytes))?;
                        }
                        other => self.json(&other.to_string())?,
                    }
                    self.out.push(b':');
                    self.value(member, depth + 1)?;
                }
                self.out.push(b'}');
                self.check_size()
            }
        }
    }

    fn number(&mut self, number: &Num) -> Result<(), Problem> {
        let float = match number {
            Num::Int(integer) => return self.json(integer),
            Num::Float(float) => *float,
            // Larger than any integer of 64 bits, or with a fraction: as close as a float comes.
            Num::BigInt(_) | Num::Dec(_) => number.to_string().parse().unwrap_or(f64::NAN),
        };
        let finite = if float.is_infinite() {
            f64::MAX.copysign(float)
        } else {
            float
        };
        self.json(&json_number(finite))
    }

    fn json(&mut self, value: &(impl serde::Serialize + ?Sized)) -> Result<(), Problem> {
        serde_json::to_writer(&mut self.out, value).map_err(|_| Problem::Size)?;
        self.check_size()
    }

    fn check_size(&self) -> Result<(), Problem> {
        if self.out.len() > self.bytes_max {
            return Err(Problem::Size);
        }
        Ok(())
    }
}
