//! The script engine: one runtime per evaluation.
//!
//! A runtime of its own costs no more than a context of its own inside a shared runtime, and it shares nothing: no job queue, no symbols, no
//! memory. The next runtime is built while the process waits, so a request does not pay for it.

use std::io;
use std::rc::Rc;

use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::{Context, Ctx, Error, Runtime, Value};

use super::budget::Budget;
use super::convert::{self, Problem};
use super::natives::Natives;
use super::sandbox::Meter;
use super::thrown::{self, Thrown};
use super::{jq, schema};
use crate::script::frame::{Outcome, Request};
use crate::script::{Limit, Limits, frame};

/// The name of the script in stack traces.
pub(super) const SCRIPT_NAME: &str = "script";

/// What a script may use: the language, and nothing of the outside. There is no module loader, no `console`, `print` or `load`.
type Language = (
    intrinsic::Date,
    // Without it the engine cannot parse any text.
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
    intrinsic::WeakRef,
);

/// Serves requests until the input ends or the process has grown too much.
pub(super) fn serve(limits: &Limits, meter: Meter) -> io::Result<()> {
    let server = Server {
        limits,
        budget: Rc::new(Budget::new(limits)),
        // A process that once held half of the memory limit ends after its answer. So memory returns to the system, and the peak shows
        // whether this very evaluation ran out of memory.
        peak_max: meter.peak()?.saturating_add(limits.memory_bytes / 2),
        meter,
    };
    frame::write(&mut io::stdout().lock(), frame::READY)?;
    while server.serve_one()? {}
    Ok(())
}

struct Server<'a> {
    limits: &'a Limits,
    budget: Rc<Budget>,
    peak_max: u64,
    meter: Meter,
}

impl Server<'_> {
    /// Serves one request in a fresh engine. Returns whether the process serves another one.
    fn serve_one(&self) -> io::Result<bool> {
        let runtime = Runtime::new().map_err(engine_error)?;
        runtime.set_memory_limit(usize::try_from(self.limits.memory_bytes).unwrap_or(usize::MAX));
        runtime.set_max_stack_size(self.limits.stack_bytes);
        let budget = Rc::clone(&self.budget);
        runtime.set_interrupt_handler(Some(Box::new(move || budget.is_spent())));
        let context = Context::custom::<Language>(&runtime).map_err(engine_error)?;
        context.with(|ctx| {
            let natives = Natives::take(&ctx).map_err(engine_error)?;
            let evaluation = Evaluation {
                ctx: &ctx,
                natives: &natives,
                server: self,
            };
            loop {
                let mut input = io::stdin().lock();
                let bytes = match frame::read(&mut input, self.limits.request_bytes()) {
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                    Err(error) => return Err(error),
                };
                let request: Request = serde_json::from_slice(&bytes)?;
                // These do not touch the script engine, which stays fresh for the next script.
                let is_fresh = matches!(request, Request::Jq { .. } | Request::Compare { .. });
                self.budget.start();
                let outcome = evaluation.run(request);
                self.budget.stop();
                self.answer(outcome)?;
                if !is_fresh {
                    return Ok(true);
                }
            }
        })
    }

    /// Sends an answer, and ends the process if it has grown too much.
    fn answer(&self, outcome: Outcome<Vec<u8>>) -> io::Result<()> {
        let retires = self.has_grown();
        frame::write(&mut io::stdout().lock(), &reply(retires, outcome)?)?;
        if retires {
            // Freeing a large heap piece by piece would take longer than a new process.
            std::process::exit(0);
        }
        Ok(())
    }

    fn has_grown(&self) -> bool {
        self.meter.peak().is_ok_and(|peak| peak > self.peak_max)
    }
}

/// Returns the content of an answer. The value is JSON already.
fn reply(retires: bool, outcome: Outcome<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut bytes = format!("{{\"retires\":{retires},\"outcome\":").into_bytes();
    match outcome {
        Outcome::Value(json) => {
            bytes.extend_from_slice(b"{\"Value\":");
            bytes.extend_from_slice(&json);
            bytes.push(b'}');
        }
        Outcome::Thrown { message, line } => {
            serde_json::to_writer(&mut bytes, &Outcome::<()>::Thrown { message, line })?;
        }
        Outcome::Limit(limit) => serde_json::to_writer(&mut bytes, &Outcome::<()>::Limit(limit))?,
    }
    bytes.push(b'}');
    Ok(bytes)
}

fn engine_error(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// One evaluation in its own engine.
struct Evaluation<'a, 'js> {
    ctx: &'a Ctx<'js>,
    natives: &'a Natives<'js>,
    server: &'a Server<'a>,
}

impl<'js> Evaluation<'_, 'js> {
    fn run(&self, request: Request<'_>) -> Outcome<Vec<u8>> {
        let result = match request {
            Request::Evaluate { script, input } => self.evaluate(&script, input.get()),
            Request::Jq { program, input } => {
                return jq::run(
                    &program,
                    input.get(),
                    self.server.limits,
                    &self.server.meter,
                );
            }
            Request::Compare { schema, value } => {
                let (limits, meter) = (self.server.limits, &self.server.meter);
                return schema::run(schema.get(), value.get(), limits, meter);
            }
            Request::CheckSyntax { script } => self.check_syntax(&script),
        };
        // A script can catch what it runs out of, but not the interrupt; and nothing that came after it counts.
        if let Some(limit) = self.server.budget.reached() {
            return Outcome::Limit(limit);
        }
        result.unwrap_or_else(|problem| self.explain(problem))
    }

    fn evaluate(&self, script: &str, input: &str) -> Result<Outcome<Vec<u8>>, Problem> {
        // A parsed `__proto__` is an ordinary member.
        let input = self.ctx.json_parse(input)?;
        self.ctx.globals().set("$", input)?;
        let mut value: Value = self.ctx.eval_with_options(script, options(false))?;
        self.run_jobs();
        if let Some(promise) = value.as_promise() {
            match promise.result::<Value>() {
                Some(result) => value = result?,
                None => {
                    return Ok(thrown_text(
                        "the script returned a promise that never settles",
                    ));
                }
            }
        }
        let json = convert::to_json(self.natives, &value, self.server.limits.result_bytes)?;
        Ok(Outcome::Value(json))
    }

    /// Runs what promises scheduled. A rejected promise that is not the result is ignored.
    fn run_jobs(&self) {
        while !self.server.budget.is_spent() && self.ctx.execute_pending_job() {}
    }

    /// The engine has no call that only parses. It parses the whole text before it runs the first statement, and that one throws.
    fn check_syntax(&self, script: &str) -> Result<Outcome<Vec<u8>>, Problem> {
        const THROW: &str = "throw 0;";
        let guarded = format!("{THROW}{script}");
        match self
            .ctx
            .eval_with_options::<Value, _>(guarded, options(is_strict(script)))
        {
            Ok(_) => Ok(Outcome::Value(b"null".to_vec())),
            Err(Error::Exception) => {
                let thrown = self.ctx.catch();
                if thrown.as_int() == Some(0) {
                    return Ok(Outcome::Value(b"null".to_vec()));
                }
                self.ctx.throw(thrown);
                Err(Problem::Engine)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn explain(&self, problem: Problem) -> Outcome<Vec<u8>> {
        let limits = self.server.limits;
        match problem {
            Problem::Cycle => thrown_text("the result contains itself"),
            Problem::Depth => thrown_text("the result is nested too deeply"),
            Problem::Size => Outcome::Limit(Limit::Result(limits.result_bytes)),
            Problem::Engine => {
                let thrown = thrown::take(self.ctx, self.natives);
                // Code of the script that ran for the description has the same limits.
                if let Some(limit) = self.server.budget.reached() {
                    return Outcome::Limit(limit);
                }
                match thrown {
                    Thrown::Memory => Outcome::Limit(Limit::Memory(limits.memory_bytes)),
                    Thrown::Null if self.server.has_grown() => {
                        Outcome::Limit(Limit::Memory(limits.memory_bytes))
                    }
                    Thrown::Stack => Outcome::Limit(Limit::Stack(limits.stack_bytes)),
                    other => other.into_outcome(),
                }
            }
        }
    }
}

fn thrown_text(message: &str) -> Outcome<Vec<u8>> {
    Outcome::Thrown {
        message: message.to_owned(),
        line: None,
    }
}

fn options(strict: bool) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = strict;
    options.filename = Some(SCRIPT_NAME.to_owned());
    options
}

/// Returns whether a script begins with the directive of strict mode. A statement before the directive would switch it off.
fn is_strict(script: &str) -> bool {
    let mut rest = script.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("//") {
            comment.split_once('\n').map(|(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map(|(_, after)| after)
        } else {
            return rest.starts_with("\"use strict\"") || rest.starts_with("'use strict'");
        };
        let Some(after) = after else {
            return false;
        };
        rest = after.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::is_strict;

    #[test]
    fn the_directive_of_strict_mode_is_found_behind_comments() {
        assert!(is_strict(" \n'use strict'; 1"));
        assert!(is_strict("// a\n/* b\n */ \"use strict\"\n1"));
        assert!(!is_strict("1; 'use strict'"));
        assert!(!is_strict("// 'use strict'"));
        assert!(!is_strict("/* "));
    }
}
