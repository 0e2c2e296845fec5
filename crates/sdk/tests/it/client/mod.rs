//! The client, happy and unhappy.

mod http;
mod lost_answers;
mod messages;
mod reads;
mod results;
mod schedules;
mod start;
