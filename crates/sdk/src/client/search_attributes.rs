//! Definitions of search attributes (control-plane.md §16).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AttributeType, Client, Error};
use crate::transport::Plane;

/// What workflows of a namespace can be found by.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct SearchAttributes {
    /// Every namespace has these.
    pub system_attributes: BTreeMap<String, AttributeType>,
    /// Those that were defined.
    pub custom_attributes: BTreeMap<String, AttributeType>,
}

impl Client {
    /// The search attributes of the namespace.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn search_attributes(&self) -> Result<SearchAttributes, Error> {
        let call = self
            .connection()
            .get(Plane::Control, &["search-attributes"]);
        Ok(call.send().await?)
    }

    /// Defines a search attribute. Once a namespace has one, only defined ones can be given to a start.
    ///
    /// # Errors
    /// The name is taken, reserved or malformed, or there are too many already.
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
    /// There is none of this name, or every run has it.
    pub async fn remove_search_attribute(&self, name: &str) -> Result<(), Error> {
        let segments = ["search-attributes", name];
        let call = self.connection().delete(Plane::Control, &segments);
        call.send_raw().await?;
        Ok(())
    }
}
