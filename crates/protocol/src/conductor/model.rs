//! Two macros: [`model!`] makes a model from a table of its members, [`words!`] an enumeration of upper-case words.
//!
//! A row of a model is the wire name, the field, its type, and its default if that is not the default of the type. So the table in
//! the source is the table of the wire, and reading, writing and defaults cannot disagree.

/// Makes a struct with `Default`, `Member`, `Serialize` and `Deserialize`. With `other` in brackets it keeps unknown members. With
/// a function after `=>`, that function may change the members before they are read, and refuse the object.
macro_rules! model {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $([$other:ident])? $(=> $prepare:path)? {
            $($(#[$field_meta:meta])* $wire:literal $field:ident: $type:ty $(= $default:expr)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $(
                #[doc = concat!("The member `", $wire, "`.")]
                $(#[$field_meta])*
                pub $field: $type,
            )*
            $(
                /// Members that this model does not know, written back as they came.
                pub $other: $crate::conductor::Object,
            )?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: model!(@default $($default)?),)*
                    $($other: $crate::conductor::Object::new(),)?
                }
            }
        }

        impl $crate::conductor::member::Member for $name {
            fn read(
                value: serde_json::Value,
                reader: &mut $crate::conductor::member::Reader,
            ) -> Option<Self> {
                let mut object = reader.object(value)?;
                $($prepare(&mut object, reader)?;)?
                Some(Self {
                    $(
                        $field: reader.member(&mut object, $wire, || model!(@default $($default)?)),
                    )*
                    $($other: {
                        object.retain(|_, value| !value.is_null());
                        object
                    },)?
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $(
                    if !$crate::conductor::member::Member::is_absent(&self.$field) {
                        map.serialize_entry($wire, &self.$field)?;
                    }
                )*
                $(
                    for (name, value) in &self.$other {
                        map.serialize_entry(name, value)?;
                    }
                )?
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = serde_json::Value::deserialize(deserializer)?;
                $crate::conductor::read(value).map_err(|wrong| {
                    serde::de::Error::custom($crate::conductor::ParseError::Members(wrong))
                })
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}

/// Makes an enumeration whose values are words on the wire. Reading an unknown word gives an error that lists the known ones.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$word_meta:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(
                #[doc = concat!("`", $word, "`.")]
                $(#[$word_meta])*
                $variant,
            )*
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the word of this value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::conductor::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err($crate::conductor::UnknownWord {
                        word: text.chars().take(100).collect(),
                        allowed: &[$($word,)*],
                    }),
                }
            }
        }

        impl $crate::conductor::member::Member for $name {
            fn read(
                value: serde_json::Value,
                reader: &mut $crate::conductor::member::Reader,
            ) -> Option<Self> {
                let found = match &value {
                    serde_json::Value::String(text) => text.parse().ok(),
                    _ => None,
                };
                if found.is_none() {
                    let allowed = [$($word,)*].join(", ");
                    reader.wrong(format!("must be one of {allowed}"), Some(&value));
                }
                found
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
