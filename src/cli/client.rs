//! `harness client`: one of our recipes behind the client protocol.

use super::args::ClientArgs;
use super::complain;
use crate::exit::Exit;

pub fn client(args: &ClientArgs) -> Exit {
    let options = match args.recipe.options(None) {
        Ok(options) => options,
        Err(sentence) => return complain(Exit::Usage, sentence),
    };
    match harness_workloads::serve_process(options) {
        Ok(()) => Exit::Holds,
        Err(error) => complain(Exit::Environment, error),
    }
}
