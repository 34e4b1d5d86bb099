//! Places on earth: members of sorted sets whose scores are places ([`crate::geo`]).
//!
//! [`places`] adds places and returns what is known of them, [`searching`] has the commands that search an
//! area; [`search`] reads their requests, which are of several forms, and runs all of them.

pub(super) mod places;
pub(super) mod searching;

mod search;

use crate::geo::Position;
use crate::types::sorted_sets::score;

use super::args::is_word;
use super::error::Error;
use super::facts::{Argument, Result};

/// The units of distances, for the documentation.
const UNITS: &[Argument] = &Argument::words(["M", "KM", "FT", "MI"]);

/// Reads a longitude and a latitude.
///
/// # Errors
///
/// [`Error::NOT_A_FLOAT`], and an error for a place that no score keeps.
fn position(longitude: &[u8], latitude: &[u8]) -> Result<Position> {
    let number = |text: &[u8]| score::parse(text).ok_or(Error::NOT_A_FLOAT);
    let position = Position { longitude: number(longitude)?, latitude: number(latitude)? };
    if position.is_valid() {
        return Ok(position);
    }
    let Position { longitude, latitude } = position;
    Err(Error::text(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// Reads a unit of distances; returns how many meters it has.
///
/// # Errors
///
/// An error if there is no such unit.
fn unit_m(unit: &[u8]) -> Result<f64> {
    match unit {
        _ if is_word(unit, "m") => Ok(1.0),
        _ if is_word(unit, "km") => Ok(1000.0),
        _ if is_word(unit, "ft") => Ok(0.3048),
        _ if is_word(unit, "mi") => Ok(1609.34),
        _ => Err(Error::fixed("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// A distance as replies have it.
fn distance_text(distance: f64) -> String {
    format!("{distance:.4}")
}

/// A coordinate with 17 decimals, but for zeros at the end.
fn long_coordinate_text(degrees: f64) -> String {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
