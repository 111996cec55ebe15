//! The report on a run: from what was recorded to text. Pure: no clock, no file, no network.

mod chart;
pub mod compare;
mod document;
mod facts;
pub mod html;
pub mod journal;
pub mod markdown;
mod page;
mod paragraph;
mod steps;
mod story;
pub mod trend;
mod words;
mod worst;

pub use paragraph::paragraph;

#[cfg(test)]
mod drawn_tests;
#[cfg(test)]
mod tests;
