//! ELF headers of programs and libraries, as in `elf.h`.

/// Kinds of segments.
pub const LOAD: u32 = 1;
pub const DYNAMIC: u32 = 2;
pub const INTERPRETER: u32 = 3;

#[repr(C)]
pub struct ElfHeader {
    ident: [u8; 16],
    pub kind: u16,
    _machine: u16,
    _version: u32,
    pub entry: u64,
    pub programs: u64,
    _sections: u64,
    _flags: u32,
    _size: u16,
    pub program_size: u16,
    pub program_count: u16,
}

/// The header of a segment.
#[repr(C)]
pub struct ProgramHeader {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub address: u64,
    _physical: u64,
    pub file_size: u64,
    pub size: u64,
}

/// An ELF image whose headers are in memory.
#[derive(Clone, Copy)]
pub struct ElfImage {
    base: usize,
}

impl ElfImage {
    /// # Safety
    ///
    /// Four bytes can be read at `base`; if an image is there, it has all its headers, and stays as long as the result.
    pub unsafe fn at(base: usize) -> Option<Self> {
        // SAFETY: the caller's.
        let is_image = unsafe { *(base as *const [u8; 4]) == *b"\x7fELF" };
        is_image.then_some(Self { base })
    }

    pub fn header(&self) -> &ElfHeader {
        // SAFETY: it is there, as the caller of `at` knew.
        unsafe { &*(self.base as *const ElfHeader) }
    }

    pub fn programs(&self) -> impl Iterator<Item = &ProgramHeader> {
        let header = self.header();
        let (first, size) = (self.base + header.programs as usize, usize::from(header.program_size));
        // SAFETY: as above.
        (0..usize::from(header.program_count)).map(move |number| unsafe { &*((first + number * size) as *const _) })
    }
}
