//! The lock recipes for Valkey: one file and one line each.

use crate::recipe::Recipe;

mod ifeq;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[&ifeq::RECIPE];
