//! The gate: the only instructions of a process in virtual time whose system calls the kernel carries out at once. All others raise
//! `SIGSYS` ([syscall user dispatch](https://docs.kernel.org/admin-guide/syscall-user-dispatch.html)).

use core::arch::global_asm;

global_asm!(
    ".pushsection .text.gate,\"ax\",@progbits",
    ".globl gate_begin",
    ".hidden gate_begin",
    "gate_begin:",
    // the number and six arguments
    ".globl gate_call",
    ".hidden gate_call",
    "gate_call:",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "ret",
    // leaves a signal handler for the frame of another one
    ".globl gate_leave",
    ".hidden gate_leave",
    "gate_leave:",
    "mov rsp, rdi",
    // the return address of signal handlers
    ".globl gate_restorer",
    ".hidden gate_restorer",
    "gate_restorer:",
    "mov eax, 15",
    "syscall",
    "ud2",
    // `sigaltstack` in the program, with the return address below its red zone
    ".globl gate_alternate_stack",
    ".hidden gate_alternate_stack",
    "gate_alternate_stack:",
    "mov eax, 131",
    "syscall",
    "lea rsp, [rsp + 136]",
    "jmp [rsp - 136]",
    // starts a thread, which continues at the program's call, with its registers
    ".globl gate_thread",
    ".hidden gate_thread",
    "gate_thread:",
    "push r12",
    "push r13",
    "mov r12, rdi",
    "mov rax, [r12]",
    "mov rdi, [r12 + 8]",
    "mov rsi, [r12 + 16]",
    "mov rdx, [r12 + 24]",
    "mov r10, [r12 + 32]",
    "mov r8, [r12 + 40]",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "pop r13",
    "pop r12",
    "ret",
    "2:",
    "mov r13, rsp",
    "sub rsp, 256",
    "and rsp, -16",
    "mov rdi, r12",
    "call [r12 + 256]",
    "mov rsp, r13",
    // as in `Registers`: r8 … r15, di, si, bp, bx, dx, ax, cx, sp, ip
    "mov r8, [r12 + 64]",
    "mov r9, [r12 + 72]",
    "mov r10, [r12 + 80]",
    "mov r13, [r12 + 104]",
    "mov r14, [r12 + 112]",
    "mov r15, [r12 + 120]",
    "mov rdi, [r12 + 128]",
    "mov rsi, [r12 + 136]",
    "mov rbp, [r12 + 144]",
    "mov rbx, [r12 + 152]",
    "mov rdx, [r12 + 160]",
    "mov r11, [r12 + 192]",
    "mov r12, [r12 + 96]",
    "xor eax, eax",
    "jmp r11",
    "ud2",
    ".globl gate_end",
    ".hidden gate_end",
    "gate_end:",
    "ud2",
    ".popsection",
);

/// Registers of the program at its call, as in the kernel's `sigcontext`: r8 … r15, di, si, bp, bx, dx, ax, cx, sp, ip, …
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers(pub [u64; 23]);

impl Registers {
    pub const DX: usize = 12;
    pub const AX: usize = 13;
    pub const CX: usize = 14;
    pub const SP: usize = 15;
    pub const IP: usize = 16;
    /// The arguments of a call, in their order.
    pub const CALL: [usize; 6] = [8, 9, 12, 2, 0, 1];
}

/// The state with which a new thread starts; the assembly has the offsets of its fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadStart {
    pub number: usize,
    pub arguments: [usize; 5],
    pub slot: usize,
    /// Its signal mask.
    pub mask: u64,
    /// Those of the program at its call.
    pub registers: Registers,
    /// The address at which it finds its own number, or 0.
    pub finds: usize,
    /// The function that it calls first, on its own stack.
    pub begins: extern "C" fn(*const ThreadStart),
}

unsafe extern "C" {
    static gate_begin: u8;
    static gate_end: u8;
    fn gate_call(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize;
    fn gate_restorer();
    fn gate_leave(frame: usize) -> !;
    fn gate_alternate_stack();
    fn gate_thread(start: *const ThreadStart) -> isize;
}

/// Makes a system call, and returns the kernel's answer: an error is below 0.
pub fn system<const N: usize>(number: usize, arguments: [usize; N]) -> isize {
    let of = |place: usize| arguments.get(place).copied().unwrap_or_default();
    // SAFETY: what the kernel does with its arguments is the caller's to know.
    unsafe { gate_call(number, of(0), of(1), of(2), of(3), of(4), of(5)) }
}

/// Returns the address to which signal handlers return.
pub fn restorer() -> usize {
    gate_restorer as *const () as usize
}

/// Returns from the signal handler with this frame.
pub fn leave(frame: usize) -> ! {
    // SAFETY: the program was about to do the same with the same frame.
    unsafe { gate_leave(frame) }
}

/// Changes the registers so that the thread calls `sigaltstack`, with its arguments, after it has left the signal handler.
pub fn call_alternate_stack(registers: &mut Registers) {
    const RED_ZONE: u64 = 128;
    let registers = &mut registers.0;
    let below = registers[Registers::SP] - RED_ZONE - size_of::<u64>() as u64;
    // SAFETY: the stack of the program, below all that it has there.
    unsafe { *(below as *mut u64) = registers[Registers::IP] };
    registers[Registers::SP] = below;
    registers[Registers::IP] = gate_alternate_stack as *const () as u64;
}

/// Starts a thread, and returns the answer of the call to its creator.
pub fn begin_thread(start: &ThreadStart) -> isize {
    // SAFETY: `start` outlives the thread's beginning: it lies in the table of starts.
    unsafe { gate_thread(start) }
}

/// Closes the gate: each system call of this thread outside it raises `SIGSYS` from now on. Returns 0 or the kernel's error.
pub fn close() -> isize {
    const SET_DISPATCH: usize = 59;
    const ON: usize = 1;
    let (begin, end) = (&raw const gate_begin as usize, &raw const gate_end as usize);
    system(super::call::PRCTL, [SET_DISPATCH, ON, begin, end - begin, 0])
}
