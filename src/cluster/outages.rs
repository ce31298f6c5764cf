//! Outages of nodes: the commands to a node, and whether one is due while the windows of other faults are open.

/// A command to a node. Kills and pauses are counted: a node is back after as many of the opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCommand {
    /// SIGKILL; its data folder stays.
    Kill,
    /// Unsynced writes of a killed node are lost, as without power.
    CutPower,
    /// Its disk has no free block from now on; its end is then no accident.
    FillDisk,
    /// Its disk has space again.
    FreeDisk,
    /// If it ended for lack of space it starts again; from now on its end is an accident.
    Recover,
    /// Starts with the same data, on the same ports.
    Start,
    Pause,
    Resume,
    /// Kill and start in one command, so that the end of a run cannot fall between them.
    Restart,
    /// A replica becomes the primary.
    Promote,
    /// It leaves its cluster permanently: the other members remove it, and it is killed.
    Leave,
    /// A new server without data joins in the place of one that left, if one did.
    Join,
    /// It ends in order and starts from the other version, on its data; one command, as [`Self::Restart`] is.
    Upgrade,
    /// The new server is a member as all others are. Until then other faults spare it: it could not start again.
    Joined,
    /// A node becomes a replica of the node at the far end of its peer proxy, and deletes data that that node does not have.
    Follow,
}

use NodeCommand::{
    CutPower, FillDisk, Follow, FreeDisk, Join, Joined, Kill, Leave, Pause, Promote, Recover, Restart, Resume, Start,
    Upgrade,
};

/// The kills and pauses of a node without their opposites.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outages {
    killed: u32,
    paused: u32,
    /// Windows in which its disk is full.
    full: u32,
    /// Windows with a full disk that have not recovered: until then the end of the server is no accident.
    short_of_space: u32,
    /// It left its cluster. That counts as a kill, too.
    left: bool,
    /// It is new and not a member yet.
    joins: bool,
}

impl Outages {
    /// Returns the command to execute now, or `None` while another window still needs the node as it is.
    pub(super) fn count(&mut self, command: NodeCommand) -> Option<NodeCommand> {
        let due = match command {
            FillDisk => {
                self.full += 1;
                self.short_of_space += 1;
                self.full == 1
            }
            FreeDisk => {
                let was_full = self.full > 0;
                self.full = self.full.saturating_sub(1);
                was_full && self.full == 0
            }
            Recover => {
                let had_none = self.short_of_space > 0;
                self.short_of_space = self.short_of_space.saturating_sub(1);
                // one that could not be freed is filled again by the next window
                self.full = self.full.min(self.short_of_space);
                had_none && self.short_of_space == 0 && self.killed == 0
            }
            Leave => {
                self.killed += 1;
                self.left = true;
                true
            }
            Join => {
                let left = std::mem::take(&mut self.left);
                self.killed = self.killed.saturating_sub(left.into());
                self.joins |= left;
                left
            }
            Joined => std::mem::take(&mut self.joins),
            CutPower => self.killed > 0,
            Kill => {
                self.killed += 1;
                self.killed == 1
            }
            Start => {
                // a node that was not killed, since that was refused, runs
                let killed = self.killed > 0;
                self.killed = self.killed.saturating_sub(1);
                killed && self.killed == 0
            }
            Pause => {
                self.paused += 1;
                self.paused == 1 && self.killed == 0
            }
            Resume => {
                self.paused = self.paused.saturating_sub(1);
                self.paused == 0 && self.killed == 0
            }
            Restart | Promote | Follow | Upgrade => self.killed == 0,
        };
        due.then_some(command)
    }

    /// Returns whether the window of a pause is open.
    pub(super) fn is_paused(&self) -> bool {
        self.paused > 0
    }

    /// Returns whether no window has killed the server or filled its disk: its end is then an accident.
    pub(super) fn should_run(&self) -> bool {
        self.killed == 0 && self.short_of_space == 0
    }

    /// Returns whether a command started the server while the window of a pause is open: that stops it again.
    pub(super) fn stops_again(&self, due: Option<NodeCommand>) -> bool {
        matches!(due, Some(Start | Restart)) && self.is_paused()
    }

    /// Takes back the count of a command that failed; `before` has the counts before it. `has_ended`: the server does not run.
    pub(super) fn take_back(&mut self, command: NodeCommand, before: Self, has_ended: bool) {
        match command {
            // it may have taken some blocks, and its window sends the opposite in any case
            FillDisk => {}
            // it was killed and did not start
            Restart | Upgrade if has_ended => {
                let killed = before.killed + 1;
                *self = Self { killed, ..before };
            }
            _ => *self = before,
        }
    }
}

/// Returns the reason for which members cannot change now, or a server cannot be stopped.
pub(super) fn unfit(command: NodeCommand, outages: &[Outages], node: usize) -> Option<&'static str> {
    let own = outages[node];
    match command {
        Kill | Restart | Pause | Leave | Upgrade if own.joins => Some("it is new and not a member yet"),
        Leave if outages.iter().any(|other| other.left) => Some("a server has left and is not replaced yet"),
        Leave | Upgrade if own.killed > 0 || own.paused > 0 => Some("another fault has stopped it"),
        Join if own.left && own.killed > 1 => Some("another fault has stopped it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(commands: &[NodeCommand]) -> Vec<bool> {
        let mut outages = Outages::default();
        let mut due = |command: &NodeCommand| outages.count(*command).is_some();
        commands.iter().map(&mut due).collect()
    }

    #[test]
    fn a_server_that_two_windows_killed_starts_with_the_second_heal() {
        assert_eq!(due(&[Kill, Kill, Start, Start]), [true, false, false, true]);
    }

    #[test]
    fn only_a_dead_server_loses_its_power() {
        let commands = [CutPower, Kill, CutPower, Start, CutPower];
        assert_eq!(due(&commands), [false, true, true, true, false]);
    }

    #[test]
    fn a_dead_server_is_neither_paused_nor_resumed_nor_restarted() {
        let commands = [Kill, Pause, Restart, Resume, Start, Restart];
        assert_eq!(due(&commands), [true, false, false, false, true, true]);
    }

    #[test]
    fn a_server_that_starts_in_the_window_of_a_pause_is_paused_until_its_end() {
        let mut outages = Outages::default();
        let stops_again = |command: NodeCommand| {
            let due = outages.count(command);
            outages.stops_again(due)
        };
        let commands = [Restart, Pause, Restart, Kill, Start, Resume, Restart];
        let stopped = commands.map(stops_again);
        assert_eq!(stopped, [false, false, true, false, true, false, false]);
    }

    #[test]
    fn one_server_at_a_time_is_replaced_and_its_end_is_no_accident_until_a_new_one_has_joined() {
        let commands = [Join, Leave, Kill, Start, Join, Join, Joined, Joined];
        assert_eq!(due(&commands), [false, true, false, false, true, false, true, false]);
        let mut outages = [Outages::default(); 2];
        assert!(unfit(Leave, &outages, 0).is_none() && unfit(Join, &outages, 0).is_none());
        outages[1].count(Leave);
        assert!(unfit(Leave, &outages, 0).is_some(), "the other one is not back");
        assert!(unfit(Join, &outages, 1).is_none());
        outages[1].count(Kill);
        assert!(unfit(Join, &outages, 1).is_some(), "another window wants it dead");
        outages[1].count(Start);
        outages[1].count(Join);
        for command in [Kill, Leave] {
            assert!(unfit(command, &outages, 1).is_some(), "it is not a member yet");
        }
        assert!(outages[1].count(Start).is_none(), "it runs");
        outages[1].count(Joined);
        outages[0].count(Kill);
        assert!(unfit(Leave, &outages, 0).is_some(), "it is dead");
        assert!(unfit(Leave, &outages, 1).is_none());
    }

    #[test]
    fn a_server_that_another_window_has_stopped_is_not_upgraded() {
        assert_eq!(due(&[Upgrade, Kill, Start, Upgrade]), [true, true, true, true]);
        let mut outages = [Outages::default(); 2];
        assert!(unfit(Upgrade, &outages, 0).is_none());
        for (stop, go_on) in [(Kill, Start), (Pause, Resume)] {
            outages[0].count(stop);
            assert!(unfit(Upgrade, &outages, 0).is_some(), "{stop:?}");
            assert!(unfit(Upgrade, &outages, 1).is_none());
            outages[0].count(go_on);
            assert!(unfit(Upgrade, &outages, 0).is_none(), "{go_on:?}");
        }
        outages[0].count(Leave);
        outages[0].count(Join);
        assert!(unfit(Upgrade, &outages, 0).is_some(), "it is not a member yet");
    }

    #[test]
    fn a_restart_that_failed_counts_as_a_kill_if_the_server_has_ended() {
        for (command, has_ended, killed) in [(Restart, false, 0), (Restart, true, 1), (Upgrade, true, 1)] {
            let mut outages = Outages::default();
            outages.take_back(command, Outages::default(), has_ended);
            assert_eq!(outages.killed, killed, "{command:?} {has_ended}");
        }
    }

    #[test]
    fn a_full_disk_is_freed_by_the_last_window_and_its_server_starts_again_unless_another_wants_it_dead() {
        let (fill, free) = (FillDisk, FreeDisk);
        let commands = [fill, fill, free, Recover, free, Recover, Recover];
        assert_eq!(due(&commands), [true, false, false, false, true, true, false]);
        let at_once = [fill, fill, free, free, Recover, Recover, free];
        assert_eq!(due(&at_once), [true, false, false, true, false, true, false]);
        let mut outages = Outages::default();
        outages.count(fill);
        outages.take_back(fill, Outages::default(), false);
        assert!(outages.count(free).is_some(), "it took some blocks");
        let commands = [fill, Kill, free, Recover, Start];
        assert_eq!(due(&commands), [true, true, true, false, true]);
    }
}
