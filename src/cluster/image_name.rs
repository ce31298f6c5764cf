//! Names of images: `redis:7`, `registry:5000/redis`, `redis@sha256:…`, `redis:7@sha256:…`, or the id `sha256:…` of a local one.
//!
//! A tag may mean another image tomorrow, a digest may not: <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests>.

/// Returns the name of an image as testcontainers takes it, which joins its two parts by a colon again.
pub fn in_two_parts(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some(parts) => parts,
        // a digest has a colon, so there is neither tag nor digest
        None => (image, "latest"),
    }
}

/// Returns the tag, if there is one: a digest means nothing to a reader.
pub fn tag(image: &str) -> Option<&str> {
    let (named, _) = image.split_once('@').unwrap_or((image, ""));
    let (name, tag) = named.rsplit_once(':')?;
    // the colon of a registry's port, and that of an id
    (!tag.contains('/') && name != "sha256").then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_joined_again_and_has_the_tag_that_a_reader_knows() {
        let digest = "sha256:7e3a0c9d";
        for (image, known) in [
            ("redis:7".to_owned(), Some("7")),
            (format!("redis@{digest}"), None),
            (format!("redis:7@{digest}"), Some("7")),
            (format!("registry:5000/redis:7@{digest}"), Some("7")),
            ("registry:5000/redis".to_owned(), None),
            (digest.to_owned(), None),
        ] {
            let (name, rest) = in_two_parts(&image);
            assert_eq!((format!("{name}:{rest}"), tag(&image)), (image.clone(), known));
        }
        assert_eq!((in_two_parts("redis"), tag("redis")), (("redis", "latest"), None));
    }
}
