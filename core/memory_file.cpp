#include "core/memory_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace cenote {

namespace {

constexpr off_t longest = off_t{16} << 20;

}  // namespace

result<unique_fd> make_memory_file(const std::string& name, std::string_view text) {
  unique_fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) return fail_errno("memfd_create", name);
  while (!text.empty()) {
    const auto done = ::write(fd.get(), text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return fail_errno("write", name);
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  return fd;
}

result<std::string> read_memory_file(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("fstat", "a memory file");
  if (info.st_size > longest) return fail(error_code::limit_exceeded, "a memory file of more than 16 MiB");
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const auto got = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail_errno("pread", "a memory file");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace cenote
