//! The programs of the adapters, which are part of the binary, and the languages that they are written in.

/// A pair of a name and the content of its file.
macro_rules! program {
    ($name:literal, $folder:literal) => {
        (
            $name,
            include_str!(concat!("../../workloads/adapters/", $folder, "/", $name)),
        )
    };
}

/// The programs, by their names below the adapters' folder.
pub const FILES: &[(&str, &str)] = &[
    program!("harness_client.py", "python"),
    program!("kazoo_lock.py", "python"),
    program!("aetcd_lock.py", "python"),
    program!("etcdctl_lock.py", "python"),
    program!("redis_py.py", "python"),
    program!("python_redis_lock.py", "python"),
    program!("pottery_redlock.py", "python"),
    program!("redlock_py.py", "python"),
    program!("kube_lease.py", "python"),
    program!("kube_election.py", "python"),
    program!("CuratorLock.java", "java"),
    program!("Fabric8Election.java", "java"),
    program!("HarnessClient.java", "java"),
    program!("harness_client.rs", "rust"),
    program!("kube_leader_election.rs", "rust"),
    program!("kube_coordinate.rs", "rust"),
    program!("kubert.rs", "rust"),
];

#[derive(Debug, Clone, Copy)]
pub enum AdapterLanguage {
    Python,
    Java,
    Rust,
}

impl AdapterLanguage {
    /// Returns the language of a program by the ending of its file.
    pub fn of(file: &str) -> Option<Self> {
        let mut all = [Self::Python, Self::Java, Self::Rust].into_iter();
        all.find(|language| file.ends_with(language.ending()))
    }

    /// Returns the ending of the names of its files.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Python => ".py",
            Self::Java => ".java",
            Self::Rust => ".rs",
        }
    }

    /// Returns the file of [`FILES`] with the client protocol, on which all programs build.
    pub fn library(self) -> &'static str {
        match self {
            Self::Python => "harness_client.py",
            Self::Java => "HarnessClient.java",
            Self::Rust => "harness_client.rs",
        }
    }

    /// Returns the interpreter or the compiler of a program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Java => "javac",
            Self::Rust => "cargo",
        }
    }
}
