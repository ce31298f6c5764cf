//! Static programs, which load no library. Instead of one, the current program is executed again, with the library, and the library maps
//! and starts the static program in its place, as the kernel does (`fs/binfmt_elf.c`).

use core::arch::asm;
use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::elf::{ElfImage, INTERPRETER, LOAD, ProgramHeader};
use super::gate::system;
use super::page::VARIABLE;
use super::shared::{HERE, auxiliary, page, values};
use super::trap::TrappedCall;

/// The bytes of a file that are read: its ELF header, and the program headers, which follow it.
const HEAD: usize = 1024;
const PAGE: u64 = 4096;

#[repr(C, align(8))]
struct Head([u8; HEAD]);

impl Head {
    fn read(file: usize) -> Self {
        let mut head = Self([0; HEAD]);
        system(call::PREAD64, [file, head.0.as_mut_ptr() as usize, HEAD, 0]);
        head
    }

    /// Returns `None` if it is not a program of this machine, or has its headers elsewhere.
    fn image(&self) -> Option<ElfImage> {
        const MACHINE: [u8; 2] = [62, 0];
        // SAFETY: only the head is read here, and `end` is checked before more is.
        let image = unsafe { ElfImage::at(self.0.as_ptr() as usize) }?;
        let header = image.header();
        let end = header.programs + u64::from(header.program_size) * u64::from(header.program_count);
        (self.0[18..20] == MACHINE && end <= HEAD as u64).then_some(image)
    }
}

/// Answers `execve` and `execveat`. It returns only if they fail.
pub fn execute(call: &TrappedCall<'_>) -> isize {
    let path = usize::from(call.number == call::EXECVEAT);
    let environment = call.arguments[path + 2];
    let is_loaded = [b"LD_PRELOAD".as_slice(), VARIABLE.as_bytes()]
        .iter()
        .all(|name| environment != 0 && values(environment, name).next().is_some());
    let file = if is_loaded { static_program(call, path) } else { None };
    let Some(file) = file else {
        return call.ask_kernel();
    };
    page().program.store(file as u32 + 1, SeqCst);
    let own = b"/proc/self/exe\0".as_ptr() as usize;
    let failed = system(call::EXECVE, [own, call.arguments[path + 1], environment]);
    page().program.store(0, SeqCst);
    system(call::CLOSE, [file]);
    failed
}

/// Opens the program that a call executes, if it is a static one.
fn static_program(call: &TrappedCall<'_>, path: usize) -> Option<usize> {
    const EXECUTE: usize = 1;
    let folder = if path == 0 { HERE as usize } else { call.arguments[0] };
    let path = call.arguments[path];
    if system(call::FACCESSAT, [folder, path, EXECUTE]) < 0 {
        return None;
    }
    // open also in the program that is executed
    let file = usize::try_from(system(call::OPENAT, [folder, path, 0, 0])).ok()?;
    let head = Head::read(file);
    let image = head.image();
    let is_static = image.is_some_and(|image| image.programs().all(|segment| segment.kind != INTERPRETER));
    if !is_static {
        system(call::CLOSE, [file]);
    }
    is_static.then_some(file)
}

/// Starts the static program that was executed in place of this one, if there is one, on the stack of this one.
pub fn give_place(stack: usize) {
    let Some(file) = page().program.swap(0, SeqCst).checked_sub(1) else {
        return;
    };
    let mapped = map(file as usize);
    system(call::CLOSE, [file as usize]);
    if let Some(program) = mapped {
        // SAFETY: the program is mapped, and this one does not continue.
        unsafe { begin(&program, stack) }
    }
    const NOT_EXECUTED: usize = 126;
    system(call::EXIT_GROUP, [NOT_EXECUTED]);
}

/// The addresses of a mapped program.
struct MappedProgram {
    entry: u64,
    /// The address of its program headers.
    headers: u64,
    header_size: u16,
    header_count: u16,
}

/// Maps the program in a file. Returns `None` if the kernel does not permit it, or its addresses are in use.
fn map(file: usize) -> Option<MappedProgram> {
    const RELOCATES_ITSELF: u16 = 3;
    const ANYWHERE: u64 = 0x10_0000_0000;
    let head = Head::read(file);
    let image = head.image()?;
    let header = image.header();
    let bias = if header.kind == RELOCATES_ITSELF { ANYWHERE } else { 0 };
    let mut headers = 0;
    for segment in image.programs().filter(|segment| segment.kind == LOAD) {
        map_segment(file, bias, segment)?;
        if (segment.offset..segment.offset + segment.file_size).contains(&header.programs) {
            headers = bias + segment.address + header.programs - segment.offset;
        }
    }
    Some(MappedProgram {
        entry: bias + header.entry,
        headers,
        header_size: header.program_size,
        header_count: header.program_count,
    })
}

fn map_segment(file: usize, bias: u64, segment: &ProgramHeader) -> Option<()> {
    const WRITABLE: u32 = 2;
    let begin = bias + segment.address;
    let first = begin / PAGE * PAGE;
    let (of_file, end) = (begin + segment.file_size, begin + segment.size);
    let mut zeros = first;
    if segment.file_size > 0 {
        let offset = segment.offset - (begin - first);
        map_pages(first, of_file - first, segment.flags, Some((file, offset)))?;
        zeros = of_file.next_multiple_of(PAGE);
        if segment.size > segment.file_size && segment.flags & WRITABLE != 0 {
            // SAFETY: the rest of the last page that was mapped.
            unsafe { core::ptr::write_bytes(of_file as *mut u8, 0, (zeros - of_file) as usize) };
        }
    }
    if end > zeros {
        map_pages(zeros, end - zeros, segment.flags, None)?;
    }
    Some(())
}

/// Maps a part of a file, or zeros.
fn map_pages(at: u64, length: u64, flags: u32, file: Option<(usize, u64)>) -> Option<()> {
    const PRIVATE: usize = 2;
    const NO_FILE: usize = 0x20;
    const HERE_WHERE_NOTHING_IS: usize = 0x10_0000;
    // a segment has the bits in the opposite order
    let access = (flags & 1) << 2 | flags & 2 | (flags & 4) >> 2;
    let (kind, (file, offset)) = match file {
        Some(part) => (0, part),
        None => (NO_FILE, (usize::MAX, 0)),
    };
    let kind = kind | PRIVATE | HERE_WHERE_NOTHING_IS;
    let arguments = [at as usize, length as usize, access as usize, kind, file, offset as usize];
    (system(call::MMAP, arguments) == at as isize).then_some(())
}

/// Starts a program on the stack of this one.
///
/// # Safety
///
/// The program is mapped, and `stack` is the address at which the stack began.
unsafe fn begin(program: &MappedProgram, stack: usize) -> ! {
    const SET_NAME: usize = 15;
    const SET_LOCAL: usize = 0x1002;
    // SAFETY: the first argument.
    let name = unsafe { *(stack as *const usize).add(1) };
    for entry in auxiliary(stack) {
        // SAFETY: it is there, and nothing else refers to it.
        let [kind, value] = unsafe { &mut *entry };
        match *kind {
            3 => *value = program.headers,
            4 => *value = program.header_size.into(),
            5 => *value = program.header_count.into(),
            // no loader
            7 => *value = 0,
            9 => *value = program.entry,
            31 => *value = name as u64,
            _ => {}
        }
    }
    // SAFETY: it ends with a zero.
    let name = unsafe { last_part(name as *const u8) };
    system(call::PRCTL, [SET_NAME, name as usize]);
    system(call::ARCH_PRCTL, [SET_LOCAL, 0]);
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "mov rsp, {stack}",
            "xor edx, edx",
            "xor ebp, ebp",
            "jmp {entry}",
            stack = in(reg) stack,
            entry = in(reg) program.entry,
            options(noreturn),
        )
    }
}

/// Returns the part of a path behind the last `/`.
///
/// # Safety
///
/// `path` ends with a zero.
unsafe fn last_part(path: *const u8) -> *const u8 {
    let (mut part, mut place) = (path, path);
    // SAFETY: the caller's.
    unsafe {
        while *place != 0 {
            place = place.add(1);
            if *place.sub(1) == b'/' {
                part = place;
            }
        }
    }
    part
}
