//! Examples and exit codes at the end of `--help`.

pub const HARNESS: &str = "\
Examples:
  harness run --backend zk --fault partition=holder     test a lock on ZooKeeper
  harness run --backend redis --client ./my-lock        test your own lock
  harness init python                                   write a client template
  harness report latest                                 write its reports again
  harness explain HL001                                 explain a violated property

Exit codes: 0 all hold, 1 violated, 2 bad arguments, 3 inconclusive, 4 environment, 5 another history (replay), 70 bug in harness, 130 interrupted";

pub const RUN_SHORT: &str = "See --help for details and examples.";

pub const RUN: &str = "\
Examples:
  harness run --backend zk --fault partition=holder,latency --time 2m
      Cut off the holder and delay messages, side by side, for two minutes.
  harness run --backend redis --recipe redis-set-px-lua --fault pause-holder --repeat 10 --until fail
      Look for a violation with up to ten seeds.
  harness run --backend etcd --client './my-lock --verbose' --clients 20 --locks 4
      Test your own lock with 20 clients on 4 locks.
  harness run --backend redis --servers 10.0.0.5:6379 --fault partition
      Use a running Redis. The run does not empty, change or stop it.
  harness run --backend my-store.toml --client ./my-lock --fault server-pause
      Use a store described in a file.
  harness run --profile nightly --show-config
      Show the options that flags, HARNESS_* variables, the profile and harness.toml set.

Every option except those under \"Configuration\" can also be set in harness.toml (lease = \"3s\"), in one of its \
profiles ([profile.nightly]) or in a variable (HARNESS_LEASE=3s). Flags override variables, variables override \
the profile, and the profile overrides the rest of the file.";

pub const SURVEY: &str = "\
Examples:
  harness survey                                  all locks of tests/survey; makes the hunts that their records lack
  harness survey kazoo==2.8.0 kazoo==2.11.0       two versions of one library
  harness survey walrus --promise partition --experiments 100
  harness survey --newest --shrink                the newest versions; each find is cut down and written as a test
  harness survey --no-hunts --page survey.md      the page from the records alone

Exit codes: 0 surveyed, with or without violations, 2 bad arguments, 4 a library could not be installed or tried, 130 interrupted";

pub const INIT: &str = "\
Examples:
  harness init python             a lock on Redis that works, in my-lock/
  harness init java locks/orders  in a repository: the workflow is written to its root

Exit codes: 0 written, 2 a file exists already, 4 a file could not be written";

pub const CLIENT_CHECK: &str = "\
Examples:
  harness client-check 'python3 my_lock.py' --backend redis
  harness client-check ./my-lock --backend zk --promise owner=own,token=own --json

Exit codes: 0 nothing wrong, 1 something wrong, 2 bad arguments, 4 no servers";

pub const HUNT: &str = "\
Examples:
  harness hunt --backend redis --client ./my-lock --for 10m
  harness hunt --backend zk --recipe zk-polling --fault partition,reset --until end --jobs 2
  harness hunt --continue results/20261122-0930-hunt-redis-my-lock

Exit codes: 0 no violation, 1 a property is violated, 2 bad arguments, 3 no experiment proved anything or \
--exhaustive has not tried every placement, 4 environment, 70 bug in harness, 130 interrupted";

pub const SHRINK: &str = "\
Examples:
  harness shrink latest
  harness shrink results/20261122-0930-hunt-redis-my-lock/runs/20261122-0931-redis-reset-5eed --confirm 20
  harness shrink latest --bisect-image redis:6.2,redis:7.0,redis:7.2
  harness shrink latest --bisect-client './lock-1.0 --fast' --bisect-client './lock-1.1 --fast'

Exit codes: 1 the result shows the violation (or the version that introduced it is found), 3 it does not, 2 bad arguments, 4 environment, 130 interrupted";

pub const REPLAY: &str = "\
Examples:
  harness run --runtime simulated --backend redis --recipe redis-setnx --fault kill-holder
  harness replay latest

Exit codes: 0 the same history, 5 a different history of real programs, 3 a different history of models that another \
version of harness made or of a run that was not completed, 70 a different history of models that this version made (a bug in \
harness), 2 bad arguments, 4 environment";

pub const SUITE: &str = "\
Examples:
  harness suite nightly.toml --jobs 2 --filter redis
  harness suite nightly.toml --set runtime=docker --dry-run
  harness suite nightly.toml --shard 1/3      on each of three machines, then:
  harness suite --merge DIR                   with their results in DIR";

pub const ADAPTERS: &str = "\
Examples:
  harness list clients                      list all adapters
  harness adapters kazoo-lock               install one, below ~/.cache/harness
  harness adapters --backend redis          install those for Redis and Valkey
  harness run --backend zk --client kazoo-lock --fault partition=holder

Python packages are installed from PyPI into a virtual environment, and crates are built with Cargo, in pinned versions. \
`fabric8` and most adapters of Curator share an archive of 450 MB with their Java libraries. Other Java libraries and programs \
must be installed already; an error names the Debian packages of those that are missing. One adapter that cannot be \
installed does not keep the others from it; the exit code is then 4.";

pub const WATCH_LEASE: &str = "\
Examples:
  harness watch-lease --lease default/my-operator --log a=/var/log/a.log --log b=/var/log/b.log \\
    --leading 'became leader' --stopped 'lost lease|stopped leading' --for 10m
  harness watch-lease --lease default/my-operator --log 'a=command: kubectl logs -f --timestamps my-operator-0' \\
    --log 'b=command: kubectl logs -f --timestamps my-operator-1' --leading '(?i)successfully acquired lease' \\
    --stopped '(?i)failed to renew lease' --campaign '(?i)attempting to acquire leader lease'

Two candidates that led at once are a violation (HL001) only where the lines prove it: docs/kubernetes-leases.md.";

pub const CHECK: &str = "\
Examples:
  harness check latest
  harness check history.edn --model mutex --lock-key value
  zcat history.jsonl.gz | harness check -
  tail -f -n +1 history.jsonl | harness check --online -";
