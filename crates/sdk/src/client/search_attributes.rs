//! Definitions of search attributes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AttributeType, Client, Error};
use crate::transport::Plane;

/// The search attributes of a namespace.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct SearchAttributes {
    /// The attributes that every namespace has.
    pub system_attributes: BTreeMap<String, AttributeType>,
    /// The defined attributes.
    pub custom_attributes: BTreeMap<String, AttributeType>,
}

impl Client {
    /// Returns the search attributes of the namespace.
    ///
    /// # Errors
    /// [`Error::Request`] if the namespace does not exist, or if the server cannot be reached.
    pub async fn search_attributes(&self) -> Result<SearchAttributes, Error> {
        let call = self
            .connection()
            .get(Plane::Control, &["search-attributes"]);
        Ok(call.send().await?)
    }

    /// Defines a search attribute. Once a namespace has a defined attribute, a start may use defined attributes only.
    ///
    /// # Errors
    /// [`Error::Request`] if the name exists, is reserved or is not valid, the namespace has its maximum of attributes, or the
    /// server cannot be reached.
    pub async fn define_search_attribute(
        &self,
        name: &str,
        attribute_type: AttributeType,
    ) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            name: &'a str,
            r#type: AttributeType,
        }
        let body = Body {
            name,
            r#type: attribute_type,
        };
        let call = self
            .connection()
            .post(Plane::Control, &["search-attributes"]);
        call.json(&body).send_raw().await?;
        Ok(())
    }

    /// Removes the definition of a search attribute.
    ///
    /// # Errors
    /// [`Error::Request`] if the attribute does not exist or is a system attribute, or if the server cannot be reached.
    pub async fn remove_search_attribute(&self, name: &str) -> Result<(), Error> {
        let segments = ["search-attributes", name];
        let call = self.connection().delete(Plane::Control, &segments);
        call.send_raw().await?;
        Ok(())
    }
}
