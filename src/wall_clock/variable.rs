//! The value of an environment variable of this process, for libraries that are loaded before all others: the environment is read
//! in pieces, and nothing is allocated.

/// Searches for the variable of this name in the pieces that `read` returns with their length, and 0 or less at the end. Writes
/// its value, ended by a zero, to `value`. Returns `false` if there is none, or if it is empty.
pub fn find(name: &[u8], value: &mut [u8], mut read: impl FnMut(&mut [u8]) -> isize) -> bool {
    let mut piece = [0u8; 1024];
    // the length of the name that matched; `None`: this is another variable
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
