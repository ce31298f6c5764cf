//! System calls, for a library and a program that make them without a C library (`preload.rs`, `gate.rs` of `disks`).

use core::arch::asm;

/// Makes a system call. Omitted arguments are 0.
#[cfg(target_arch = "x86_64")]
pub fn system<const N: usize>(number: usize, arguments: [usize; N]) -> isize {
    let of = |place: usize| arguments.get(place).copied().unwrap_or_default();
    let answer: isize;
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => answer, in("rdi") of(0), in("rsi") of(1), in("rdx") of(2),
            in("r10") of(3), in("r8") of(4), in("r9") of(5), lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer
}

#[cfg(target_arch = "aarch64")]
pub fn system<const N: usize>(number: usize, arguments: [usize; N]) -> isize {
    let of = |place: usize| arguments.get(place).copied().unwrap_or_default();
    let answer: isize;
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") of(0) => answer, in("x1") of(1), in("x2") of(2), in("x3") of(3),
            in("x4") of(4), in("x5") of(5), options(nostack));
    }
    answer
}
