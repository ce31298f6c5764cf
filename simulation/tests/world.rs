//! Worlds, seen from outside: order, time, processes, and the end of a world.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use harness_simulation::{Looping, World};
use rand::Rng;
use tokio::sync::{mpsc, watch};

use super::resident;

const MS: Duration = Duration::from_millis(1);

fn panic_text(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it must panic");
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

/// Returns the order of sixty waiters of one `watch`, which tokio wakes in an order drawn from the thread's own random numbers.
fn order_of_watchers(seed: u64) -> Vec<u32> {
    World::run(seed, async |world: World| {
        let (sender, receiver) = watch::channel(0);
        let woken = Rc::new(RefCell::new(Vec::new()));
        for number in 0..60 {
            let (mut receiver, woken) = (receiver.clone(), woken.clone());
            let wait = async move {
                while receiver.changed().await.is_ok() {
                    woken.borrow_mut().push(number);
                }
            };
            world.spawn(wait).detach();
        }
        for value in 1..5 {
            world.sleep(MS).await;
            sender.send(value).unwrap();
        }
        world.sleep(MS).await;
        woken.take()
    })
}

#[test]
fn tasks_are_polled_in_their_own_order_and_not_in_that_in_which_they_were_woken() {
    let expected: Vec<u32> = (0..4).flat_map(|_| 0..60).collect();
    for seed in 0..20 {
        assert_eq!(order_of_watchers(seed), expected, "seed {seed}");
    }
}

/// Runs a world of a second in which a process does this again and again.
fn doing<F: Future<Output = ()> + 'static>(act: impl Fn(World) -> F + 'static) -> Result<(), Looping> {
    World::try_run(1, async |world: World| {
        let acting = async move {
            loop {
                act(world).await;
            }
        };
        world.process("c3").spawn(acting).detach();
        world.sleep(Duration::from_secs(1)).await;
    })
}

#[test]
fn a_process_that_loops_without_letting_time_pass_ends_its_world_and_is_named() {
    let in_one_poll = doing(|world| world.sleep(Duration::ZERO));
    let in_many = doing(|_| tokio::task::yield_now());
    for looping in [doing(|world| async move { _ = world.now() }), in_many, in_one_poll] {
        let looping = looping.unwrap_err();
        assert_eq!(looping.process, "c3");
        assert!(
            looping.to_string().starts_with("c3 loops without letting time pass"),
            "{looping}"
        );
    }
    assert_eq!(
        World::run(1, async |world: World| world.now_ns()),
        200,
        "the next one begins as new"
    );
}

#[test]
fn a_process_that_is_busy_and_lets_time_pass_does_not_loop() {
    assert_eq!(doing(|world| world.sleep(Duration::from_micros(5))), Ok(()));
    let bursts = doing(|world| async move {
        for _ in 0..1000 {
            _ = world.now();
            tokio::task::yield_now().await;
        }
        world.sleep(3 * MS).await;
    });
    assert_eq!(bursts, Ok(()));
}

#[test]
fn a_task_that_is_always_ready_leaves_the_others_their_turn() {
    let turns = World::run(1, async |world: World| {
        let turns = Rc::new(Cell::new(0));
        let busy = {
            let turns = turns.clone();
            world.spawn(async move {
                loop {
                    turns.set(turns.get() + 1);
                    // wakes itself at once
                    tokio::task::yield_now().await;
                }
            })
        };
        world.sleep(MS).await;
        drop(busy);
        world.sleep(MS).await;
        turns.get()
    });
    // 1 ms in polls of 100 ns
    assert!((4_900..=10_000).contains(&turns), "{turns}");
}

#[test]
fn no_two_stamps_are_the_same_and_none_goes_back() {
    World::run(3, async |world: World| {
        let stamps = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let stamps = stamps.clone();
                world.spawn(async move {
                    for _ in 0..50 {
                        let before = world.now_ns();
                        stamps.borrow_mut().extend([before, world.now_ns()]);
                        world.sleep(MS).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let stamps = stamps.take();
        assert_eq!(stamps.len(), 1000);
        assert!(stamps.is_sorted_by(|one, next| one < next));
    });
}

#[test]
fn time_passes_as_asked_and_costs_nothing() {
    World::run(1, async |world: World| {
        let begun = world.now();
        world.sleep(Duration::from_secs(86_400 * 365)).await;
        let passed = world.now() - begun;
        assert!(passed >= Duration::from_secs(86_400 * 365) && passed < Duration::from_secs(86_400 * 365) + MS);
        let later = world.now() + 5 * MS;
        world.sleep_until(later).await;
        assert!(world.now() >= later && world.now() < later + MS);
        // a time that has passed is no wait
        world.sleep_until(Duration::ZERO).await;
    });
}

#[test]
fn a_stopped_process_does_nothing_and_finds_its_timers_due_when_it_goes_on() {
    World::run(1, async |world: World| {
        let process = world.process("c0");
        let (sender, mut ticks) = mpsc::unbounded_channel();
        let host = process.host();
        process
            .spawn(async move {
                loop {
                    host.sleep(10 * MS).await;
                    sender.send(host.now()).unwrap();
                }
            })
            .detach();
        world.sleep(35 * MS).await;
        for _ in 0..3 {
            assert!(ticks.try_recv().is_ok());
        }
        process.stop();
        process.stop();
        world.sleep(100 * MS).await;
        process.go_on();
        assert!(process.is_stopped(), "two faults stop it, and one has ended");
        world.sleep(100 * MS).await;
        assert!(ticks.try_recv().is_err());
        process.go_on();
        assert!(!process.is_stopped());
        world.sleep(MS).await;
        let late = ticks.try_recv().expect("the timer of 40 ms fires at once");
        assert!(late > Duration::from_millis(235), "{late:?}");
        assert!(ticks.try_recv().is_err(), "the next one counts from there");
        // one too many is no debt
        process.go_on();
        process.stop();
        assert!(process.is_stopped());
    });
}

#[test]
fn a_killed_process_drops_its_tasks_and_the_next_incarnation_draws_other_numbers() {
    struct Alive(Rc<Cell<u32>>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    World::run(1, async |world: World| {
        let (victim, other) = (world.process("c0"), world.process("c1"));
        let alive = Rc::new(Cell::new(0));
        let begin = |process: &harness_simulation::SimulatedProcess| {
            alive.set(alive.get() + 1);
            let alive = Alive(alive.clone());
            let host = process.host();
            // a task of a task, through the seam of the recipes
            process.spawn(async move {
                let _inner = host.spawn(Box::pin(async move {
                    let _alive = alive;
                    std::future::pending::<()>().await;
                }));
                std::future::pending::<()>().await;
            })
        };
        let tasks = [begin(&victim), begin(&victim), begin(&other)];
        world.sleep(MS).await;
        assert_eq!(alive.get(), 3);
        let before = victim.host().random();
        victim.stop();
        victim.kill();
        assert_eq!(alive.get(), 1);
        assert!(!victim.is_stopped(), "what is stopped can be killed");
        assert_ne!(before, victim.host().random());
        let [first, _, _] = tasks;
        first.await;
        let ran = Rc::new(Cell::new(false));
        let runs = ran.clone();
        victim.spawn(async move { runs.set(true) }).await;
        assert!(ran.get());
    });
}

#[test]
fn wall_clocks_differ_by_what_was_set_and_monotonic_clocks_do_not() {
    World::run(1, async |world: World| {
        let (one, two) = (world.process("c0"), world.process("c1"));
        two.set_wall_clock_offset(-3_000_000_000);
        let ahead = one.host().wall_clock() - two.host().wall_clock();
        assert_eq!(ahead, Duration::from_secs(3));
        assert_eq!((one.shifted_readings(), two.shifted_readings()), (0, 1));
        let (a, b) = (one.host().now(), two.host().now());
        assert!(b > a && b - a < MS);
        assert!(one.host().wall_clock() > Duration::from_secs(1_767_225_600));
    });
}

#[test]
fn the_same_name_draws_the_same_and_an_actor_more_changes_nothing() {
    let draws = |names: &'static [&'static str]| {
        World::run(7, async move |world: World| {
            names
                .iter()
                .map(|name| (*name, world.process(name).host().random(), world.dice(name).next_u64()))
                .collect::<Vec<_>>()
        })
    };
    let all = draws(&["c0", "c1", "c2"]);
    let fewer = draws(&["c0", "c2"]);
    assert_eq!([all[0], all[2]], [fewer[0], fewer[1]]);
    assert_ne!(all[0].1, all[1].1);
}

#[test]
fn a_world_that_stands_still_says_so_and_the_thread_is_free_afterwards() {
    let text = panic_text(|| World::run(1, |_| std::future::pending()));
    assert!(text.contains("stands still"), "{text}");
    let text = panic_text(|| {
        World::run(1, async |_: World| {
            World::run(2, async |_: World| {});
        });
    });
    assert!(text.contains("runs on this thread already"), "{text}");
    let escaped = World::run(1, async |world: World| world);
    let text = panic_text(|| _ = escaped.now());
    assert!(text.contains("within World::run"), "{text}");
    assert_eq!(World::run(1, async |_: World| 5), 5);
}

#[test]
fn handles_can_be_sent_and_are_of_no_use_elsewhere() {
    fn is_send<T: Send + Sync>(_: &T) {}
    World::run(1, async |world: World| {
        let kept = world.keep(Rc::new(5));
        let sleep = world.sleep(MS);
        let task = world.spawn(async {});
        is_send(&(world, kept, sleep, world.process("c0")));
        is_send(&task);
        assert_eq!(**kept.get(), 5);
        std::thread::scope(|scope| {
            let there = scope.spawn(move || kept.try_get().is_some());
            assert!(!there.join().unwrap());
        });
    });
}

/// Leaves a world in which everything is unfinished, and knows of everything else.
fn leave_everything(seed: u64) {
    World::run(seed, async |world: World| {
        let kept = world.keep(RefCell::new(Vec::new()));
        for number in 0..10 {
            let process = world.process(&format!("c{number}"));
            let host = process.host();
            let (sender, mut receiver) = mpsc::unbounded_channel::<u64>();
            kept.get().borrow_mut().push(sender.clone());
            let inner = host.clone();
            let task = process.spawn(async move {
                let timer = inner.clone();
                let child = inner.spawn(Box::pin(async move {
                    loop {
                        timer.sleep(MS).await;
                        sender.send(timer.random()).unwrap();
                    }
                }));
                while receiver.recv().await.is_some() {
                    kept.get().borrow().len();
                }
                drop(child);
            });
            task.detach();
            if number == 3 {
                process.stop();
            }
        }
        world.sleep(10 * MS).await;
    });
}

/// Set in the process that measures its own memory.
const MEASURES_MEMORY: &str = "HARNESS_TEST_MEASURES_MEMORY";

#[test]
fn nothing_is_left_of_a_world_that_has_ended() {
    // in a process of its own: other tests of this one allocate at the same time
    if std::env::var_os(MEASURES_MEMORY).is_none() {
        let alone = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "world::nothing_is_left_of_a_world_that_has_ended"])
            .env(MEASURES_MEMORY, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    (0..1_000).for_each(leave_everything);
    let before = resident();
    (0..10_000).for_each(leave_everything);
    let grown = resident().saturating_sub(before);
    assert!(grown < 1024, "{grown} KiB more after 10,000 worlds");
}
