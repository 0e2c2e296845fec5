//! What a result of a script or of another evaluator means: the truth of a condition, the case of a SWITCH, a JSON value.

use longhaul_protocol::conductor::Object;
use serde_json::{Number, Value};

/// How an expression of a SWITCH or an INLINE task is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// The expression is the name of an input member.
    ValueParam,
    /// The expression is a script. `javascript` and `graaljs` are the same.
    JavaScript,
    /// Known by name, not supported.
    Python,
    /// Any other name.
    Unknown(String),
}

impl Evaluator {
    /// Returns the evaluator with this name.
    pub fn of(name: &str) -> Self {
        match name {
            "value-param" => Self::ValueParam,
            "javascript" | "graaljs" => Self::JavaScript,
            "python" => Self::Python,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

/// Returns whether the result of a condition is true: a boolean as it is, a number above zero. Text is never true.
pub fn is_true(result: &Value) -> bool {
    match result {
        Value::Bool(result) => *result,
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 0.0),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Returns the case that a result selects: text as it is, `null`, and other values as compact JSON.
pub fn case_text(result: &Value) -> String {
    match result {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            result.to_string()
        }
    }
}

/// Returns the result of the evaluator `value-param`: the named member of the input, or null.
pub fn value_param<'a>(expression: &str, input: &'a Object) -> &'a Value {
    input.get(expression).unwrap_or(&Value::Null)
}

/// Turns floating-point numbers without a fraction into integers, as script engines have only one kind of number. The recursion is
/// as deep as the value, which was read from JSON.
pub fn with_integers(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(integer(&number).unwrap_or(number)),
        Value::Array(list) => Value::Array(list.into_iter().map(with_integers).collect()),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(name, value)| (name, with_integers(value)))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

fn integer(number: &Number) -> Option<Number> {
    // Above this a floating-point number does not identify an integer.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    (float.fract() == 0.0 && float.abs() <= EXACT_MAX).then(|| Number::from(float as i64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn truth_is_boolean_or_a_number_above_zero() {
        for value in [json!(true), json!(1), json!(0.5)] {
            assert!(is_true(&value), "{value}");
        }
        for value in [
            json!(false),
            json!(0),
            json!(-1),
            json!("true"),
            json!(null),
            json!([1]),
            json!({"a": 1}),
        ] {
            assert!(!is_true(&value), "{value}");
        }
    }

    #[test]
    fn a_case_is_the_text_of_the_result() {
        for (value, text) in [
            (json!(5), "5"),
            (json!("5"), "5"),
            (json!(true), "true"),
            (json!(null), "null"),
            (json!(1.5), "1.5"),
            (json!({"a": [1]}), r#"{"a":[1]}"#),
        ] {
            assert_eq!(case_text(&value), text);
        }
        let input = json!({"a": 1});
        assert_eq!(value_param("a", input.as_object().unwrap()), &json!(1));
        assert_eq!(value_param("b", input.as_object().unwrap()), &json!(null));
    }

    #[test]
    fn numbers_without_a_fraction_become_integers() {
        let value = with_integers(json!({"a": [3.0, 2.5, 1e300, -0.0, 7]}));
        assert_eq!(
            value.to_string(),
            r#"{"a":[3,2.5,1e300,0,7]}"#.replace("1e300", "1e+300")
        );
    }

    #[test]
    fn evaluators_are_known_by_name() {
        assert_eq!(Evaluator::of("graaljs"), Evaluator::JavaScript);
        assert_eq!(Evaluator::of("js"), Evaluator::Unknown("js".to_owned()));
    }
}
