//! How much memory something takes: an allocator that counts what each thread has of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

/// What a thread has got since it began to count, in bytes, and the most that was.
#[derive(Clone, Copy)]
struct Count {
    held: isize,
    peak: isize,
}

thread_local! {
    // Without a destructor, so that it is there for as long as the thread allocates.
    static COUNT: Cell<Count> = const { Cell::new(Count { held: 0, peak: 0 }) };
}

/// The most bytes that the work has at once, beyond those that were there before. What other threads do is not counted.
pub(crate) fn peak_of(work: impl FnOnce()) -> usize {
    let before = COUNT.replace(Count { held: 0, peak: 0 });
    work();
    let mine = COUNT.get();
    let (held, peak) = (before.held + mine.held, before.peak.max(before.held + mine.peak));
    COUNT.set(Count { held, peak });
    mine.peak.unsigned_abs()
}

struct Counting;

impl Counting {
    fn add(size: usize, sign: isize) {
        COUNT.with(|count| {
            let Count { held, peak } = count.get();
            let held = held + sign * size.cast_signed();
            count.set(Count { held, peak: peak.max(held) });
        });
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size(), 1);
        // SAFETY: as this call's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size(), 1);
        // SAFETY: as this call's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::add(size, 1);
        Self::add(layout.size(), -1);
        // SAFETY: as this call's.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        Self::add(layout.size(), -1);
        // SAFETY: as this call's.
        unsafe { System.dealloc(place, layout) }
    }
}
