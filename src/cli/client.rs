//! `harness client`: a recipe of this project over the client protocol.

use super::Failure;
use super::args::RecipeArgs;
use crate::exit::Exit;

pub fn client(recipe: &RecipeArgs) -> Result<Exit, Failure> {
    let options = recipe.options(None).map_err(Failure::usage)?;
    harness_workloads::serve_process(options).map_err(Failure::environment)?;
    Ok(Exit::Holds)
}
