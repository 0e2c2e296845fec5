//! Schemas of the schema registry, and schemas that a definition names.

use super::Object;

words! {
    /// The language of a schema.
    pub enum SchemaType {
        Json = "JSON",
        Avro = "AVRO",
        Protobuf = "PROTOBUF",
    }
}

model! {
    /// A schema for the input or output of tasks and workflows. A definition may name one without its data.
    pub struct SchemaDef [other] {
        "name" name: String;
        "version" version: i32 = 1;
        "type" schema_type: Option<SchemaType>;
        "data" data: Option<Object>;
        "externalRef" external_ref: Option<String>;
        "ownerApp" owner_app: Option<String>;
        "createdBy" created_by: Option<String>;
        "updatedBy" updated_by: Option<String>;
        "createTime" create_time: Option<i64>;
        "updateTime" update_time: Option<i64>;
    }
}
