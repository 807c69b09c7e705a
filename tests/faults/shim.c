/* Loaded before libc (LD_PRELOAD): makes the n-th write to a folder fail, as a disk does, or the n-th read.

   Counted are the calls that change files below a folder, from 1: write, pwrite, writev, pwritev, fsync, fdatasync, ftruncate, rename,
   link, and open where it makes a file. RocksDB's own LOG is left out. fault_arm, or the environment (FAULT_UNDER, FAULT_KIND,
   FAULT_AT, FAULT_TIMES), says which of them fail, and how:
     enospc  half of a write arrives, then ENOSPC
     eio     EIO, without effect
     torn    half of a write arrives, then the process is killed
     halved  half of a write arrives, then EIO
     unread  EIO of a call that reads, and those are counted instead: read, pread, mmap, and open of a file that exists
   The names of the kinds are those of tests/faults/shim.py.

   fault_clock sets the wall clock of the process; its timers go on as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NONE, ENOSPC_KIND, EIO_KIND, TORN_KIND, HALVED_KIND, UNREAD_KIND };

static char under[PATH_MAX];
static size_t under_length;
static int kind;
static long first, last;
static atomic_long seen;
static char met[256]; /* the first call that failed, for people */

static const char *const KINDS[] = {"none", "enospc", "eio", "torn", "halved", "unread"};

void fault_arm(const char *folder, const char *how, long at, long times) {
    under_length = 0;
    kind = NONE;
    for (int k = 0; k <= UNREAD_KIND; k++)
        if (!strcmp(how, KINDS[k])) kind = k;
    first = at;
    last = at + times - 1;
    met[0] = 0;
    atomic_store(&seen, 0);
    strncpy(under, folder, sizeof under - 1);
    under_length = strlen(under);
}

long fault_seen(void) { return atomic_load(&seen); }
const char *fault_met(void) { return met; }

__attribute__((constructor)) static void from_environment(void) {
    const char *folder = getenv("FAULT_UNDER"), *how = getenv("FAULT_KIND");
    const char *at = getenv("FAULT_AT"), *times = getenv("FAULT_TIMES");
    if (folder) fault_arm(folder, how ? how : "none", at ? atol(at) : 0, times ? atol(times) : 1);
}

static int counts(const char *path) {
    if (!under_length || strncmp(path, under, under_length) || (path[under_length] != '/' && path[under_length])) return 0;
    const char *name = strrchr(path, '/');
    return !(name && !strncmp(name, "/LOG", 4));
}

/* Whether this call fails; then how. */
static int struck_by(int reads, const char *call, const char *path) {
    if (reads != (kind == UNREAD_KIND) || !counts(path)) return NONE;
    long n = atomic_fetch_add(&seen, 1) + 1;
    if (kind == NONE || n < first || n > last) return NONE;
    if (!met[0]) snprintf(met, sizeof met, "%s %.200s", call, path + under_length);
    return kind;
}

static int struck(const char *call, const char *path) { return struck_by(0, call, path); }

static int struck_fd_by(int reads, const char *call, int fd) {
    if (!under_length || fd < 0 || reads != (kind == UNREAD_KIND)) return NONE;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return NONE;
    path[n] = 0;
    return struck_by(reads, call, path);
}

static int struck_fd(const char *call, int fd) { return struck_fd_by(0, call, fd); }

static int fails(int how) {
    if (how == TORN_KIND) {
        kill(getpid(), SIGKILL);
        pause();
    }
    errno = how == ENOSPC_KIND ? ENOSPC : EIO;
    return -1;
}

/* Half of what was to be written. offset < 0: where the file is. */
static void half(int fd, const struct iovec *parts, int count, off_t offset, int how) {
    if (how == EIO_KIND) return;
    size_t left = 0;
    for (int i = 0; i < count; i++) left += parts[i].iov_len;
    left /= 2;
    for (int i = 0; i < count && left; i++) {
        size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
        ssize_t n = offset < 0 ? syscall(SYS_write, fd, parts[i].iov_base, part)
                               : syscall(SYS_pwrite64, fd, parts[i].iov_base, part, offset);
        if (n < 0) return;
        left -= part;
        if (offset >= 0) offset += part;
    }
}

#define REAL(name) \
    static typeof(name) *real; \
    if (!real) real = dlsym(RTLD_NEXT, #name)

#define ON_WRITE(call, parts, count, offset) \
    int how = struck_fd(call, fd); \
    if (how) { \
        half(fd, parts, count, offset, how); \
        return fails(how); \
    }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    struct iovec part = {(void *)data, size};
    ON_WRITE("write", &part, 1, -1)
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    REAL(pwrite);
    struct iovec part = {(void *)data, size};
    ON_WRITE("pwrite", &part, 1, offset)
    return real(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    ON_WRITE("writev", parts, count, -1)
    return real(fd, parts, count);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    REAL(pwritev);
    ON_WRITE("pwritev", parts, count, offset)
    return real(fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) { return pwritev(fd, parts, count, offset); }
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    (void)flags;
    return pwritev(fd, parts, count, offset);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    (void)flags;
    return pwritev(fd, parts, count, offset);
}

#define ON_FD(name) \
    int name(int fd) { \
        REAL(name); \
        int how = struck_fd(#name, fd); \
        return how ? fails(how) : real(fd); \
    }
ON_FD(fsync)
ON_FD(fdatasync)

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    int how = struck_fd("ftruncate", fd);
    return how && how != ENOSPC_KIND ? fails(how) : real(fd, length); /* a full disk lets files shrink */
}

int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

int rename(const char *from, const char *to) {
    REAL(rename);
    int how = struck("rename", to);
    return how ? fails(how) : real(from, to);
}

int link(const char *from, const char *to) {
    REAL(link);
    int how = struck("link", to);
    return how ? fails(how) : real(from, to);
}

static int opened(const char *path, int flags, mode_t mode) {
    if ((flags & O_CREAT) && access(path, F_OK)) {
        int how = struck("create", path);
        if (how) return fails(how);
    } else if (!(flags & (O_DIRECTORY | O_WRONLY))) {
        int how = struck_by(1, "open", path);
        if (how) return fails(how);
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t read(int fd, void *into, size_t size) {
    int how = struck_fd_by(1, "read", fd);
    return how ? fails(how) : syscall(SYS_read, fd, into, size);
}

ssize_t pread(int fd, void *into, size_t size, off_t offset) {
    int how = struck_fd_by(1, "pread", fd);
    return how ? fails(how) : syscall(SYS_pread64, fd, into, size, offset);
}

ssize_t pread64(int fd, void *into, size_t size, off64_t offset) { return pread(fd, into, size, offset); }

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    int how = struck_fd_by(1, "mmap", fd);
    if (how) {
        fails(how);
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    return mmap(at, size, protection, flags, fd, offset);
}

static atomic_long clock_s; /* by how much the wall clock is set */

void fault_clock(long by_s) { atomic_fetch_add(&clock_s, by_s); }

int clock_gettime(clockid_t which, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, which, now);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += atomic_load(&clock_s);
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    int failed = syscall(SYS_gettimeofday, now, NULL);
    if (!failed) now->tv_sec += atomic_load(&clock_s);
    return failed;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

#define ON_OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return opened(path, flags, mode); \
    }
ON_OPEN(open)
ON_OPEN(open64)
