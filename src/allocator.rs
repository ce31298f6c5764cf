//! The allocator of the binary: mimalloc for small blocks, the C library for large ones.
//!
//! A third of the time of a simulated experiment goes into small allocations, and mimalloc makes them twice as fast as the C
//! library. It keeps large ones after they are freed, in huge pages that are cleared as a whole: with it alone, `harness check` of
//! 10,000,020 events took half as much memory again, and a third of its time to clear it. The C library maps large ones, gives
//! them back at once, and lets them grow without a copy.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};
#[cfg(target_env = "gnu")]
use nix::libc;

/// Chooses an allocator by the size of a block, which every call names.
pub struct BySize;

/// Bytes from which a block is the C library's. It maps such blocks, and does not cut them from its heap.
const LARGE: usize = 128 << 10;

/// Makes the C library map each large block for as long as the program runs. By default it cuts the larger ones from its heap,
/// too, once it has freed one, and the gaps between them are a tenth of the memory of a large history.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers, and is called before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE as libc::c_int);
    }
}

/// Whether a block is the C library's.
fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

/// Whether every block of mimalloc has the alignment. An allocation with an explicit alignment takes half as long again.
fn is_aligned(layout: Layout) -> bool {
    layout.align() <= 8
}

// SAFETY: a block is freed and resized with the size of its allocation, so the same allocator is chosen for it as before. The
// requirements of both allocators on their callers are those of this one.
unsafe impl GlobalAlloc for BySize {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe {
            match layout.size() {
                large if is_large(large) => System.alloc(layout),
                small if is_aligned(layout) => mi_malloc(small).cast(),
                small => mi_malloc_aligned(small, layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe {
            match layout.size() {
                large if is_large(large) => System.alloc_zeroed(layout),
                small if is_aligned(layout) => mi_zalloc(small).cast(),
                small => mi_zalloc_aligned(small, layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe {
            if is_large(layout.size()) {
                System.dealloc(block, layout);
            } else {
                mi_free(block.cast());
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        unsafe {
            match (is_large(layout.size()), is_large(bytes)) {
                (true, true) => System.realloc(block, layout, bytes),
                (false, false) if is_aligned(layout) => mi_realloc(block.cast(), bytes).cast(),
                (false, false) => mi_realloc_aligned(block.cast(), bytes, layout.align()).cast(),
                _ => self.moved(block, layout, bytes),
            }
        }
    }
}

impl BySize {
    /// Moves a block, with its content, to the other allocator.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    unsafe fn moved(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        unsafe {
            let other = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !other.is_null() {
                ptr::copy_nonoverlapping(block, other, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes on both sides of the boundary, and the boundary.
    const SIZES: [usize; 6] = [1, 4096, LARGE - 1, LARGE, LARGE + 1, 5 * LARGE];

    #[test]
    fn a_block_keeps_what_it_holds_from_any_size_to_any_other() {
        for (before, after) in SIZES.iter().flat_map(|before| SIZES.map(|after| (*before, after))) {
            for align in [1, 64, 4096] {
                let layout = Layout::from_size_align(before, align).expect("a layout");
                // SAFETY: the layouts are those that the blocks were asked for with, and all bytes are theirs.
                unsafe {
                    let block = BySize.alloc(layout);
                    (0..before).for_each(|at| block.add(at).write(at as u8));
                    let block = BySize.realloc(block, layout, after);
                    assert_eq!(block.addr() % align, 0, "{before} to {after}");
                    assert!((0..before.min(after)).all(|at| block.add(at).read() == at as u8));
                    BySize.dealloc(block, Layout::from_size_align_unchecked(after, align));
                    let zeroed = BySize.alloc_zeroed(layout);
                    assert!((0..before).all(|at| zeroed.add(at).read() == 0));
                    BySize.dealloc(zeroed, layout);
                }
            }
        }
    }
}
