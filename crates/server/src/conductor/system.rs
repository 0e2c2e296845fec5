//! The server itself.

use super::answer::Answer;
use super::call::Call;
use crate::gate::Refusal;

pub(super) async fn version(call: Call) -> Result<Answer, Refusal> {
    Ok(Answer::Text(call.server_version().to_owned()))
}
