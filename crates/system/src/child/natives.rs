//! Functions of the script engine that the conversion of results needs, taken before the script can replace them.

use rquickjs::function::This;
use rquickjs::{Ctx, Error, Function, Object, String as Text};

/// The engine's own functions in one context.
pub(super) struct Natives<'js> {
    pub(super) map: Object<'js>,
    pub(super) map_for_each: Function<'js>,
    pub(super) set: Object<'js>,
    pub(super) set_for_each: Function<'js>,
    pub(super) date: Object<'js>,
    pub(super) date_text: Function<'js>,
    well_formed: Function<'js>,
}

impl<'js> Natives<'js> {
    pub(super) fn take(ctx: &Ctx<'js>) -> Result<Self, Error> {
        let globals = ctx.globals();
        let map: Object = globals.get("Map")?;
        let set: Object = globals.get("Set")?;
        let date: Object = globals.get("Date")?;
        let string: Object = globals.get("String")?;
        Ok(Self {
            map_for_each: prototype(&map)?.get("forEach")?,
            map,
            set_for_each: prototype(&set)?.get("forEach")?,
            set,
            date_text: prototype(&date)?.get("toISOString")?,
            date,
            well_formed: prototype(&string)?.get("toWellFormed")?,
        })
    }

    /// Returns the text of a string. Half of a surrogate pair has no UTF-8 form and becomes U+FFFD.
    pub(super) fn text(&self, string: &Text<'js>) -> Result<String, Error> {
        match string.to_string() {
            Err(Error::Utf8(_)) => {
                let text: Text = self.well_formed.call((This(string.clone()),))?;
                text.to_string()
            }
            other => other,
        }
    }
}

fn prototype<'js>(constructor: &Object<'js>) -> Result<Object<'js>, Error> {
    constructor.get("prototype")
}
