//! apache-avro as an independent judge: what we write it reads, what it writes we read.

use std::collections::HashMap;

use apache_avro::types::Value as Avro;
use apache_avro::{Schema, from_avro_datum, to_avro_datum};

use super::super::*;

pub(super) fn schema() -> Schema {
    Schema::parse_str(include_str!(
        "../../../contract/durable_workflow.protocol.Value.v1.avsc"
    ))
    .unwrap()
}

fn to_avro(value: &Value) -> Avro {
    let case = |field: &str, inner: Avro| Avro::Record(vec![(field.to_owned(), inner)]);
    let inner = match value {
        Value::Null => Avro::Null,
        Value::Bool(value) => case("boolean", Avro::Boolean(*value)),
        Value::Long(value) => case("long", Avro::Long(*value)),
        Value::Double(value) => case("double", Avro::Double(*value)),
        Value::Bytes(bytes) => case("bytes", Avro::Bytes(bytes.clone())),
        Value::String(text) => case("string", Avro::String(text.clone())),
        Value::Array(items) => case("items", Avro::Array(items.iter().map(to_avro).collect())),
        Value::Map(map) => {
            let entries: HashMap<_, _> = map
                .iter()
                .map(|(key, value)| (key.to_owned(), to_avro(value)))
                .collect();
            case("entries", Avro::Map(entries))
        }
    };
    case("value", Avro::Union(value.kind() as u32, Box::new(inner)))
}

fn from_avro(avro: Avro) -> Value {
    let field = |record: Avro| match record {
        Avro::Record(mut fields) => fields.remove(0).1,
        other => other,
    };
    let Avro::Union(_, case) = field(avro) else {
        panic!("a value is a union")
    };
    match field(*case) {
        Avro::Null => Value::Null,
        Avro::Boolean(value) => Value::Bool(value),
        Avro::Long(value) => Value::Long(value),
        Avro::Double(value) => Value::Double(value),
        Avro::Bytes(bytes) => Value::Bytes(bytes),
        Avro::String(text) => Value::String(text),
        Avro::Array(items) => Value::Array(items.into_iter().map(from_avro).collect()),
        Avro::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| (key, from_avro(value)))
                .collect(),
        ),
        other => panic!("no case of the schema: {other:?}"),
    }
}

pub(super) fn check(schema: &Schema, value: &Value) {
    let ours = encode(value).unwrap();
    let mut datum = &ours[FRAME_PREFIX.len()..];
    assert_eq!(
        from_avro(from_avro_datum(schema, &mut datum, None).unwrap()),
        *value
    );
    assert!(datum.is_empty());

    let theirs = [
        &FRAME_PREFIX[..],
        &to_avro_datum(schema, to_avro(value)).unwrap(),
    ]
    .concat();
    assert_eq!(decode(&theirs).as_ref(), Ok(value));
}

#[test]
fn both_implementations_read_each_other() {
    let schema = schema();
    for json in [
        "null",
        "true",
        "-1",
        "7.0",
        "-0",
        "9223372036854775807",
        "\"héllo\"",
        "[]",
        "{}",
        r#"{"a":{"b":[1,2.5,null,{"c":[]}]}}"#,
    ] {
        check(&schema, &from_json(json).unwrap());
    }
    check(&schema, &Value::Bytes(vec![0, 0xff]));
}
