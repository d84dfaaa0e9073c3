#include "core/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/unique_fd.hpp"

namespace cenote {

namespace {

result<void> write_synced(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  const unique_fd opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!opened) return fail_errno("open", file.native());
  while (!bytes.empty()) {
    const ssize_t n = ::write(opened.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write", file.native());
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  if (::fsync(opened.get()) != 0) return fail_errno("fsync", file.native());
  return {};
}

result<void> replace_synced(const std::filesystem::path& fresh, const std::filesystem::path& file) {
  if (::rename(fresh.c_str(), file.c_str()) != 0) return fail_errno("rename", file.native());
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const unique_fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || ::fsync(opened.get()) != 0) return fail_errno("fsync", folder.native());
  return {};
}

}  // namespace

result<std::optional<std::string>> read_whole(const std::filesystem::path& file, std::size_t limit) {
  const unique_fd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened && errno == ENOENT) return std::nullopt;
  if (!opened) return fail_errno("open", file.native());
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) return fail_errno("fstat", file.native());
  std::string bytes(std::min(limit, static_cast<std::size_t>(facts.st_size)) + 1, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = ::read(opened.get(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read", file.native());
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  bytes.resize(size);
  return bytes;
}

result<void> replace_whole(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  auto beside = file;
  beside += ".new";
  if (auto written = write_synced(beside, bytes); !written) return written;
  return replace_synced(beside, file);
}

}  // namespace cenote
