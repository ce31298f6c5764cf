//! The value of a variable in the environment that a process was started with, for libraries that are loaded into it ahead of all others:
//! the environment is read in pieces, and nothing is allocated.

/// Looks for the variable of this name in what `read` answers, piece by piece: how many bytes it has read, and 0 or less at the end.
/// `value` becomes its value, ended by a zero. `false`: there is none, or it is empty.
pub fn find(name: &[u8], value: &mut [u8], mut read: impl FnMut(&mut [u8]) -> isize) -> bool {
    let mut piece = [0u8; 1024];
    // how much of the variable's name matched; `None`: this is another variable
    let (mut matched, mut length) = (Some(0), 0);
    loop {
        let read = read(&mut piece);
        if read <= 0 {
            return false;
        }
        for &byte in piece.iter().take(read as usize) {
            match matched {
                Some(all) if all > name.len() => {
                    if byte == 0 {
                        return length > 0;
                    }
                    if length + 1 < value.len() {
                        value[length] = byte;
                        length += 1;
                    }
                }
                _ if byte == 0 => matched = Some(0),
                Some(some) if name.get(some).copied().unwrap_or(b'=') == byte => matched = Some(some + 1),
                _ => matched = None,
            }
        }
    }
}
