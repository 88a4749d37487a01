//! Compute threads, kept for the life of the program.
//!
//! A step of a small model is some hundred products of tens of microseconds each, so distributing work must cost almost
//! nothing. The cores are shared with the server and often with the load test: a descheduled thread must not delay the
//! others. So work is claimed piece by piece, and the caller waits only for pieces that have begun, not for a helper.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

/// Pieces per thread: few enough to be cheap, enough that the wait for the last one is short.
const PIECES_PER_THREAD: usize = 8;
/// How long an idle helper spins for work before it sleeps: about 50 µs, longer than the gaps inside a step.
const WATCH: usize = 2_000;
/// How long the caller spins for the last pieces before it yields its core.
const PATIENCE: usize = 500;

static TEAM: OnceLock<Team> = OnceLock::new();

/// Set the number of compute threads, before any work is shared; by default one per core.
pub fn set_threads(threads: usize) {
    let _ = TEAM.set(Team::new(threads.max(1)));
}

pub fn threads() -> usize {
    team().size
}

/// Run `work` over `0..count`, in pieces, on all threads. Must not be called from within such work.
pub fn share(count: usize, work: impl Fn(Range<usize>) + Sync) {
    team().share(count, &work);
}

fn team() -> &'static Team {
    TEAM.get_or_init(|| Team::new(thread::available_parallelism().map_or(1, usize::from)))
}

struct Team {
    /// Pieces not yet claimed (upper half) and pieces begun but not finished (lower half), in one word, so that the
    /// last claim and the end of the work cannot miss each other.
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    asleep: AtomicUsize,
    turn: Mutex<()>,
    helpers: OnceLock<Vec<Thread>>,
    size: usize,
}

/// The current work. The reference is valid as long as some piece is unclaimed or unfinished.
#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(Range<usize>) + Sync),
    count: usize,
    pieces: usize,
}

// SAFETY: `job` is written only while no piece is unclaimed or unfinished, and read only by those who hold one.
unsafe impl Sync for Team {}
// SAFETY: the only part that is not `Send` by itself is the reference in `job`, to something that is `Sync`.
unsafe impl Send for Team {}

const ONE_UNCLAIMED: u64 = 1 << 32;

impl Team {
    fn new(size: usize) -> Self {
        Self {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            asleep: AtomicUsize::new(0),
            turn: Mutex::new(()),
            helpers: OnceLock::new(),
            size,
        }
    }

    fn share(&'static self, count: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let helpers = self.helpers.get_or_init(|| (1..self.size).map(|_| self.hire()).collect());
        let pieces = count.min(self.size * PIECES_PER_THREAD);
        if helpers.is_empty() || pieces < 2 {
            return if count > 0 {
                work(0..count)
            };
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lifetime is forgotten here, and `share` does not return before every piece is finished.
        let work: &'static (dyn Fn(Range<usize>) + Sync) = unsafe { std::mem::transmute(work) };
        // SAFETY: nothing is unclaimed or unfinished in this caller's turn, so no other thread reads.
        unsafe { *self.job.get() = Some(Job { work, count, pieces }) };
        self.state.store(pieces as u64 * ONE_UNCLAIMED, SeqCst);
        if self.asleep.load(SeqCst) > 0 {
            helpers.iter().for_each(Thread::unpark);
        }
        while self.do_a_piece() {}
        let mut looked = 0;
        while self.state.load(SeqCst) != 0 {
            looked += 1;
            if looked < PATIENCE { spin_loop() } else { thread::yield_now() }
        }
    }

    fn hire(&'static self) -> Thread {
        let helper = thread::Builder::new().name("compute".into()).spawn(move || self.help());
        helper.expect("a process may have as many threads as cores").thread().clone()
    }

    fn help(&self) {
        let mut looked = 0;
        loop {
            if self.do_a_piece() {
                looked = 0;
            } else if looked < WATCH {
                looked += 1;
                spin_loop();
            } else {
                self.asleep.fetch_add(1, SeqCst);
                if self.state.load(SeqCst) < ONE_UNCLAIMED {
                    thread::park();
                }
                self.asleep.fetch_sub(1, SeqCst);
                looked = 0;
            }
        }
    }

    /// Claim a piece and do it. Returns whether there was one.
    fn do_a_piece(&self) -> bool {
        let mut state = self.state.load(SeqCst);
        loop {
            if state < ONE_UNCLAIMED {
                return false;
            }
            match self.state.compare_exchange_weak(state, state - ONE_UNCLAIMED + 1, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        // SAFETY: this thread holds a piece, so the job stays as it is.
        let Job { work, count, pieces } = unsafe { (*self.job.get()).expect("a piece belongs to a job") };
        let piece = pieces - (state / ONE_UNCLAIMED) as usize;
        // SAFETY: as above: what it points to lives until the last piece is finished.
        unsafe { (*work)(piece * count / pieces..(piece + 1) * count / pieces) };
        self.state.fetch_sub(1, SeqCst);
        true
    }
}

/// A buffer that several threads write, each its own part.
pub struct Shared<T>(*mut T, usize);

// SAFETY: an address; callers of `slice` promise that no two slices overlap.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub fn new(buffer: &mut [T]) -> Self {
        Self(buffer.as_mut_ptr(), buffer.len())
    }

    /// # Safety
    /// No two slices that live at the same time may overlap.
    #[expect(clippy::mut_from_ref, reason = "that is what it is for")]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.1);
        // SAFETY: inside the buffer, by the line above; alone there, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_exactly_once() {
        let team: &'static Team = Box::leak(Box::new(Team::new(4)));
        for count in [0, 1, 2, 31, 32, 33, 1000] {
            for _ in 0..200 {
                let done: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                team.share(count, &|range: Range<usize>| {
                    range.for_each(|at| {
                        done[at].fetch_add(1, SeqCst);
                    });
                });
                assert!(done.iter().all(|times| times.load(SeqCst) == 1));
            }
        }
    }

    #[test]
    fn helpers_wake_up_again() {
        let team: &'static Team = Box::leak(Box::new(Team::new(2)));
        for _ in 0..3 {
            let sum = AtomicUsize::new(0);
            team.share(100, &|range: Range<usize>| {
                sum.fetch_add(range.sum(), SeqCst);
            });
            assert_eq!(sum.into_inner(), 4950);
            thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
