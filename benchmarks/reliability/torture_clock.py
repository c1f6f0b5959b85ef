"""Shift the wall clock of programs while they run, without shifting the machine's.

A small library, preloaded into a program, adds an offset to the wall clock that its libraries read
from libc (`clock_gettime`, `gettimeofday`, `time`), and takes it off again from the deadlines by
that clock that they wait for (conditions, semaphores, mutexes, futexes). The offset is in a file
that all these programs map, so `set_clock` shifts them at once. Monotonic clocks, and the times
that the kernel gives to files, stay as they are.
"""

from __future__ import annotations

import pathlib
import struct
import subprocess

VARIABLE = "TORTURE_CLOCK_FILE"
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t NANO = 1000000000;
static int64_t nothing;
static volatile int64_t *offset = &nothing; /* nanoseconds */

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("TORTURE_CLOCK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *place = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (place != MAP_FAILED) offset = place;
  close(file);
}

static struct timespec shift(struct timespec time, int64_t by) {
  int64_t sum = time.tv_sec * NANO + time.tv_nsec + by;
  return (struct timespec){sum / NANO, sum % NANO};
}

/* A deadline by the wall clock: a monotonic clock that counts from boot is not as far. */
static const struct timespec *unshift(const struct timespec *deadline, struct timespec *place) {
  if (!deadline || deadline->tv_sec < NANO) return deadline;
  *place = shift(*deadline, -*offset);
  return place;
}

#define NEXT(name) \
  static __typeof__(&name) next; \
  if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t clock, struct timespec *now) {
  NEXT(clock_gettime);
  int failed = next(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    *now = shift(*now, *offset);
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec read;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &read);
  *now = (struct timeval){read.tv_sec, read.tv_nsec / 1000};
  return 0;
}

time_t time(time_t *place) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  if (place) *place = read.tv_sec;
  return read.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
  NEXT(pthread_cond_timedwait);
  struct timespec place;
  return next(condition, mutex, unshift(deadline, &place));
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict deadline) {
  NEXT(pthread_cond_clockwait);
  struct timespec place;
  return next(condition, mutex, clock, unshift(deadline, &place));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex,
                            const struct timespec *restrict deadline) {
  NEXT(pthread_mutex_timedlock);
  struct timespec place;
  return next(mutex, unshift(deadline, &place));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
  NEXT(sem_timedwait);
  struct timespec place;
  return next(semaphore, unshift(deadline, &place));
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock,
                  const struct timespec *restrict deadline) {
  NEXT(sem_clockwait);
  struct timespec place;
  return next(semaphore, clock, unshift(deadline, &place));
}

/* Abseil waits by futex itself. */
long syscall(long number, ...) {
  static long (*next)(long, long, long, long, long, long, long);
  if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, "syscall");
  __builtin_va_list rest;
  __builtin_va_start(rest, number);
  long words[6];
  for (int i = 0; i < 6; i++) words[i] = __builtin_va_arg(rest, long);
  __builtin_va_end(rest);
  struct timespec place;
  if (number == SYS_futex && (words[1] & FUTEX_CLOCK_REALTIME))
    words[3] = (long)unshift((const struct timespec *)words[3], &place);
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
"""


def build_library(folder: pathlib.Path) -> pathlib.Path:
    """Compile the library in a folder; raise FileNotFoundError where there is no `cc`."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SOURCE)
    words = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(source)]
    subprocess.run([*words, "-ldl"], check=True)
    return library


def make_clock(folder: pathlib.Path) -> tuple[pathlib.Path, dict[str, str]]:
    """Return (file of the offset, which is 0; variables of programs that it shifts)."""
    library, file = build_library(folder), folder / "clock.offset"
    set_clock(file, 0)
    return file, {"LD_PRELOAD": str(library), VARIABLE: str(file)}


def set_clock(file: pathlib.Path, seconds: float) -> None:
    """Shift the clocks of all programs that map the file, at once."""
    file.touch()
    with open(file, "r+b") as place:  # the same file, whose pages they map
        place.write(struct.pack("=q", round(seconds * 10**9)))
