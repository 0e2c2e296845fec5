//! Declared handlers: a worker may declare the arguments of its handlers. A message that cannot match is then refused on arrival
//! instead of failing the workflow later.
//!
//! Only arguments that are surely wrong are refused: a type that this module does not know, or that the worker left out, accepts
//! everything.

use longhaul_protocol::Payload;
use longhaul_protocol::payload::Value as Argument;
use longhaul_protocol::workflow_command::FieldErrors;
use serde_json::Value;

/// What a workflow declares about one kind of message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// Empty when nothing is declared.
    pub names: Vec<String>,
    /// `{name, parameters: […]}` for the handlers that declare parameters.
    pub contracts: Vec<Value>,
}

impl Declared {
    /// Returns whether a message of this name has a handler, as far as is known.
    pub fn knows(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|declared| declared == name)
    }

    /// Returns the errors in the arguments, by parameter.
    pub fn check(&self, name: &str, arguments: &Payload) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let contract = self
            .contracts
            .iter()
            .find(|contract| contract["name"] == name);
        let parameters = contract.and_then(|contract| contract["parameters"].as_array());
        let (Some(parameters), Ok(Argument::Array(arguments))) = (parameters, arguments.decode())
        else {
            return errors;
        };
        let mut refuse = |field: &str, message: String| {
            errors.entry(field.to_owned()).or_default().push(message)
        };
        for (position, parameter) in parameters.iter().enumerate() {
            let field = parameter["name"].as_str().unwrap_or("argument");
            let variadic = parameter["variadic"] == true;
            let given = if variadic {
                arguments.get(position..)
            } else {
                arguments.get(position..=position)
            };
            match given {
                Some(given) => {
                    for argument in given.iter().filter(|argument| !fits(argument, parameter)) {
                        refuse(
                            field,
                            format!(
                                "must be {}, not {}",
                                parameter["type"].as_str().unwrap_or("mixed"),
                                kind_of(argument)
                            ),
                        );
                    }
                }
                None if parameter["required"] == true => refuse(field, "is required".to_owned()),
                None => {}
            }
        }
        let takes_more = parameters
            .last()
            .is_some_and(|last| last["variadic"] == true);
        if arguments.len() > parameters.len() && !takes_more {
            refuse(
                "arguments",
                format!(
                    "takes {} argument(s), {} were given",
                    parameters.len(),
                    arguments.len()
                ),
            );
        }
        errors
    }
}

/// Returns whether the argument has one of the declared types (`a|b`).
fn fits(argument: &Argument, parameter: &Value) -> bool {
    let Some(types) = parameter["type"].as_str() else {
        return true;
    };
    if matches!(argument, Argument::Null) {
        return parameter["allows_null"] != false
            || types
                .split('|')
                .any(|name| name == "null" || name == "mixed");
    }
    types.split('|').any(|name| match name {
        "bool" => matches!(argument, Argument::Bool(_)),
        "int" => matches!(argument, Argument::Long(_)),
        // A whole number is a valid float in every language that declares one.
        "float" => matches!(argument, Argument::Long(_) | Argument::Double(_)),
        "string" => matches!(argument, Argument::String(_) | Argument::Bytes(_)),
        "array" => matches!(argument, Argument::Array(_) | Argument::Map(_)),
        "null" => false,
        _ => true,
    })
}

fn kind_of(argument: &Argument) -> &'static str {
    match argument {
        Argument::Null => "null",
        Argument::Bool(_) => "bool",
        Argument::Long(_) => "int",
        Argument::Double(_) => "float",
        Argument::Bytes(_) => "bytes",
        Argument::String(_) => "string",
        Argument::Array(_) => "array",
        Argument::Map(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_protocol::payload::from_json;
    use serde_json::json;

    fn check(parameters: Value, arguments: Value) -> Vec<String> {
        let declared = Declared {
            names: vec!["go".into()],
            contracts: vec![json!({"name": "go", "parameters": parameters})],
        };
        let arguments = Payload::encode(&from_json(&arguments.to_string()).unwrap()).unwrap();
        declared.check("go", &arguments).into_keys().collect()
    }

    fn required(name: &str, kind: &str) -> Value {
        json!({"name": name, "type": kind, "required": true, "variadic": false, "allows_null": false})
    }

    fn optional(name: &str, kind: &str) -> Value {
        json!({"name": name, "type": kind, "required": false, "variadic": false, "allows_null": false})
    }

    #[test]
    fn matching_arguments_are_accepted() {
        let two = json!([required("who", "string"), optional("often", "int|float")]);
        assert!(check(two.clone(), json!(["x"])).is_empty());
        assert!(check(two.clone(), json!(["x", 3])).is_empty());
        assert!(check(two, json!(["x", 3.5])).is_empty());
        let rest = json!([{"name": "rest", "variadic": true, "required": false, "type": "int", "allows_null": false}]);
        assert!(check(rest, json!([1, 2, 3])).is_empty());
        assert!(
            check(
                json!([{"name": "any", "type": null, "required": true}]),
                json!([null])
            )
            .is_empty()
        );
    }

    #[test]
    fn errors_name_the_parameter_that_does_not_match() {
        let two = json!([required("who", "string"), optional("often", "int")]);
        assert_eq!(check(two.clone(), json!([])), ["who"]);
        assert_eq!(check(two.clone(), json!([7])), ["who"]);
        assert_eq!(check(two.clone(), json!([null])), ["who"]);
        assert_eq!(check(two.clone(), json!(["x", 1.5])), ["often"]);
        assert_eq!(check(two, json!(["x", 1, 2])), ["arguments"]);
    }

    #[test]
    fn undeclared_messages_and_parameters_are_accepted() {
        assert!(Declared::default().knows("anything"));
        assert!(
            Declared::default()
                .check("anything", &Payload::empty_list())
                .is_empty()
        );
    }
}
