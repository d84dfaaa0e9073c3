// Preloaded into a node: makes the transfers of an NVMe path fail, wait or end short, as a file says that a test
// rewrites meanwhile. $CENOTE_TEST_FAULTS names it; each of its lines is the end of a data file's name and then orders
// for it:
//   read=ERRNO write=ERRNO   refuse
//   delay_ms=N               wait so long before each transfer
//   linger_ms=N              wait so long after each
//   hold                     wait before each transfer until the order is gone
//   part=N                   move so many bytes at once, at most
//   lie                      move half of it and say that it was all
//   buffered                 refuse to open the file for direct I/O
//   log=ERRNO                refuse writes to the log of removals
//   metadata=ERRNO           refuse writes to the files of the metadata, and to make new ones
//   metadata_hold            let them wait until the order is gone
// Only calls by these names are seen, so the node has to use threads. The superblock is left alone.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

namespace {

constexpr off_t first_block = off_t{1} << 20;
constexpr std::size_t sector = 4096;
constexpr std::string_view metadata = "/metadata/";

struct orders {
  int read_error = 0;
  int write_error = 0;
  int log_error = 0;
  int metadata_error = 0;
  bool metadata_hold = false;
  long delay_ms = 0;
  long linger_ms = 0;
  std::size_t part = 0;
  bool hold = false;
  bool lie = false;
  bool buffered = false;
};

long number_after(std::string_view word, std::string_view name) noexcept {
  return word.starts_with(name) ? std::strtol(word.data() + name.size(), nullptr, 10) : 0;
}

void obey(orders& out, std::string_view word) noexcept {
  if (const auto n = number_after(word, "read=")) out.read_error = static_cast<int>(n);
  if (const auto n = number_after(word, "write=")) out.write_error = static_cast<int>(n);
  if (const auto n = number_after(word, "log=")) out.log_error = static_cast<int>(n);
  if (const auto n = number_after(word, "metadata=")) out.metadata_error = static_cast<int>(n);
  out.metadata_hold |= word == "metadata_hold";
  if (const auto n = number_after(word, "delay_ms=")) out.delay_ms = n;
  if (const auto n = number_after(word, "linger_ms=")) out.linger_ms = n;
  if (const auto n = number_after(word, "part=")) out.part = static_cast<std::size_t>(n);
  out.hold |= word == "hold";
  out.lie |= word == "lie";
  out.buffered |= word == "buffered";
}

// Read anew each time, with bare system calls: nothing here depends on what is set up when, or calls itself.
orders orders_for(std::string_view file) noexcept {
  orders out;
  const char* name = std::getenv("CENOTE_TEST_FAULTS");
  if (name == nullptr) return out;
  const auto from = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0));
  if (from < 0) return out;
  std::array<char, 4096> text{};  // its last byte stays zero: the end of the last number
  const long size = ::syscall(SYS_read, from, text.data(), text.size() - 1);
  ::syscall(SYS_close, from);
  std::string_view rest(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::string_view whose = line.substr(0, line.find(' '));
    if (whose.empty() || !file.ends_with(whose)) continue;
    line.remove_prefix(whose.size());
    while (!line.empty()) {
      const std::string_view word = line.substr(0, line.find(' '));
      obey(out, word);
      line.remove_prefix(std::min(line.size(), word.size() + 1));
    }
  }
  return out;
}

using file_name = std::array<char, 4096>;

std::string_view name_of(int descriptor, file_name& name) noexcept {
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const long size = ::syscall(SYS_readlinkat, AT_FDCWD, link.data(), name.data(), name.size());
  return {name.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

orders orders_for(int descriptor) noexcept {
  file_name name{};
  return orders_for(name_of(descriptor, name));
}

// For a file of the metadata: those of the data file beside it.
orders orders_for_metadata(std::string_view file) noexcept {
  const auto at = file.find(metadata);
  if (at == std::string_view::npos) return {};
  file_name data{};
  const int size = std::snprintf(data.data(), data.size(), "%.*s/data", static_cast<int>(at), file.data());
  return orders_for(std::string_view(data.data(), static_cast<std::size_t>(size)));
}

void wait_ms(long milliseconds) noexcept {
  timespec left{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// The error of a write to a file of the metadata, after its wait; 0: none.
int metadata_error(int descriptor) noexcept {
  file_name name{};
  const auto file = name_of(descriptor, name);
  if (file.find(metadata) == std::string_view::npos) return 0;
  orders now = orders_for_metadata(file);
  while (now.metadata_hold) {
    wait_ms(5);
    now = orders_for_metadata(file);
  }
  return now.metadata_error;
}

ssize_t transfer(long call, int descriptor, void* memory, std::size_t size, off_t offset) noexcept {
  orders now = offset < first_block ? orders{} : orders_for(descriptor);
  if (call == SYS_pwrite64) {
    const bool in_log = offset >= static_cast<off_t>(sector) && offset < first_block;
    const int error = in_log ? orders_for(descriptor).log_error : metadata_error(descriptor);
    if (error != 0) {
      errno = error;
      return -1;
    }
  }
  wait_ms(now.delay_ms);
  while (now.hold) {
    wait_ms(5);
    now = orders_for(descriptor);
  }
  if (const int error = call == SYS_pread64 ? now.read_error : now.write_error; error != 0) {
    errno = error;
    return -1;
  }
  std::size_t wanted = now.part == 0 ? size : std::min(size, now.part);
  if (now.lie) wanted = std::max(sector, size / 2 / sector * sector);
  const long moved = ::syscall(call, descriptor, memory, wanted, offset);
  wait_ms(now.linger_ms);
  return now.lie && moved > 0 ? static_cast<ssize_t>(size) : moved;
}

}  // namespace

extern "C" {

ssize_t pread(int descriptor, void* memory, size_t size, off_t offset) {
  return transfer(SYS_pread64, descriptor, memory, size, offset);
}

ssize_t pwrite(int descriptor, const void* memory, size_t size, off_t offset) {
  return transfer(SYS_pwrite64, descriptor, const_cast<void*>(memory), size, offset);
}

ssize_t write(int descriptor, const void* memory, size_t size) {
  if (const int error = metadata_error(descriptor); error != 0) {
    errno = error;
    return -1;
  }
  return ::syscall(SYS_write, descriptor, memory, size);
}

int open(const char* file, int flags, ...) {  // NOLINT(cert-dcl50-cpp)
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  if ((flags & O_DIRECT) != 0 && orders_for(std::string_view(file)).buffered) {
    errno = EINVAL;
    return -1;
  }
  if ((flags & O_CREAT) != 0) {
    if (const int error = orders_for_metadata(file).metadata_error; error != 0) {
      errno = error;
      return -1;
    }
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file, flags, mode));
}
}
