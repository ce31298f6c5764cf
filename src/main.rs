//! The `harness` binary: runs the command line and returns its exit code. Its memory is given by mimalloc.

use std::alloc::{GlobalAlloc, Layout};
use std::process::ExitCode;

use harness::cli;
use harness::exit::Exit;
use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// A quarter of the time of a simulated experiment went into small allocations, which mimalloc makes twice as fast as the C library.
#[global_allocator]
static ALLOCATOR: QuickAllocator = QuickAllocator;

/// As `MiMalloc` of the crate `mimalloc`, but for the alignment: that one asks for it each time, which takes half as long again.
struct QuickAllocator;

/// Every block of mimalloc is aligned to this, whatever its size is.
const ALIGNED: usize = 8;

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe by its interface: what the caller promises is passed on to mimalloc"
)]
// SAFETY: mimalloc gives blocks of at least the size and, below, of the alignment that is asked for; null where there is no memory
unsafe impl GlobalAlloc for QuickAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.align() <= ALIGNED {
            true => unsafe { mi_malloc(layout.size()) }.cast(),
            false => unsafe { mi_malloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match layout.align() <= ALIGNED {
            true => unsafe { mi_zalloc(layout.size()) }.cast(),
            false => unsafe { mi_zalloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        unsafe { mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match layout.align() <= ALIGNED {
            true => unsafe { mi_realloc(block.cast(), size) }.cast(),
            false => unsafe { mi_realloc_aligned(block.cast(), size, layout.align()) }.cast(),
        }
    }
}

fn main() -> ExitCode {
    let exit = std::panic::catch_unwind(cli::main).unwrap_or_else(|_| {
        eprintln!("this is a bug in harness: please report the lines above");
        Exit::Bug
    });
    ExitCode::from(exit.code())
}
