//! Reads the envelope `{"codec":"avro","blob":"…"}` of a request: which objects are meant as envelopes, and which member is
//! wrong. This module looks at one object only; `field` decides which shapes a position accepts.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{CODEC, CodecError, FieldError, Payload};

/// JSON at an envelope position, as text or as a parsed tree.
#[derive(Clone, Copy, Debug)]
pub enum Json<'a> {
    /// The text of the request.
    Text(&'a RawValue),
    /// A parsed tree.
    Tree(&'a serde_json::Value),
}

impl<'a> From<&'a RawValue> for Json<'a> {
    fn from(text: &'a RawValue) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a serde_json::Value> for Json<'a> {
    fn from(tree: &'a serde_json::Value) -> Self {
        Self::Tree(tree)
    }
}

/// At positions that also accept plain JSON, an object with a `codec` member is meant as an envelope and must be a valid
/// one. Everything else is data.
pub(super) fn envelope_attempt(json: Json<'_>) -> Option<Envelope<'_>> {
    match Shape::of(json) {
        Shape::Envelope(envelope) if envelope.codec.is_some() => Some(envelope),
        _ => None,
    }
}

pub(super) enum Shape<'a> {
    Null,
    String(Cow<'a, str>),
    Envelope(Envelope<'a>),
    Other,
}

impl<'a> Shape<'a> {
    pub(super) fn of(json: Json<'a>) -> Self {
        match json {
            Json::Text(text) => match text.get().as_bytes().first() {
                Some(b'n') => Self::Null,
                Some(b'"') => json.string().map_or(Self::Other, Self::String),
                Some(b'{') => Envelope::of_text(text).map_or(Self::Other, Self::Envelope),
                _ => Self::Other,
            },
            Json::Tree(serde_json::Value::Null) => Self::Null,
            Json::Tree(serde_json::Value::String(text)) => Self::String(text.into()),
            Json::Tree(serde_json::Value::Object(members)) => {
                Self::Envelope(Envelope::of_tree(members))
            }
            Json::Tree(_) => Self::Other,
        }
    }
}

impl<'a> Json<'a> {
    pub(super) fn is_null(self) -> bool {
        match self {
            Self::Text(text) => text.get() == "null",
            Self::Tree(tree) => tree.is_null(),
        }
    }

    fn string(self) -> Option<Cow<'a, str>> {
        /// Borrows from the request whenever the text has no escapes.
        #[derive(Deserialize)]
        struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

        match self {
            Self::Text(text) => serde_json::from_str::<Borrowed<'_>>(text.get())
                .ok()
                .map(|text| text.0),
            Self::Tree(tree) => tree.as_str().map(Cow::from),
        }
    }
}

/// The members of an object that could be an envelope. Nothing about them is checked yet.
#[derive(Default)]
pub(super) struct Envelope<'a> {
    pub(super) codec: Option<Json<'a>>,
    blob: Option<Json<'a>>,
    /// The name of an external shape, which this server refuses by name.
    external: Option<&'static str>,
    others: bool,
}

impl<'a> Envelope<'a> {
    pub(super) fn of_text(text: &'a RawValue) -> Option<Self> {
        serde_json::from_str(text.get()).ok()
    }

    fn of_tree(members: &'a serde_json::Map<String, serde_json::Value>) -> Self {
        let mut envelope = Self::default();
        for (name, value) in members {
            envelope.add(Member::of(name), Json::Tree(value));
        }
        envelope
    }

    fn add(&mut self, member: Member, value: Json<'a>) {
        match member {
            Member::Codec => self.codec = Some(value),
            Member::Blob => self.blob = Some(value),
            Member::External(name) => self.external = Some(name),
            Member::Other => self.others = true,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.codec.is_none() && self.blob.is_none() && self.external.is_none() && !self.others
    }

    pub(super) fn payload(&self, path: &str) -> Result<Payload, FieldError> {
        let blob = self.blob_text(path)?;
        Payload::from_blob(&blob).map_err(|error| FieldError::codec(format!("{path}.blob"), &error))
    }

    pub(super) fn list(&self, path: &str) -> Result<Payload, FieldError> {
        let payload = self.payload(path)?;
        if payload.is_list() {
            Ok(payload)
        } else {
            Err(FieldError::plain(
                format!("{path}.blob"),
                "must decode to an array of arguments",
            ))
        }
    }

    /// Checks the envelope, its codec first, and returns the text of the blob.
    fn blob_text(&self, path: &str) -> Result<Cow<'a, str>, FieldError> {
        if self.codec.and_then(Json::string).as_deref() != Some(CODEC) {
            return Err(FieldError::codec(
                format!("{path}.codec"),
                &CodecError::UnsupportedCodec,
            ));
        }
        if let Some(name) = self.external {
            return Err(FieldError::codec(
                format!("{path}.{name}"),
                &CodecError::ExternalUnsupported,
            ));
        }
        if self.others {
            let error =
                CodecError::InvalidEnvelope("an envelope holds exactly the members codec and blob");
            return Err(FieldError::codec(path, &error));
        }
        self.blob.and_then(Json::string).ok_or_else(|| {
            let error = CodecError::InvalidEnvelope("the blob must be a base64 string");
            FieldError::codec(format!("{path}.blob"), &error)
        })
    }
}

#[derive(Clone, Copy)]
enum Member {
    Codec,
    Blob,
    External(&'static str),
    Other,
}

impl Member {
    fn of(name: &str) -> Self {
        match name {
            "codec" => Self::Codec,
            "blob" => Self::Blob,
            "external_storage" => Self::External("external_storage"),
            "external_payload" => Self::External("external_payload"),
            _ => Self::Other,
        }
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Member;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                Ok(Member::of(name))
            }
        }
        deserializer.deserialize_identifier(Name)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Envelope<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut envelope = Envelope::default();
                while let Some(member) = map.next_key::<Member>()? {
                    if let Member::Other = member {
                        map.next_value::<IgnoredAny>()?;
                        envelope.others = true;
                    } else {
                        envelope.add(member, Json::Text(map.next_value()?));
                    }
                }
                Ok(envelope)
            }
        }
        deserializer.deserialize_map(Members)
    }
}
