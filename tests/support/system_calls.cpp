#include "tests/support/system_calls.hpp"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace cenote::test {

namespace {

thread_local constinit system_call_counts counts{};

/// The C library's function of that name, which the one here stands in for.
template <class Function>
Function* original(const char* name) noexcept {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  if (found == nullptr) std::abort();
  return found;
}

}  // namespace

system_call_counts system_calls() noexcept {
  return counts;
}

}  // namespace cenote::test

// Each counts, and calls on. The names and the parameters are the C library's.
#define CENOTE_COUNTED_CALL(kind, result, name, parameters, arguments, ...)     \
  extern "C" result name parameters __VA_ARGS__ {                               \
    static auto* const next = cenote::test::original<result parameters>(#name); \
    ++cenote::test::counts.kind;                                                \
    return next arguments;                                                      \
  }

CENOTE_COUNTED_CALL(sent, ssize_t, write, (int fd, const void* bytes, size_t count), (fd, bytes, count))
CENOTE_COUNTED_CALL(sent, ssize_t, send, (int fd, const void* bytes, size_t count, int flags),
                    (fd, bytes, count, flags))
CENOTE_COUNTED_CALL(sent, ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags))
CENOTE_COUNTED_CALL(received, ssize_t, read, (int fd, void* bytes, size_t count), (fd, bytes, count))
CENOTE_COUNTED_CALL(received, ssize_t, recv, (int fd, void* bytes, size_t count, int flags), (fd, bytes, count, flags))
CENOTE_COUNTED_CALL(received, ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags))
CENOTE_COUNTED_CALL(waited, int, poll, (pollfd * list, nfds_t count, int timeout), (list, count, timeout))
CENOTE_COUNTED_CALL(waited, int, nanosleep, (const timespec* time, timespec* left), (time, left))
CENOTE_COUNTED_CALL(waited, int, clock_nanosleep, (clockid_t clock, int flags, const timespec* time, timespec* left),
                    (clock, flags, time, left))
CENOTE_COUNTED_CALL(waited, int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t* mutex),
                    (condition, mutex))
CENOTE_COUNTED_CALL(waited, int, pthread_cond_clockwait,
                    (pthread_cond_t * condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* time),
                    (condition, mutex, clock, time))
CENOTE_COUNTED_CALL(mapped, void*, mmap, (void* address, size_t bytes, int access, int flags, int fd, off_t offset),
                    (address, bytes, access, flags, fd, offset), noexcept)
CENOTE_COUNTED_CALL(mapped, int, munmap, (void* address, size_t bytes), (address, bytes), noexcept)
CENOTE_COUNTED_CALL(mapped, int, madvise, (void* address, size_t bytes, int advice), (address, bytes, advice), noexcept)
