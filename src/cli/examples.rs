//! Examples and exit codes at the end of `--help`.

pub const HARNESS: &str = "\
Examples:
  harness run --backend zk --fault partition=holder     test a lock on ZooKeeper
  harness run --backend redis --client ./my-lock        test your own lock
  harness init python                                   write a client to start from
  harness report latest                                 write its reports again
  harness explain HL001                                 what a violated property means

Exit codes: 0 all hold, 1 violated, 2 bad arguments, 3 inconclusive, 4 environment, 70 bug in harness, 130 interrupted";

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
      Use a Redis that is running: nothing of it is emptied, changed or stopped.
  harness run --backend my-store.toml --client ./my-lock --fault server-pause
      Use a store that a file describes.
  harness run --profile nightly --show-config
      Show what flags, HARNESS_* variables, the profile and harness.toml come to.

Every option but those of \"Configuration\" can also be a key of harness.toml (lease = \"3s\"), a key of \
one of its profiles ([profile.nightly]) or a variable (HARNESS_LEASE=3s). A flag overrides a variable, \
which overrides the profile, which overrides the rest of the file.";

pub const SURVEY: &str = "\
Examples:
  harness survey                                  all locks of tests/survey; goes on where it was interrupted
  harness survey kazoo==2.8.0 kazoo==2.11.0       two versions of one library
  harness survey walrus --promise partition --experiments 100

Exit codes: 0 surveyed, whatever was found, 2 bad arguments, 4 a library could not be installed or tried, 130 interrupted";

pub const INIT: &str = "\
Examples:
  harness init python             a lock on Redis that works, in my-lock/
  harness init java locks/orders  in a repository: the workflow is written to its root

Exit codes: 0 written, 2 a file is there already, 4 it could not be written";

pub const CLIENT_CHECK: &str = "\
Examples:
  harness client-check 'python3 my_lock.py' --backend redis
  harness client-check ./my-lock --backend zk --promise owner=own,token=own --json

Exit codes: 0 nothing is wrong, 1 something is, 2 bad arguments, 4 no servers";

pub const HUNT: &str = "\
Examples:
  harness hunt --backend redis --client ./my-lock --for 10m
  harness hunt --backend zk --recipe zk-polling --fault partition,reset --until end --jobs 2
  harness hunt --continue results/20261122-0930-hunt-redis-my-lock

Exit codes: 0 nothing was found, 1 a property is violated, 2 bad arguments, 3 no experiment proved anything, \
4 environment, 70 bug in harness, 130 interrupted";

pub const SHRINK: &str = "\
Examples:
  harness shrink latest
  harness shrink results/20261122-0930-hunt-redis-my-lock/runs/20261122-0931-redis-reset-5eed --confirm 20
  harness shrink latest --bisect-image redis:6.2,redis:7.0,redis:7.2
  harness shrink latest --bisect-client './lock-1.0 --fast' --bisect-client './lock-1.1 --fast'

Exit codes: 1 what is left is violated again (or the version that began it is found), 3 it is not, 2 bad arguments, 4 environment, 130 interrupted";

pub const REPLAY: &str = "\
Examples:
  harness run --runtime simulated --backend redis --recipe redis-setnx --fault kill-holder
  harness replay latest

Exit codes: 0 the same history, 3 another one, and another version of harness made the run, \
70 another one, which is a bug in harness, 2 bad arguments, 4 environment";

pub const SUITE: &str = "\
Examples:
  harness suite nightly.toml --jobs 2 --filter redis
  harness suite nightly.toml --set runtime=docker --dry-run
  harness suite nightly.toml --shard 1/3      on each of three machines, then:
  harness suite --merge DIR                   with their results in DIR";

pub const ADAPTERS: &str = "\
Examples:
  harness list clients                      which adapters there are
  harness adapters kazoo-lock               install one, below ~/.cache/harness
  harness run --backend zk --client kazoo-lock --fault partition=holder

Packages of Python are installed from PyPI into a virtual environment, in pinned versions. Java libraries and \
programs must be there; where they are not, the packages of Debian that have them are named.";

pub const CHECK: &str = "\
Examples:
  harness check latest
  harness check history.edn --model mutex --lock-key value
  zcat history.jsonl.gz | harness check -
  tail -f -n +1 history.jsonl | harness check --online -";
