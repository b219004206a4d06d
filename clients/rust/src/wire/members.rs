//! A map read as a struct, strictly: members by name, none unknown, and the name of the one at fault is remembered.
//!
//! Why: left alone, the deserializers also take an array, or numbers for names, where a struct is due. And the `type` of
//! a frame, which decides the struct, is no member of it. Values pass through untouched, because buffering them would
//! lose raw JSON values and the difference between bytes and text.

use std::borrow::Cow;
use std::cell::RefCell;

use serde::de::value::CowStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// The member of a frame that is being read.
#[derive(Debug, Default)]
pub(super) struct Current(RefCell<Option<String>>);

impl Current {
    /// The member whose value, or whose very name, could not be read.
    pub(super) fn into_name(self) -> Option<String> {
        self.0.into_inner()
    }
}

/// Wraps a deserializer whose next value is a map.
pub(super) struct Members<'a, D> {
    inner: D,
    /// `None`: a map inside a frame, which has no `type` to step over.
    frame: Option<&'a Current>,
}

impl<'a, D> Members<'a, D> {
    pub(super) fn of_frame(inner: D, current: &'a Current) -> Self {
        Self { inner, frame: Some(current) }
    }
}

/// For `deserialize_with`: a struct inside a frame.
pub(super) fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(inner: D) -> Result<T, D::Error> {
    Strict::deserialize(inner).map(|Strict(value)| value)
}

/// For `deserialize_with`: a struct inside a frame that may be left out.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    inner: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Strict<T>>::deserialize(inner)?.map(|Strict(value)| value))
}

/// A struct that is read by [`Members`].
pub(super) struct Strict<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(inner: D) -> Result<Self, D::Error> {
        T::deserialize(Members { inner, frame: None }).map(Strict)
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Members<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(Filtered { inner: visitor, frame: self.frame })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A visitor or the access to a map, which leaves out the `type` of a frame.
struct Filtered<'a, T> {
    inner: T,
    frame: Option<&'a Current>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Filtered<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Filtered { inner: map, frame: self.frame })
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Filtered<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(Name(name)) = self.inner.next_key()? {
            match self.frame {
                Some(_) if name == "type" => drop(self.inner.next_value::<IgnoredAny>()?),
                Some(current) => {
                    current.0.replace(Some(name.clone().into_owned()));
                    return seed.deserialize(CowStrDeserializer::new(name)).map(Some);
                }
                None => return seed.deserialize(CowStrDeserializer::new(name)).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let value = self.inner.next_value_seed(seed)?;
        if let Some(current) = self.frame {
            current.0.replace(None);
        }
        Ok(value)
    }
}
